"""Builders of text models: the architectures of ``transformers`` from their configurations, with random weights.

The library's modules take and return dictionaries and caches; the wrappers here take tensors in the order of the
registry's inputs and return tensors. Attention is the eager implementation, unless a parameter says otherwise, so that
its operators appear in the graph. Imported only when a model is built.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from graphopt.zoo.spec import Number

# Passed like this because the configurations declare only the fields of their own architecture.
EAGER: dict[str, Any] = {"attn_implementation": "eager"}
SDPA: dict[str, Any] = {"attn_implementation": "sdpa"}


class Wrapped(nn.Module):
    """A module of the library; what is made of it says what goes in and comes out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class _Encoder(Wrapped):
    """Any encoder: (input_ids, attention_mask[, token_type_ids]) to the last hidden state [batch, seq, hidden]."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *token_type_ids: Tensor) -> Tensor:
        segments = {"token_type_ids": token_type_ids[0]} if token_type_ids else {}
        return self.model(input_ids, attention_mask=attention_mask, return_dict=True, **segments)[0]


class _Decoder(Wrapped):
    """A decoder over a whole prompt: input_ids [batch, seq] to logits [batch, seq, vocab]."""

    def forward(self, input_ids: Tensor) -> Tensor:
        # Without a mask the library looks for packed sequences, by an operator that the legacy exporter lacks.
        mask = torch.ones_like(input_ids)
        return self.model(input_ids, attention_mask=mask, use_cache=False, return_dict=True).logits


class _DecodeStep(Wrapped):
    """One step of a decoder: a token, and keys and values of the past, to logits and the longer keys and values.

    The cache is given as all keys by layer, then all values by layer (each [batch, heads, past, head size]), and
    returned in the same order.
    """

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        half = len(past) // 2
        cache = transformers.DynamicCache(ddp_cache_data=tuple(zip(past[:half], past[half:], strict=True)))
        out = self.model(input_ids, past_key_values=cache, use_cache=True, return_dict=True)
        layers = out.past_key_values.layers
        return (out.logits, *(layer.keys for layer in layers), *(layer.values for layer in layers))


def bert(
    *, layers: int, hidden: int, heads: int, intermediate: int, vocab: int, seq: int, sdpa: int = 0, **_: Number
) -> nn.Module:
    """A BERT encoder without the pooling layer; attention by ``scaled_dot_product_attention``, the library's default, if asked for."""
    config = transformers.BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max(512, seq),
        **(SDPA if sdpa else EAGER),
    )
    return _Encoder(transformers.BertModel(config, add_pooling_layer=False))


def _gpt2(layers: int, hidden: int, heads: int, vocab: int, positions: int) -> Any:
    config = transformers.GPT2Config(
        vocab_size=vocab,
        n_positions=max(1024, positions),
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        # The defaults lie outside a small vocabulary.
        bos_token_id=0,
        eos_token_id=0,
        **EAGER,
    )
    return transformers.GPT2LMHeadModel(config)


def gpt2(*, layers: int, hidden: int, heads: int, vocab: int, seq: int, **_: Number) -> nn.Module:
    """GPT-2 with its language-model head, whose matrix is the transposed token embedding."""
    return _Decoder(_gpt2(layers, hidden, heads, vocab, seq))


def gpt2_decode(*, layers: int, hidden: int, heads: int, vocab: int, seq: int, past: int, **_: Number) -> nn.Module:
    """One decoding step of GPT-2 after ``past`` tokens."""
    return _DecodeStep(_gpt2(layers, hidden, heads, vocab, seq + past))


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int, positions: int) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=max(2048, positions),
        bos_token_id=0,
        eos_token_id=0,
        **EAGER,
    )
    return transformers.LlamaForCausalLM(config)


def llama(
    *, layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int, seq: int, **_: Number
) -> nn.Module:
    """Llama with its language-model head; ``heads // kv_heads`` query heads share each key-value head."""
    return _Decoder(_llama(layers, hidden, heads, kv_heads, intermediate, vocab, seq))


def llama_decode(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    seq: int,
    past: int,
    **_: Number,
) -> nn.Module:
    """One decoding step of Llama after ``past`` tokens."""
    return _DecodeStep(_llama(layers, hidden, heads, kv_heads, intermediate, vocab, seq + past))


def t5_encoder(
    *, layers: int, hidden: int, heads: int, head_dim: int, intermediate: int, vocab: int, **_: Number
) -> nn.Module:
    """The encoder half of T5, with ReLU as in the first version."""
    config = transformers.T5Config(
        vocab_size=vocab,
        d_model=hidden,
        d_kv=head_dim,
        d_ff=intermediate,
        num_layers=layers,
        num_heads=heads,
        **EAGER,
    )
    return _Encoder(transformers.T5EncoderModel(config))


def mobilebert(*, layers: int, vocab: int, seq: int, **_: Number) -> nn.Module:
    """MobileBERT without the pooling layer, at its usual widths."""
    config = transformers.MobileBertConfig(
        vocab_size=vocab, num_hidden_layers=layers, max_position_embeddings=max(512, seq), **EAGER
    )
    return _Encoder(transformers.MobileBertModel(config, add_pooling_layer=False))


class _Similarity(Wrapped):
    """CLIP: (input_ids, pixels, attention_mask) to the similarity of each image with each text."""

    def forward(self, input_ids: Tensor, pixels: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, pixel_values=pixels, attention_mask=attention_mask).logits_per_image


def clip(
    *, layers: int, hidden: int, heads: int, vocab: int, seq: int, size: int, patch: int, **_: Number
) -> nn.Module:
    """CLIP with two encoders of the same size."""
    shared = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    config = transformers.CLIPConfig(
        text_config={
            **shared,
            "vocab_size": vocab,
            "max_position_embeddings": seq,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        vision_config={**shared, "image_size": size, "patch_size": patch},
        projection_dim=hidden,
        **EAGER,
    )
    return _Similarity(transformers.CLIPModel(config))


def clip_text(
    *, layers: int, hidden: int, heads: int, intermediate: int, vocab: int, seq: int, **_: Number
) -> nn.Module:
    """CLIP's text encoder, whose tokens look back only."""
    config = transformers.CLIPTextConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max(77, seq),
        bos_token_id=0,
        eos_token_id=vocab - 1,
        **EAGER,
    )
    return _Encoder(transformers.CLIPTextModel(config))
