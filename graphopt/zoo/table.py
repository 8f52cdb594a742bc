"""The table of models, and how a name is read. To add a model: an entry here and, if none of the builders fits, a builder.

Imports neither torch nor any model library: listing and describing are instant. A name may carry overrides of the
entry's numeric parameters: ``bert_base@layers=48`` or ``resnext50@size=160,width=8``.

Dimensions of inputs name parameters, so that an override changes both the module and its inputs. ``batch`` is 1
throughout, and 0 stands for a symbolic batch.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from graphopt.errors import UnknownNameError, UsageError
from graphopt.zoo.spec import Number, TensorSpec, ZooModel

_IMAGENET = {"batch": 1, "size": 224, "classes": 1000}


def _image(
    name: str,
    family: str,
    build: str,
    doc: str,
    params: Mapping[str, Number] = MappingProxyType({}),
    outputs: tuple[str, ...] = ("logits",),
    reduced: str = "",
) -> ZooModel:
    """An entry whose one input is pixels [batch, 3, size, size], at 224 pixels and 1,000 classes unless ``params`` say otherwise."""
    pixels = TensorSpec("pixels", ("batch", 3, "size", "size"))
    return ZooModel(name, family, f"graphopt.zoo.{build}", (pixels,), doc, {**_IMAGENET, **params}, outputs, reduced)


def _tokens(
    name: str,
    family: str,
    builder: str,
    doc: str,
    params: Mapping[str, Number],
    extra: tuple[TensorSpec, ...] = (),
    outputs: tuple[str, ...] = ("logits",),
) -> ZooModel:
    """An entry of ``graphopt.zoo.text`` whose first input is input_ids [batch, seq], before the ``extra`` ones."""
    ids = TensorSpec("input_ids", ("batch", "seq"), "int64", 0, "vocab")
    params = {"batch": 1, **params}
    return ZooModel(name, family, f"graphopt.zoo.text:{builder}", (ids, *extra), doc, params, outputs)


# All ones: padding is the user's business, but the mask has to reach the graph.
_MASK = TensorSpec("attention_mask", ("batch", "seq"), "int64", 1, 2)
_SEGMENTS = TensorSpec("token_type_ids", ("batch", "seq"), "int64", 0, 2)
_PAST = tuple(
    TensorSpec(f"past_key_values.{{layers}}.{part}", ("batch", "heads", "past", "hidden//heads"))
    for part in ("key", "value")
)
_GROUPED_PAST = tuple(
    TensorSpec(f"past_key_values.{{layers}}.{part}", ("batch", "kv_heads", "past", "hidden//heads"))
    for part in ("key", "value")
)
_SAID = tuple(
    TensorSpec(f"encoder.{{layers}}.{part}", ("batch", "heads", "source", "hidden//heads")) for part in ("key", "value")
)
_PRESENT = ("logits", "present.{layers}.key", "present.{layers}.value")
_HIDDEN = ("last_hidden_state",)

_LLAMA = {"layers": 6, "hidden": 512, "heads": 8, "kv_heads": 2, "intermediate": 1376, "vocab": 8192}
_GPT2 = {"layers": 12, "hidden": 768, "heads": 12, "vocab": 50257}
_SMALL = {"size": 64, "classes": 10}

_REGNET_Y_400MF: Mapping[str, Number] = {
    "depth": 16,
    "w0": 48,
    "wa": 27.89,
    "wm": 2.09,
    "group": 8,
    "multiplier": 1.0,
    "se": 0.25,
    "stem": 32,
}
_RESNET50: Mapping[str, Number] = {"d1": 3, "d2": 4, "d3": 6, "d4": 3, "bottleneck": 1, "groups": 1, "width": 64}

_LATENTS = (
    TensorSpec("latents", ("batch", 4, "size", "size")),
    TensorSpec("timestep", ("batch",), "int64", 0, 1000),
    TensorSpec("context", ("batch", "seq", "text")),
)
"""Inputs of a latent-diffusion U-Net; ``seq`` is the length of the text."""

_BERT_BASE = _tokens(
    "bert_base",
    "transformer",
    "bert",
    "BERT-base encoder with an attention mask input (Devlin et al. 2018, arXiv 1810.04805)",
    {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "vocab": 30522, "seq": 128, "sdpa": 0},
    (_MASK, _SEGMENTS),
    _HIDDEN,
)
_WHISPER_ENCODER = ZooModel(
    "whisper_encoder",
    "transformer",
    "graphopt.zoo.deployed:whisper_encoder",
    (TensorSpec("mel", ("batch", "mels", "frames")),),
    "Whisper tiny's encoder over thirty seconds: attention over 1,500 states (Radford et al. 2022, arXiv 2212.04356)",
    {"batch": 1, "layers": 4, "hidden": 384, "heads": 6, "mels": 80, "frames": 3000},
    _HIDDEN,
)

MODELS = (
    _image("squeezenet1_1", "cnn", "vision:squeezenet1_1", "SqueezeNet 1.1: fire modules (Iandola et al. 2016, arXiv 1602.07360)"),
    _image("resnet18", "cnn", "vision:resnet", "ResNet-18: residual blocks of two 3x3 convolutions (He et al. 2015, arXiv 1512.03385)", {"d1": 2, "d2": 2, "d3": 2, "d4": 2, "bottleneck": 0, "groups": 1, "width": 64}),
    _image("resnet34", "cnn", "vision:resnet", "ResNet-34: residual blocks of two 3x3 convolutions (He et al. 2015, arXiv 1512.03385)", {"d1": 3, "d2": 4, "d3": 6, "d4": 3, "bottleneck": 0, "groups": 1, "width": 64}),
    _image("resnet50", "cnn", "vision:resnet", "ResNet-50: bottleneck residual blocks (He et al. 2015, arXiv 1512.03385)", _RESNET50),
    _image("wide_resnet50_2", "cnn", "vision:resnet", "Wide ResNet-50-2: twice the channels in the 3x3 convolutions (Zagoruyko and Komodakis 2016, arXiv 1605.07146)", {**_RESNET50, "width": 128}),
    _image("resnext50", "cnn", "vision:resnet", "ResNeXt-50 32x4d: grouped 3x3 convolutions (Xie et al. 2016, arXiv 1611.05431)", {**_RESNET50, "groups": 32, "width": 4}),
    _image("vgg16", "cnn", "vision:vgg16", "VGG-16: nothing but 3x3 convolutions and poolings before the head (Simonyan and Zisserman 2014, arXiv 1409.1556)"),
    _image("unet", "cnn", "papers:UNet", "U-Net: an encoder and a decoder of 3x3 convolutions with skips (Ronneberger et al. 2015, arXiv 1505.04597)", {"size": 256, "width": 32, "depth": 4, "classes": 2}, ("mask",)),
    ZooModel(
        "super_resolution",
        "cnn",
        "graphopt.zoo.papers:SuperResolution",
        (TensorSpec("pixels", ("batch", 3, "size", "size")),),
        "EDSR, small: residual blocks of 3x3 convolutions, then a pixel shuffle (Lim et al. 2017, arXiv 1707.02921)",
        {"batch": 1, "size": 64, "width": 64, "blocks": 8, "scale": 2},
        ("image",),
    ),
    _image("inception_v3", "cnn", "vision:inception_v3", "Inception v3: parallel and factorised convolutions (Szegedy et al. 2015, arXiv 1512.00567)", {"size": 299}),
    _image("googlenet", "cnn", "papers:GoogLeNet", "GoogLeNet as published: local response normalisation, four ways in a module (Szegedy et al. 2014, arXiv 1409.4842)", {"width": 16}),
    _image("regnet_y_400mf", "cnn", "vision:regnet", "RegNetY-400MF: grouped convolutions, squeeze-excitation (Radosavovic et al. 2020, arXiv 2003.13678)", _REGNET_Y_400MF),
    _image("shufflenet_v2", "cnn", "vision:shufflenet_v2", "ShuffleNet v2 x1.0: channel shuffles (Ma et al. 2018, arXiv 1807.11164)"),
    _image("shufflenet_v2_x0_5", "cnn", "vision:shufflenet_v2_x0_5", "ShuffleNet v2 x0.5: channel shuffles of few channels (Ma et al. 2018, arXiv 1807.11164)"),
    _image("mobilenet_v3", "cnn", "vision:mobilenet_v3", "MobileNet v3 large: hard-swish, squeeze-excitation (Howard et al. 2019, arXiv 1905.02244)"),
    _image("efficientnet_b0", "cnn", "vision:efficientnet_b0", "EfficientNet-B0: inverted bottlenecks with SiLU (Tan and Le 2019, arXiv 1905.11946)"),
    _image("densenet121", "cnn", "vision:densenet121", "DenseNet-121: every layer concatenates all earlier ones (Huang et al. 2016, arXiv 1608.06993)"),
    _image("convnext_tiny", "cnn", "vision:convnext", "ConvNeXt-T: depthwise 7x7, LayerNorm, GELU (Liu et al. 2022, arXiv 2201.03545)", {"embed": 96, "d1": 3, "d2": 3, "d3": 9, "d4": 3}),
    _image("csp_darknet53", "cnn", "detection:CspDarknet", "CSPDarknet-53, YOLOv4's backbone: cross-stage blocks with Mish (Bochkovskiy et al. 2020, arXiv 2004.10934)", {"size": 256, "width": 32, "d1": 1, "d2": 2, "d3": 8, "d4": 8, "d5": 4}, ("features",)),
    _image("mobilefacenet", "cnn", "papers:MobileFaceNet", "MobileFaceNet: inverted bottlenecks with a slope for each channel (Chen et al. 2018, arXiv 1804.07573)", {"size": 112, "width": 64, "embedding": 512}, ("embedding",)),
    ZooModel("dcgan", "cnn", "graphopt.zoo.generators:Dcgan", (TensorSpec("noise", ("batch", "noise", 1, 1)),), "DCGAN's generator: transposed convolutions of 4x4 (Radford et al. 2015, arXiv 1511.06434)", {"batch": 1, "noise": 100, "width": 64}, ("image",)),
    _image("pix2pix", "cnn", "generators:Pix2Pix", "pix2pix's U-Net: convolutions and transposed ones of 4x4 by strides of 2 (Isola et al. 2016, arXiv 1611.07004)", {"size": 256, "width": 64, "depth": 8}, ("image",)),
    _image("cyclegan", "cnn", "generators:CycleGan", "CycleGAN's generator, six blocks: instance norms, transposed convolutions of 3x3 (Zhu et al. 2017, arXiv 1703.10593)", {"size": 128, "width": 64, "blocks": 6}, ("image",)),
    _image("yolo", "cnn", "detection:Yolo", "A detector in YOLO's manner, nano: cross-stage blocks with SiLU, pooled pyramid, three heads (YOLOv5, Jocher 2020)", {"size": 640, "width": 16, "depth": 1, "classes": 80}, ("boxes",)),
    _image("ssdlite", "cnn", "detection:ssdlite", "SSDLite on MobileNet v3, before overlaps are dropped (Sandler et al. 2018, arXiv 1801.04381)", {"size": 320, "classes": 91}, ("boxes", "scores")),
    ZooModel(
        "diffusion_unet",
        "cnn",
        "graphopt.zoo.diffusion:DiffusionUNet",
        _LATENTS,
        "A latent-diffusion U-Net, small: attention over 4,096 pixels and to a text (Rombach et al. 2022, arXiv 2112.10752)",
        {"batch": 1, "size": 64, "width": 64, "levels": 3, "blocks": 2, "head": 16, "seq": 77, "text": 256},
        ("noise",),
    ),
    ZooModel(
        "tcn",
        "cnn",
        "graphopt.zoo.papers:WaveNet",
        (TensorSpec("samples", ("batch", 1, "seq")),),
        "WaveNet: dilated causal convolutions, gated, over 4,096 samples (van den Oord et al. 2016, arXiv 1609.03499)",
        {"batch": 1, "seq": 4096, "layers": 10, "stacks": 2, "width": 64, "skip": 128, "kernel": 2, "classes": 256},
    ),
    ZooModel(
        "ds_cnn",
        "cnn",
        "graphopt.zoo.audio:DsCnn",
        (TensorSpec("samples", ("batch", "rate")),),
        "A keyword spotter over a second of samples: a log-mel spectrum, then depthwise convolutions (Zhang et al. 2017, arXiv 1711.07128)",
        {"batch": 1, "rate": 16000, "mels": 40, "width": 64, "depth": 4, "classes": 12},
    ),
    ZooModel(
        "encodec",
        "cnn",
        "graphopt.zoo.audio:EncodecEncoder",
        (TensorSpec("samples", ("batch", 1, "seq")),),
        "EnCodec's encoder over a second: convolutions along time with ELU, an LSTM (Defossez et al. 2022, arXiv 2210.13438)",
        {"batch": 1, "seq": 24000, "width": 32, "states": 128},
        ("states",),
    ),
    _image("swin_t", "transformer", "vision:swin", "Swin-T: shifted-window attention with an additive mask of -100 (Liu et al. 2021, arXiv 2103.14030)", {"embed": 96, "heads": 3, "d1": 2, "d2": 2, "d3": 6, "d4": 2, "patch": 4, "window": 7}),
    _image("vit_b_16", "transformer", "vision:vit", "ViT-B/16: a transformer encoder over image patches (Dosovitskiy et al. 2020, arXiv 2010.11929)", {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "patch": 16}),
    _image("swin_v2_t", "transformer", "vision:swin_v2_t", "Swin-V2-T: cosine attention, continuous position bias (Liu et al. 2021, arXiv 2111.09883)", {"size": 256}),
    _image("levit_128s", "transformer", "deployed:levit_128s", "LeViT-128S: attention with BatchNorm, shrinking between stages (Graham et al. 2021, arXiv 2104.01136)"),
    _tokens("mobilebert", "transformer", "mobilebert", "MobileBERT: 24 thin layers with bottlenecks and no LayerNorm (Sun et al. 2020, arXiv 2004.02984)", {"layers": 24, "vocab": 30522, "seq": 128}, (_MASK, _SEGMENTS), _HIDDEN),
    ZooModel(
        "clip_small",
        "transformer",
        "graphopt.zoo.text:clip",
        (
            TensorSpec("input_ids", ("batch", "seq"), "int64", 0, "vocab"),
            TensorSpec("pixels", ("batch", 3, "size", "size")),
            _MASK,
        ),
        "A small CLIP: an image and a text encoder and their similarities (Radford et al. 2021, arXiv 2103.00020)",
        {"batch": 1, "layers": 4, "hidden": 256, "heads": 4, "vocab": 8192, "seq": 32, "size": 128, "patch": 16},
        ("logits_per_image",),
    ),
    _BERT_BASE,
    _tokens("gpt2", "transformer", "gpt2", "GPT-2 small with its language-model head, the whole prompt at once (Radford et al. 2019)", {**_GPT2, "seq": 128}),
    _tokens("gpt2_decode", "transformer", "gpt2_decode", "GPT-2 small, one decoding step with a key-value cache in and out (Radford et al. 2019)", {**_GPT2, "seq": 1, "past": 127}, _PAST, _PRESENT),
    _tokens("llama_small", "transformer", "llama", "A small Llama: RMSNorm, rotary positions, grouped queries, SiLU (Touvron et al. 2023, arXiv 2302.13971)", {**_LLAMA, "seq": 128}),
    _tokens("llama_decode", "transformer", "llama_decode", "llama_small, one decoding step with a key-value cache in and out (Touvron et al. 2023, arXiv 2302.13971)", {**_LLAMA, "seq": 1, "past": 511}, _GROUPED_PAST, _PRESENT),
    _tokens(
        "t5_encoder",
        "transformer",
        "t5_encoder",
        "T5-small encoder: RMSNorm, relative position bias, unscaled attention (Raffel et al. 2019, arXiv 1910.10683)",
        {"layers": 6, "hidden": 512, "heads": 8, "head_dim": 64, "intermediate": 2048, "vocab": 32128, "seq": 128},
        (_MASK,),
        _HIDDEN,
    ),
    _tokens(
        "minilm",
        "transformer",
        "bert",
        "MiniLM-L6-H384, the usual sentence embedding, its head left to the caller (Wang et al. 2020, arXiv 2002.10957)",
        {"layers": 6, "hidden": 384, "heads": 12, "intermediate": 1536, "vocab": 30522, "seq": 128, "sdpa": 0},
        (_MASK, _SEGMENTS),
        _HIDDEN,
    ),
    _tokens(
        "clip_text",
        "transformer",
        "clip_text",
        "CLIP ViT-B/32's text encoder: tokens look back only (Radford et al. 2021, arXiv 2103.00020)",
        {"layers": 12, "hidden": 512, "heads": 8, "intermediate": 2048, "vocab": 49408, "seq": 77},
        (_MASK,),
        _HIDDEN,
    ),
    _WHISPER_ENCODER,
    ZooModel(
        "whisper_decode",
        "transformer",
        "graphopt.zoo.deployed:whisper_decode",
        (TensorSpec("input_ids", ("batch", 1), "int64", 0, "vocab"), *_PAST, *_SAID),
        "Whisper tiny, one decoding step with caches of its own and of the encoder's keys and values (arXiv 2212.04356)",
        {"batch": 1, "layers": 4, "hidden": 384, "heads": 6, "mels": 80, "vocab": 51865, "source": 1500, "past": 63},
        _PRESENT,
    ),
    _image("segformer_b0", "transformer", "deployed:segformer", "SegFormer-B0: attention with reduced keys, a head of linear layers (Xie et al. 2021, arXiv 2105.15203)", {"size": 256, "embed": 32, "classes": 150}, ("mask",)),
    _image(
        "detr",
        "transformer",
        "deployed:detr",
        "DETR-R50: an encoder and a decoder over a ResNet's last map (Carion et al. 2020, arXiv 2005.12872)",
        {"size": 512, "layers": 6, "hidden": 256, "heads": 8, "queries": 100, "depth": 3, "classes": 91},
        ("logits", "boxes"),
    ),
    _image("resnet50_qdq", "cnn", "vision:resnet", "ResNet-50, weights and activations of 8 bits between QuantizeLinear and DequantizeLinear", _RESNET50, reduced="qdq"),
    replace(_BERT_BASE, name="bert_base_int8", doc="BERT-base, weights of 8 bits, activations quantised as they come", reduced="dynamic"),
    replace(_WHISPER_ENCODER, name="whisper_encoder_f16", doc="Whisper tiny's encoder in float16, its input and output in float32", reduced="half"),
    ZooModel(
        "lstm",
        "recurrent",
        "graphopt.zoo.papers:Lstm",
        (TensorSpec("input_ids", ("batch", "seq"), "int64", 0, "vocab"),),
        "A text classifier: two layers of LSTM over embedded tokens (Hochreiter and Schmidhuber 1997)",
        {"batch": 1, "seq": 128, "layers": 2, "embed": 256, "hidden": 512, "vocab": 10000, "classes": 10},
    ),
    ZooModel(
        "nasrnn",
        "search",
        "graphopt.zoo.papers:NasRnn",
        (TensorSpec("h0", ("batch", "hidden")), TensorSpec("x{steps}", ("batch", "hidden"))),
        "The NAS recurrent cell unrolled (Zoph and Le 2016, arXiv 1611.01578; the benchmark of TASO, SOSP 2019)",
        {"batch": 1, "hidden": 512, "steps": 8, "shared": 1},
        ("h",),
    ),
    _image("nasnet_a", "search", "papers:NasNetA", "NASNet-A mobile, 4 @ 1056: searched cells of separable convolutions (Zoph et al. 2017, arXiv 1707.07012)", {"filters": 44, "cells": 4, "stem": 32}),
    _image(
        "demo_regnet",
        "demo",
        "vision:regnet",
        "A small RegNetX with inverted bottlenecks: the committed demo model (arXiv 2003.13678)",
        {
            "depth": 5,
            "w0": 32,
            "wa": 14.0,
            "wm": 1.4,
            "group": 4,
            "multiplier": 4.0,
            "se": 0.0,
            "stem": 16,
            "classes": 10,
        },
    ),
    _image("tiny_regnet", "tiny", "vision:regnet", "regnet_y_400mf, smaller", {**_REGNET_Y_400MF, "depth": 3, "w0": 16, "wa": 12.0, "wm": 2.0, "stem": 16, **_SMALL}),
    _image("tiny_resnext", "tiny", "vision:resnet", "resnext50, smaller: one block in each of two stages", {"d1": 1, "d2": 1, "d3": 0, "d4": 0, "bottleneck": 1, "groups": 16, "width": 4, **_SMALL}),
    _image("tiny_convnext", "tiny", "vision:convnext", "convnext_tiny, smaller: two stages", {"embed": 24, "d1": 1, "d2": 2, "d3": 0, "d4": 0, **_SMALL}),
    _image("tiny_swin", "tiny", "vision:swin", "swin_t, smaller: two stages of a plain and a shifted block", {"embed": 24, "heads": 2, "d1": 2, "d2": 2, "d3": 0, "d4": 0, "patch": 4, "window": 4, **_SMALL}),
    _tokens("tiny_bert", "tiny", "bert", "bert_base, smaller", {"layers": 2, "hidden": 64, "heads": 4, "intermediate": 256, "vocab": 500, "seq": 16, "sdpa": 0}, (_MASK, _SEGMENTS), _HIDDEN),
    _tokens("tiny_llama", "tiny", "llama", "llama_small, smaller", {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "intermediate": 176, "vocab": 500, "seq": 16}),
    ZooModel("tiny_diffusion", "tiny", "graphopt.zoo.diffusion:DiffusionUNet", _LATENTS, "diffusion_unet, smaller: two resolutions", {"batch": 1, "size": 16, "width": 16, "levels": 2, "blocks": 1, "head": 8, "seq": 7, "text": 24}, ("noise",)),
)  # fmt: skip
"""Every entry, in the order in which they are listed."""


_REGISTRY = {model.name: model for model in MODELS}


def names() -> list[str]:
    """The names of all models, in the order of the registry."""
    return list(_REGISTRY)


def describe(name: str) -> ZooModel:
    """The entry for a name, with the overrides it carries applied.

    Args:
        name: ``NAME`` or ``NAME@KEY=VALUE,KEY=VALUE``. ``batch=0`` asks for a symbolic batch dimension, ``seq=0`` and ``past=0`` for
            symbolic lengths.

    Returns:
        The entry under its canonical name: overrides sorted, those equal to the default dropped.

    Raises:
        UnknownNameError: No such model, or no such parameter.
        UsageError: An override is not ``KEY=NUMBER``, or not a whole number where one is needed.
    """
    base, _, overrides = name.partition("@")
    if base not in _REGISTRY:
        raise UnknownNameError("zoo model", base, _REGISTRY)
    model = _REGISTRY[base]
    changed: dict[str, Number] = {}
    for item in overrides.split(",") if overrides else ():
        key, _, text = item.partition("=")
        if key not in model.params:
            raise UnknownNameError(f"parameter of {base}", key, model.params)
        value = _number(item, text, model.params[key])
        if value != model.params[key]:
            changed[key] = value
    if not changed:
        return model
    suffix = ",".join(f"{key}={changed[key]}" for key in sorted(changed))
    return replace(model, name=f"{base}@{suffix}", params={**model.params, **changed})


def _number(item: str, text: str, default: Number) -> Number:
    whole = isinstance(default, int)
    try:
        value: Number = int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise UsageError(
            f"{item!r} in a zoo name: expected KEY=VALUE with {kind}", "example: bert_base@layers=48"
        ) from None
    if not 0 <= value < math.inf:
        raise UsageError(f"{item!r} in a zoo name: expected a number that is finite and not negative")
    return value


def example_inputs(name: str, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Random inputs that a model of the zoo accepts, without building it.

    Args:
        name: As for :func:`describe`.
        seed: Same seed, same arrays.

    Returns:
        One array per input: standard normal where floating, uniform over the valid range where integer.
    """
    feeds: dict[str, npt.NDArray[Any]] = {}
    for spec in describe(name).input_specs():
        shape = tuple(int(d) for d in spec.shape)
        # Seeded by the input's own name: adding an input to a model leaves the others as they were.
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        if np.issubdtype(np.dtype(spec.dtype), np.integer):
            feeds[spec.name] = rng.integers(spec.low, int(spec.high), shape).astype(spec.dtype)
        else:
            feeds[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
    return feeds
