"""The table of models. To add one: an entry here or in ``table_cnn`` and, if none of the builders fits, a builder.

Dimensions of inputs name parameters, so that an override changes both the module and its inputs. ``batch`` is 1
throughout, and 0 stands for a symbolic batch.
"""

from __future__ import annotations

from dataclasses import replace

from graphopt.zoo.entries import image, tokens
from graphopt.zoo.spec import TensorSpec, ZooModel
from graphopt.zoo.table_cnn import CONVOLUTIONAL, LATENTS, REGNET_Y_400MF, RESNET50

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

_BERT_BASE = tokens(
    "bert_base",
    "transformer",
    "bert",
    "BERT-base encoder with an attention mask input (Devlin et al. 2018, arXiv 1810.04805)",
    {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "vocab": 30522, "seq": 128},
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
    *CONVOLUTIONAL,
    image(
        "swin_t",
        "transformer",
        "vision:swin",
        "Swin-T: shifted-window attention with an additive mask of -100 (Liu et al. 2021, arXiv 2103.14030)",
        {"embed": 96, "heads": 3, "d1": 2, "d2": 2, "d3": 6, "d4": 2, "patch": 4, "window": 7},
    ),
    image(
        "vit_b_16",
        "transformer",
        "vision:vit",
        "ViT-B/16: a transformer encoder over image patches (Dosovitskiy et al. 2020, arXiv 2010.11929)",
        {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "patch": 16},
    ),
    image(
        "swin_v2_t",
        "transformer",
        "vision:swin_v2_t",
        "Swin-V2-T: cosine attention, continuous position bias (Liu et al. 2021, arXiv 2111.09883)",
        {"size": 256},
    ),
    image(
        "levit_128s",
        "transformer",
        "deployed:levit_128s",
        "LeViT-128S: attention with BatchNorm, shrinking between stages (Graham et al. 2021, arXiv 2104.01136)",
    ),
    tokens(
        "mobilebert",
        "transformer",
        "mobilebert",
        "MobileBERT: 24 thin layers with bottlenecks and no LayerNorm (Sun et al. 2020, arXiv 2004.02984)",
        {"layers": 24, "vocab": 30522, "seq": 128},
        (_MASK, _SEGMENTS),
        _HIDDEN,
    ),
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
    tokens(
        "gpt2",
        "transformer",
        "gpt2",
        "GPT-2 small with its language-model head, the whole prompt at once (Radford et al. 2019)",
        {**_GPT2, "seq": 128},
    ),
    tokens(
        "gpt2_decode",
        "transformer",
        "gpt2_decode",
        "GPT-2 small, one decoding step with a key-value cache in and out (Radford et al. 2019)",
        {**_GPT2, "seq": 1, "past": 127},
        _PAST,
        _PRESENT,
    ),
    tokens(
        "llama_small",
        "transformer",
        "llama",
        "A small Llama: RMSNorm, rotary positions, grouped queries, SiLU (Touvron et al. 2023, arXiv 2302.13971)",
        {**_LLAMA, "seq": 128},
    ),
    tokens(
        "llama_decode",
        "transformer",
        "llama_decode",
        "llama_small, one decoding step with a key-value cache in and out (Touvron et al. 2023, arXiv 2302.13971)",
        {**_LLAMA, "seq": 1, "past": 511},
        _GROUPED_PAST,
        _PRESENT,
    ),
    tokens(
        "t5_encoder",
        "transformer",
        "t5_encoder",
        "T5-small encoder: RMSNorm, relative position bias, unscaled attention (Raffel et al. 2019, arXiv 1910.10683)",
        {"layers": 6, "hidden": 512, "heads": 8, "head_dim": 64, "intermediate": 2048, "vocab": 32128, "seq": 128},
        (_MASK,),
        _HIDDEN,
    ),
    tokens(
        "minilm",
        "transformer",
        "bert",
        "MiniLM-L6-H384, the usual sentence embedding, its head left to the caller (Wang et al. 2020, arXiv 2002.10957)",
        {"layers": 6, "hidden": 384, "heads": 12, "intermediate": 1536, "vocab": 30522, "seq": 128},
        (_MASK, _SEGMENTS),
        _HIDDEN,
    ),
    tokens(
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
    image(
        "segformer_b0",
        "transformer",
        "deployed:segformer",
        "SegFormer-B0: attention with reduced keys, a head of linear layers (Xie et al. 2021, arXiv 2105.15203)",
        {"size": 256, "embed": 32, "classes": 150},
        ("mask",),
    ),
    image(
        "detr",
        "transformer",
        "deployed:detr",
        "DETR-R50: an encoder and a decoder over a ResNet's last map (Carion et al. 2020, arXiv 2005.12872)",
        {"size": 512, "layers": 6, "hidden": 256, "heads": 8, "queries": 100, "depth": 3, "classes": 91},
        ("logits", "boxes"),
    ),
    image(
        "resnet50_qdq",
        "cnn",
        "vision:resnet",
        "ResNet-50, weights and activations of 8 bits between QuantizeLinear and DequantizeLinear",
        RESNET50,
        reduced="qdq",
    ),
    replace(
        _BERT_BASE,
        name="bert_base_int8",
        doc="BERT-base, weights of 8 bits, activations quantised as they come",
        reduced="dynamic",
    ),
    replace(
        _WHISPER_ENCODER,
        name="whisper_encoder_f16",
        doc="Whisper tiny's encoder in float16, its input and output in float32",
        reduced="half",
    ),
    ZooModel(
        "lstm",
        "recurrent",
        "graphopt.zoo.sequence:lstm",
        (TensorSpec("input_ids", ("batch", "seq"), "int64", 0, "vocab"),),
        "A text classifier: two layers of LSTM over embedded tokens (Hochreiter and Schmidhuber 1997)",
        {"batch": 1, "seq": 128, "layers": 2, "embed": 256, "hidden": 512, "vocab": 10000, "classes": 10},
    ),
    ZooModel(
        "nasrnn",
        "search",
        "graphopt.zoo.classic:nasrnn",
        (TensorSpec("h0", ("batch", "hidden")), TensorSpec("x{steps}", ("batch", "hidden"))),
        "The NAS recurrent cell unrolled (Zoph and Le 2016, arXiv 1611.01578; the benchmark of TASO, SOSP 2019)",
        {"batch": 1, "hidden": 512, "steps": 8, "shared": 1},
        ("h",),
    ),
    image(
        "nasnet_a",
        "search",
        "classic:nasnet_a",
        "NASNet-A mobile, 4 @ 1056: searched cells of separable convolutions (Zoph et al. 2017, arXiv 1707.07012)",
        {"filters": 44, "cells": 4, "stem": 32},
    ),
    image(
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
    image(
        "tiny_regnet",
        "tiny",
        "vision:regnet",
        "regnet_y_400mf, smaller",
        {**REGNET_Y_400MF, "depth": 3, "w0": 16, "wa": 12.0, "wm": 2.0, "stem": 16, **_SMALL},
    ),
    image(
        "tiny_resnext",
        "tiny",
        "vision:resnet",
        "resnext50, smaller: one block in each of two stages",
        {"d1": 1, "d2": 1, "d3": 0, "d4": 0, "bottleneck": 1, "groups": 16, "width": 4, **_SMALL},
    ),
    image(
        "tiny_convnext",
        "tiny",
        "vision:convnext",
        "convnext_tiny, smaller: two stages",
        {"embed": 24, "d1": 1, "d2": 2, "d3": 0, "d4": 0, **_SMALL},
    ),
    image(
        "tiny_swin",
        "tiny",
        "vision:swin",
        "swin_t, smaller: two stages of a plain and a shifted block",
        {"embed": 24, "heads": 2, "d1": 2, "d2": 2, "d3": 0, "d4": 0, "patch": 4, "window": 4, **_SMALL},
    ),
    tokens(
        "tiny_bert",
        "tiny",
        "bert",
        "bert_base, smaller",
        {"layers": 2, "hidden": 64, "heads": 4, "intermediate": 256, "vocab": 500, "seq": 16},
        (_MASK, _SEGMENTS),
        _HIDDEN,
    ),
    tokens(
        "tiny_llama",
        "tiny",
        "llama",
        "llama_small, smaller",
        {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "intermediate": 176, "vocab": 500, "seq": 16},
    ),
    ZooModel(
        "tiny_diffusion",
        "tiny",
        "graphopt.zoo.diffusion:diffusion_unet",
        LATENTS,
        "diffusion_unet, smaller: two resolutions",
        {"batch": 1, "size": 16, "width": 16, "levels": 2, "blocks": 1, "head": 8, "seq": 7, "text": 24},
        ("noise",),
    ),
)
"""Every entry, in the order in which they are listed."""
