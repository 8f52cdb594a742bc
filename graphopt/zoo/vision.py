"""Builders of image models: torchvision's architectures, the irregular ones as they are, the others by their numbers.

Every builder takes the parameters of its registry entry as keywords and returns a module with torchvision's initial
weights (``graphopt.zoo.modules`` replaces what is constant in them). Imported only when a model is built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torchvision import models
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.regnet import BlockParams, RegNet
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vision_transformer import VisionTransformer

from graphopt.zoo.spec import Number


def _by_classes(make: Callable[..., Any]) -> Callable[..., nn.Module]:
    """A builder of an architecture of which only the number of classes is open."""

    def build(*, classes: int, **_: Number) -> nn.Module:
        return make(num_classes=classes)

    return build


squeezenet1_1 = _by_classes(models.squeezenet1_1)
# The auxiliary head is for training only.
inception_v3 = _by_classes(partial(models.Inception3, aux_logits=False, init_weights=False))
shufflenet_v2 = _by_classes(models.shufflenet_v2_x1_0)
shufflenet_v2_x0_5 = _by_classes(models.shufflenet_v2_x0_5)
swin_v2_t = _by_classes(models.swin_v2_t)
mobilenet_v3 = _by_classes(models.mobilenet_v3_large)
efficientnet_b0 = _by_classes(models.efficientnet_b0)
densenet121 = _by_classes(models.densenet121)
vgg16 = _by_classes(models.vgg16)


def resnet(
    *, d1: int, d2: int, d3: int, d4: int, bottleneck: int, groups: int, width: int, classes: int, **_: Number
) -> nn.Module:
    """ResNet and ResNeXt.

    Args:
        d1: Blocks in the first stage; ``d2`` to ``d4`` likewise. A stage of 0 blocks and those after it are left out.
        d2: See ``d1``.
        d3: See ``d1``.
        d4: See ``d1``.
        bottleneck: 1 for bottleneck blocks, 0 for pairs of 3x3 convolutions.
        groups: Groups of the 3x3 convolutions (ResNeXt's cardinality).
        width: Channels per group in the first stage.
        classes: Number of logits.
    """
    block: type[BasicBlock] | type[Bottleneck] = Bottleneck if bottleneck else BasicBlock
    depths = _stages(d1, d2, d3, d4)
    padded = [*depths, *[1] * (4 - len(depths))]
    net = ResNet(block, padded, num_classes=classes, groups=groups, width_per_group=width)
    for stage in range(len(depths), 4):  # torchvision always makes four stages
        setattr(net, f"layer{stage + 1}", nn.Identity())
    net.fc = nn.Linear(64 * 2 ** (len(depths) - 1) * block.expansion, classes)
    return net


def regnet(
    *,
    depth: int,
    w0: int,
    wa: float,
    wm: float,
    group: int,
    multiplier: float,
    se: float,
    stem: int,
    classes: int,
    **_: Number,
) -> nn.Module:
    """RegNetX (``se=0``) and RegNetY, from the numbers that span the design space.

    Args:
        depth: Number of blocks.
        w0: Width of the first block.
        wa: Slope of the widths.
        wm: Ratio between the widths of consecutive stages.
        group: Channels per group of the 3x3 convolutions.
        multiplier: Channels of the 3x3 convolutions over those of the block.
        se: Squeeze-excitation ratio, 0 for none.
        stem: Channels of the stem.
        classes: Number of logits.
    """
    blocks = BlockParams.from_init_params(
        depth=depth, w_0=w0, w_a=wa, w_m=wm, group_width=group, bottleneck_multiplier=multiplier, se_ratio=se or None
    )
    norm = partial(nn.BatchNorm2d, eps=1e-5, momentum=0.1)
    return RegNet(blocks, num_classes=classes, stem_width=stem, norm_layer=norm)


def convnext(*, embed: int, d1: int, d2: int, d3: int, d4: int, classes: int, **_: Number) -> nn.Module:
    """ConvNeXt: stages of ``d1`` to ``d4`` blocks, ``embed`` channels in the first and twice as many in each next."""
    depths = _stages(d1, d2, d3, d4)
    widths = [embed * 2**i for i in range(len(depths))]
    outs = [*widths[1:], None]
    settings = [CNBlockConfig(w, out, depth) for w, out, depth in zip(widths, outs, depths, strict=True)]
    # A depth probability of 0 divides by zero in torchvision when there is a single block; any value does in eval mode.
    return ConvNeXt(settings, num_classes=classes)


def swin(
    *, embed: int, heads: int, d1: int, d2: int, d3: int, d4: int, patch: int, window: int, classes: int, **_: Number
) -> nn.Module:
    """Swin: ``embed`` channels and ``heads`` heads in the first stage and twice as many in each next."""
    depths = _stages(d1, d2, d3, d4)
    all_heads = [heads * 2**i for i in range(len(depths))]
    return SwinTransformer([patch] * 2, embed, depths, all_heads, [window] * 2, num_classes=classes)


def vit(
    *, size: int, patch: int, layers: int, hidden: int, heads: int, intermediate: int, classes: int, **_: Number
) -> nn.Module:
    """A vision transformer over patches of ``patch`` by ``patch`` pixels."""
    return VisionTransformer(size, patch, layers, heads, hidden, intermediate, num_classes=classes)


def _stages(*depths: int) -> list[int]:
    """The depths before the first 0."""
    return list(depths[: depths.index(0)] if 0 in depths else depths)
