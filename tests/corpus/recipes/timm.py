"""Image models of timm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export

NAMES = (
    "resnet18", "resnetv2_50", "mobilenetv3_small_050", "efficientnet_b0", "efficientnetv2_rw_t", "convnext_atto", "regnetx_002", "repvgg_a0",
    "ghostnet_050", "vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224", "levit_128s", "edgenext_xx_small", "mobileone_s0",
    "fastvit_t8", "poolformer_s12", "coat_lite_tiny", "dla34", "hardcorenas_a", "tinynet_e", "xcit_nano_12_p16_224", "cait_xxs24_224",
    "swin_tiny_patch4_window7_224", "maxvit_rmlp_pico_rw_256", "mobilevit_xxs", "pvt_v2_b0", "eva02_tiny_patch14_224", "inception_next_atto", "res2net50_26w_4s",
)  # fmt: skip


def _build(name: str, dynamo: bool, path: Path) -> Mapping[str, Any]:
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, exportable=True)
    x = torch.randn(1, *model.default_cfg["input_size"])
    return export(model, {"input": x}, ["out"], path, dynamo=dynamo, axes={"input": {0: "batch"}})


RECIPES = {f"{name}-{how}": partial(_build, name, how == "dynamo") for i, name in enumerate(NAMES) for how in (("dynamo",), ("legacy",))[i % 2]}  # fmt: skip
