"""Builders of image and speech models of ``transformers``, with random weights.

Like the text models they are wrapped to take and return tensors, and attend by operators. Imported only when a model is built.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from graphopt.zoo.spec import Number
from graphopt.zoo.text import EAGER, Wrapped


def _both_sides(layers: int, heads: int, inner: int) -> dict[str, Any]:
    """Sizes that a configuration wants for its encoder and its decoder."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": inner}
    return {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in sizes.items()}


def _whisper(layers: int, hidden: int, heads: int, vocab: int, mels: int, frames: int, positions: int) -> Any:
    config = transformers.WhisperConfig(
        vocab_size=vocab,
        d_model=hidden,
        num_mel_bins=mels,
        max_source_positions=frames // 2,
        max_target_positions=max(448, positions),
        **_both_sides(layers, heads, 4 * hidden),
        # The defaults lie outside a small vocabulary.
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
        **EAGER,
    )
    return transformers.WhisperForConditionalGeneration(config)


class _First(Wrapped):
    """A model of one input, to the first of its outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, return_dict=True)[0]


def whisper_encoder(*, layers: int, hidden: int, heads: int, mels: int, frames: int, **_: Number) -> nn.Module:
    """Whisper's encoder: two convolutions, and attention over half as many states as there are frames."""
    return _First(_whisper(layers, hidden, heads, 100, mels, frames, 0).model.encoder)


class _SpeechStep(Wrapped):
    """One step of a decoder that also attends to what its encoder said, whose keys and values are computed once.

    The caches are given as own keys by layer, own values, the encoder's keys, the encoder's values
    (each [batch, heads, tokens, head size]); logits and the longer own keys and values are returned.
    """

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        n = len(past) // 4
        own, said = (
            transformers.DynamicCache(ddp_cache_data=tuple(zip(past[i : i + n], past[i + n : i + 2 * n], strict=True)))
            for i in (0, 2 * n)
        )
        cache = transformers.EncoderDecoderCache(own, said)
        for layer in range(n):
            cache.is_updated[layer] = True
        # Only that there are states is asked: what was made of them lies in the cache.
        states = torch.zeros(input_ids.shape[0], 1, self.model.config.d_model)
        made = self.model.model.decoder(input_ids, encoder_hidden_states=states, past_key_values=cache, use_cache=True)
        layers = made.past_key_values.self_attention_cache.layers
        logits = self.model.proj_out(made.last_hidden_state)
        return (logits, *(layer.keys for layer in layers), *(layer.values for layer in layers))


def whisper_decode(
    *, layers: int, hidden: int, heads: int, vocab: int, mels: int, source: int, past: int, **_: Number
) -> nn.Module:
    """One decoding step of Whisper after ``past`` tokens, over ``source`` states of the encoder."""
    return _SpeechStep(_whisper(layers, hidden, heads, vocab, mels, 2 * source, past + 1))


class _Classifier(Wrapped):
    """A classifier: pixels to logits."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixels).logits


def levit_128s(*, size: int, classes: int, **_: Number) -> nn.Module:
    """LeViT-128S with one classifier."""
    config = transformers.LevitConfig(
        image_size=size, hidden_sizes=[128, 256, 384], depths=[2, 3, 4], num_attention_heads=[4, 6, 8]
    )
    config.num_labels = classes
    return _Classifier(transformers.LevitForImageClassification(config))


def segformer(*, embed: int, classes: int, **_: Number) -> nn.Module:
    """SegFormer-B0 at ``embed=32``: attention over ever smaller maps, keys and values of reduced ones."""
    own: dict[str, Any] = {"hidden_sizes": [embed, 2 * embed, 5 * embed, 8 * embed], "num_labels": classes}
    config = transformers.SegformerConfig(**own, **EAGER)
    return _First(transformers.SegformerForSemanticSegmentation(config))


class _Detector(Wrapped):
    """A detector: pixels to (logits, boxes) of its queries."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model(pixels)
        return found.logits, found.pred_boxes


def detr(*, layers: int, hidden: int, heads: int, queries: int, depth: int, classes: int, **_: Number) -> nn.Module:
    """DETR on a ResNet of ``depth`` bottleneck blocks a stage; every query attends to the whole image."""
    # In dictionaries, because the configurations declare only the fields of their own architecture.
    stages: dict[str, Any] = {"depths": [depth] * 4, "out_features": ["stage4"]}
    own: dict[str, Any] = {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "num_labels": classes,
        "num_queries": queries,
    }
    config = transformers.DetrConfig(
        backbone_config=transformers.ResNetConfig(**stages),
        d_model=hidden,
        **_both_sides(layers, heads, 8 * hidden),
        **own,
        **EAGER,
    )
    return _Detector(transformers.DetrForObjectDetection(config))
