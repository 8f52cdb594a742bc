"""The part of the table with convolutional networks."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.zoo.entries import image
from graphopt.zoo.spec import Number, TensorSpec, ZooModel

REGNET_Y_400MF: Mapping[str, Number] = {
    "depth": 16,
    "w0": 48,
    "wa": 27.89,
    "wm": 2.09,
    "group": 8,
    "multiplier": 1.0,
    "se": 0.25,
    "stem": 32,
}
RESNET50: Mapping[str, Number] = {"d1": 3, "d2": 4, "d3": 6, "d4": 3, "bottleneck": 1, "groups": 1, "width": 64}

LATENTS = (
    TensorSpec("latents", ("batch", 4, "size", "size")),
    TensorSpec("timestep", ("batch",), "int64", 0, 1000),
    TensorSpec("context", ("batch", "seq", "text")),
)
"""Inputs of a latent-diffusion U-Net; ``seq`` is the length of the text."""

CONVOLUTIONAL = (
    image(
        "squeezenet1_1",
        "cnn",
        "vision:squeezenet1_1",
        "SqueezeNet 1.1: fire modules (Iandola et al. 2016, arXiv 1602.07360)",
    ),
    image(
        "resnet18",
        "cnn",
        "vision:resnet",
        "ResNet-18: residual blocks of two 3x3 convolutions (He et al. 2015, arXiv 1512.03385)",
        {"d1": 2, "d2": 2, "d3": 2, "d4": 2, "bottleneck": 0, "groups": 1, "width": 64},
    ),
    image(
        "resnet34",
        "cnn",
        "vision:resnet",
        "ResNet-34: residual blocks of two 3x3 convolutions (He et al. 2015, arXiv 1512.03385)",
        {"d1": 3, "d2": 4, "d3": 6, "d4": 3, "bottleneck": 0, "groups": 1, "width": 64},
    ),
    image(
        "resnet50",
        "cnn",
        "vision:resnet",
        "ResNet-50: bottleneck residual blocks (He et al. 2015, arXiv 1512.03385)",
        RESNET50,
    ),
    image(
        "wide_resnet50_2",
        "cnn",
        "vision:resnet",
        "Wide ResNet-50-2: twice the channels in the 3x3 convolutions (Zagoruyko and Komodakis 2016, arXiv 1605.07146)",
        {**RESNET50, "width": 128},
    ),
    image(
        "resnext50",
        "cnn",
        "vision:resnet",
        "ResNeXt-50 32x4d: grouped 3x3 convolutions (Xie et al. 2016, arXiv 1611.05431)",
        {**RESNET50, "groups": 32, "width": 4},
    ),
    image(
        "vgg16",
        "cnn",
        "vision:vgg16",
        "VGG-16: nothing but 3x3 convolutions and poolings before the head (Simonyan and Zisserman 2014, arXiv 1409.1556)",
    ),
    image(
        "unet",
        "cnn",
        "dense:unet",
        "U-Net: an encoder and a decoder of 3x3 convolutions with skips (Ronneberger et al. 2015, arXiv 1505.04597)",
        {"size": 256, "width": 32, "depth": 4, "classes": 2},
        ("mask",),
    ),
    ZooModel(
        "super_resolution",
        "cnn",
        "graphopt.zoo.dense:super_resolution",
        (TensorSpec("pixels", ("batch", 3, "size", "size")),),
        "EDSR, small: residual blocks of 3x3 convolutions, then a pixel shuffle (Lim et al. 2017, arXiv 1707.02921)",
        {"batch": 1, "size": 64, "width": 64, "blocks": 8, "scale": 2},
        ("image",),
    ),
    image(
        "inception_v3",
        "cnn",
        "vision:inception_v3",
        "Inception v3: parallel and factorised convolutions (Szegedy et al. 2015, arXiv 1512.00567)",
        {"size": 299},
    ),
    image(
        "regnet_y_400mf",
        "cnn",
        "vision:regnet",
        "RegNetY-400MF: grouped convolutions, squeeze-excitation (Radosavovic et al. 2020, arXiv 2003.13678)",
        REGNET_Y_400MF,
    ),
    image(
        "shufflenet_v2",
        "cnn",
        "vision:shufflenet_v2",
        "ShuffleNet v2 x1.0: channel shuffles (Ma et al. 2018, arXiv 1807.11164)",
    ),
    image(
        "shufflenet_v2_x0_5",
        "cnn",
        "vision:shufflenet_v2_x0_5",
        "ShuffleNet v2 x0.5: channel shuffles of few channels (Ma et al. 2018, arXiv 1807.11164)",
    ),
    image(
        "mobilenet_v3",
        "cnn",
        "vision:mobilenet_v3",
        "MobileNet v3 large: hard-swish, squeeze-excitation (Howard et al. 2019, arXiv 1905.02244)",
    ),
    image(
        "efficientnet_b0",
        "cnn",
        "vision:efficientnet_b0",
        "EfficientNet-B0: inverted bottlenecks with SiLU (Tan and Le 2019, arXiv 1905.11946)",
    ),
    image(
        "densenet121",
        "cnn",
        "vision:densenet121",
        "DenseNet-121: every layer concatenates all earlier ones (Huang et al. 2016, arXiv 1608.06993)",
    ),
    image(
        "convnext_tiny",
        "cnn",
        "vision:convnext",
        "ConvNeXt-T: depthwise 7x7, LayerNorm, GELU (Liu et al. 2022, arXiv 2201.03545)",
        {"embed": 96, "d1": 3, "d2": 3, "d3": 9, "d4": 3},
    ),
    image(
        "yolo",
        "cnn",
        "detection:yolo",
        "A detector in YOLO's manner, nano: cross-stage blocks with SiLU, pooled pyramid, three heads (YOLOv5, Jocher 2020)",
        {"size": 640, "width": 16, "depth": 1, "classes": 80},
        ("boxes",),
    ),
    image(
        "ssdlite",
        "cnn",
        "detection:ssdlite",
        "SSDLite on MobileNet v3, before overlaps are dropped (Sandler et al. 2018, arXiv 1801.04381)",
        {"size": 320, "classes": 91},
        ("boxes", "scores"),
    ),
    ZooModel(
        "diffusion_unet",
        "cnn",
        "graphopt.zoo.diffusion:diffusion_unet",
        LATENTS,
        "A latent-diffusion U-Net, small: attention over 4,096 pixels and to a text (Rombach et al. 2022, arXiv 2112.10752)",
        {"batch": 1, "size": 64, "width": 64, "levels": 3, "blocks": 2, "head": 16, "seq": 77, "text": 256},
        ("noise",),
    ),
    ZooModel(
        "tcn",
        "cnn",
        "graphopt.zoo.sequence:tcn",
        (TensorSpec("samples", ("batch", 1, "seq")),),
        "WaveNet: dilated causal convolutions, gated, over 4,096 samples (van den Oord et al. 2016, arXiv 1609.03499)",
        {"batch": 1, "seq": 4096, "layers": 10, "stacks": 2, "width": 64, "skip": 128, "kernel": 2, "classes": 256},
    ),
)
"""Convolutional networks, in the order in which they are listed."""
