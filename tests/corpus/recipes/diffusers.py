"""Networks of diffusers, small."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export

_BLOCKS = {"block_out_channels": (32, 64), "layers_per_block": 1}
NETWORKS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "unet": ("UNet2DModel", {**_BLOCKS, "sample_size": 16, "in_channels": 3, "out_channels": 3, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, "time"),
    "unet-condition": ("UNet2DConditionModel", {**_BLOCKS, "sample_size": 16, "cross_attention_dim": 32, "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}, "text"),
    "vae": ("AutoencoderKL", {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 16}, "image"),
    "tiny-vae": ("AutoencoderTiny", {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16), "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}, "image"),
    "vq": ("VQModel", {"block_out_channels": (32,), "norm_num_groups": 16, "sample_size": 16}, "image"),
    "dit": ("DiTTransformer2DModel", {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "sample_size": 8, "num_embeds_ada_norm": 10}, "class"),
    "pixart": ("PixArtTransformer2DModel", {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "sample_size": 8, "cross_attention_dim": 32, "caption_channels": 32, "out_channels": 4}, "text"),
    "sd3": ("SD3Transformer2DModel", {"sample_size": 16, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16, "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 64, "in_channels": 4, "out_channels": 4, "pos_embed_max_size": 32}, "pooled"),
}  # fmt: skip


def _build(kind: str, dynamo: bool, path: Path) -> Mapping[str, Any]:
    import diffusers
    import torch

    name, settings, takes = NETWORKS[kind]
    torch.manual_seed(0)
    model = getattr(diffusers, name)(**settings)
    channels = getattr(model.config, "in_channels", 3)
    sample = torch.randn(1, channels, 16, 16)
    text = torch.randn(1, 7, 32)
    more: dict[str, Any] = {
        "time": {"timestep": torch.tensor([10])},
        "text": {"timestep": torch.tensor([10]), "encoder_hidden_states": text},
        "class": {"timestep": torch.tensor([10]), "class_labels": torch.tensor([1])},
        "pooled": {
            "encoder_hidden_states": text,
            "pooled_projections": torch.randn(1, 64),
            "timestep": torch.tensor([10]),
        },
        "image": {},
    }[takes]
    inputs = {"sample": sample, **more}
    first = "hidden_states" if takes in ("class", "pooled") or kind == "pixart" else "sample"
    constant = {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}} if kind == "pixart" else {}

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            named = dict(zip([first, *more], tensors, strict=True))
            return self.model(**named, **constant, return_dict=False)[0]

    axes = {name: {0: "batch"} for name in inputs}
    return export(First(), inputs, ["out"], path, dynamo=dynamo, axes=axes)


RECIPES = {f"{kind}-{how}": partial(_build, kind, how == "dynamo") for kind in NETWORKS for how in ("dynamo", "legacy")}
