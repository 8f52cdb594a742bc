"""Encoders and whole models of transformers, without a cache; batch and length vary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export

_TEXT = {
    "vocab_size": 211, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_IMAGE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 64,
    "patch_size": 16,
}
_SPEECH = {
    **_TEXT,
    "conv_dim": (32, 32),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}
_DISTIL = {"vocab_size": 211, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 128}
_BART = {
    "vocab_size": 211, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip
MODELS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {  # what it takes, its class, its configuration
    "bert": ("text", "Bert:Model", _TEXT),
    "bert-classes": ("text", "Bert:ForSequenceClassification", _TEXT),
    "bert-answers": ("text", "Bert:ForQuestionAnswering", _TEXT),
    "bert-masked": ("text", "Bert:ForMaskedLM", _TEXT),
    "roberta": ("text", "Roberta:Model", {**_TEXT, "pad_token_id": 1}),
    "distilbert": ("text", "DistilBert:ForSequenceClassification", _DISTIL),
    "albert": ("text", "Albert:Model", {**_TEXT, "embedding_size": 32}),
    "electra": ("text", "Electra:ForTokenClassification", {**_TEXT, "embedding_size": 32}),
    "mpnet": ("text", "MPNet:Model", _TEXT),
    "deberta": ("text", "DebertaV2:Model", {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "xlm-roberta": ("text", "XLMRoberta:ForSequenceClassification", {**_TEXT, "pad_token_id": 1}),
    "funnel": ("text", "Funnel:Model", {"vocab_size": 211, "d_model": 64, "block_sizes": [1, 1], "n_head": 4, "d_head": 16, "d_inner": 96}),
    "modernbert": ("text", "ModernBert:Model", {**_TEXT, "cls_token_id": 0, "sep_token_id": 1}),
    "nystromformer": ("text", "Nystromformer:Model", {**_TEXT, "num_landmarks": 4, "segment_means_seq_len": 8}),
    "squeezebert": ("text", "SqueezeBert:Model", {**_TEXT, "embedding_size": 64}),
    "t5-encoder": ("text", "T5:EncoderModel", {"vocab_size": 211, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}),
    "clip-text": ("text", "CLIPText:Model", {**_TEXT, "pad_token_id": 1}),
    "gpt2": ("text", "GPT2:Model", {"vocab_size": 211, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "use_cache": False}),
    "llama": ("text", "Llama:Model", {**_TEXT, "num_key_value_heads": 2, "use_cache": False}),
    "mamba": ("ids", "Mamba:Model", {"vocab_size": 211, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False}),
    "t5": ("pair", "T5:Model", {"vocab_size": 211, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "use_cache": False}),
    "bart": ("pair", "Bart:Model", {**_BART, "use_cache": False}),
    "vit": ("image", "ViT:Model", _IMAGE),
    "deit": ("image", "DeiT:Model", _IMAGE),
    "beit": ("image", "Beit:Model", _IMAGE),
    "dinov2": ("image", "Dinov2:Model", _IMAGE),
    "swin": ("image", "Swin:Model", {"image_size": 64, "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}),
    "convnext": ("image", "ConvNext:Model", {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1]}),
    "resnet": ("image", "ResNet:Model", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}),
    "segformer": ("image", "Segformer:Model", {"hidden_sizes": [16, 32], "depths": [1, 1], "num_encoder_blocks": 2, "num_attention_heads": [1, 2], "sr_ratios": [4, 2]}),
    "mobilevit": ("image", "MobileViT:Model", {"hidden_sizes": [32, 48, 64], "neck_hidden_sizes": [16, 16, 16, 16, 32, 32, 64], "image_size": 64}),
    "clip-vision": ("image", "CLIPVision:Model", _IMAGE),
    "siglip-vision": ("image", "SiglipVision:Model", _IMAGE),
    "wav2vec2": ("speech", "Wav2Vec2:Model", _SPEECH),
    "hubert": ("speech", "Hubert:Model", _SPEECH),
    "whisper-encoder": ("mel", "Whisper:Model", {**_BART, "num_mel_bins": 8, "max_source_positions": 50}),
}  # fmt: skip


def _build(kind: str, dynamo: bool, path: Path) -> Mapping[str, Any]:
    import torch
    import transformers

    takes, name, settings = MODELS[kind]
    family, head = name.split(":")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**settings)
    if family == "T5":
        config.decoder_start_token_id = 0
    model = getattr(transformers, f"{family}{head}")(config)
    model = model.encoder if takes == "mel" else model

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return self.model(**dict(zip(inputs, tensors, strict=True)), return_dict=True)[0]

    def ids(length: int) -> Any:
        return torch.randint(3, 31, (2, length))

    batch, mask = "batch_size", torch.ones(2, 12, dtype=torch.int64)
    inputs: dict[str, Any] = {
        "text": {"input_ids": ids(12), "attention_mask": mask},
        "ids": {"input_ids": ids(12)},
        "pair": {"input_ids": ids(12), "attention_mask": mask, "decoder_input_ids": ids(7)},
        "image": {"pixel_values": torch.randn(2, 3, 64, 64)},
        "speech": {"input_values": torch.randn(2, 3000)},
        "mel": {"input_features": torch.randn(2, 8, 100)},
    }[takes]
    varying = {
        "input_ids": "sequence_length",
        "attention_mask": "sequence_length",
        "decoder_input_ids": "decoder_sequence_length",
        "input_values": "samples",
    }
    axes = {n: {0: batch, **({1: varying[n]} if n in varying else {})} for n in inputs}
    return export(First(), inputs, ["out"], path, dynamo=dynamo, axes=axes)


RECIPES = {f"{kind}-{how}": partial(_build, kind, how == "dynamo") for kind in MODELS for how in ("dynamo", "legacy")}
