"""Decoders of transformers with a cache of keys and values, as they are deployed: one step, past in, present out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export

_SMALL = {
    "vocab_size": 211, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_GPT = {
    "vocab_size": 211,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
DECODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gpt2": ("GPT2", _GPT),
    "gptj": ("GPTJ", {**_GPT, "rotary_dim": 8}),
    "gpt_neo": ("GPTNeo", {**{k: v for k, v in _SMALL.items() if k != "num_hidden_layers"}, "num_heads": 4, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16}),
    "gpt_neox": ("GPTNeoX", _SMALL),
    "gpt_bigcode": ("GPTBigCode", _GPT),
    "codegen": ("CodeGen", {**_GPT, "rotary_dim": 8}),
    "opt": ("OPT", {**_SMALL, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "bloom": ("Bloom", {"vocab_size": 211, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "falcon": ("Falcon", {**_SMALL, "alibi": False, "new_decoder_architecture": False, "multi_query": True}),
    "mpt": ("Mpt", {"vocab_size": 211, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 128}),
    "llama": ("Llama", _GROUPED),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": 16}),
    "mixtral": ("Mixtral", {**_GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 16}),
    "phi": ("Phi", {**_SMALL, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", _GROUPED),
    "gemma": ("Gemma", {**_GROUPED, "head_dim": 16}),
    "gemma2": ("Gemma2", {**_GROUPED, "head_dim": 16, "sliding_window": 16}),
    "gemma3": ("Gemma3", {**_GROUPED, "head_dim": 16, "sliding_window": 16}),
    "stablelm": ("StableLm", {**_SMALL, "num_key_value_heads": 4}),
    "olmo": ("Olmo", {**_SMALL, "num_key_value_heads": 4}),
    "olmo2": ("Olmo2", {**_SMALL, "num_key_value_heads": 4}),
    "cohere": ("Cohere", _GROUPED),
    "granite": ("Granite", _GROUPED),
    "starcoder2": ("Starcoder2", _GROUPED),
    "smollm3": ("SmolLM3", _GROUPED),
    "biogpt": ("BioGpt", _SMALL),
}  # fmt: skip
SEQ2SEQ: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "t5": ("T5", {"vocab_size": 211, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}),
    "bart": ("Bart", {}),
    "mbart": ("MBart", {}),
    "marian": ("Marian", {"decoder_start_token_id": 0}),
    "pegasus": ("Pegasus", {}),
    "whisper": ("Whisper", {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": 128}),
}  # fmt: skip
_BART = {
    "vocab_size": 211, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": 128,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip
BATCH, PAST, STEP, SOURCE = 2, 5, 3, 11


def _decoder(kind: str, dynamo: bool, style: str, path: Path) -> Mapping[str, Any]:
    """A model of language by itself. Styles differ in the inputs and in the names of the dimensions."""
    import torch
    import transformers

    name, settings = DECODERS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}{'Text' if kind == 'gemma3' else ''}Config")(
        **settings, attn_implementation="eager" if style == "eager" else None
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    positions = style != "plain" and "position_ids" in _arguments(model)

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def run(self, ids: Any, mask: Any, position_ids: Any, past: tuple[Any, ...]) -> Any:
            cache = transformers.DynamicCache(ddp_cache_data=tuple(zip(past[::2], past[1::2], strict=True)))
            more = {"position_ids": position_ids} if position_ids is not None else {}
            out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **more)
            return (out.logits, *(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)))

    class WithPositions(Step):
        def forward(self, ids: Any, mask: Any, position_ids: Any, *past: Any) -> Any:
            return self.run(ids, mask, position_ids, past)

    class Without(Step):
        def forward(self, ids: Any, mask: Any, *past: Any) -> Any:
            return self.run(ids, mask, None, past)

    with torch.no_grad():
        ids = torch.randint(3, 211, (BATCH, PAST + STEP))
        layers = model(input_ids=ids[:, :PAST], use_cache=True).past_key_values.layers
    past = {
        f"past_key_values.{i}.{what}": getattr(layer, what + "s")
        for i, layer in enumerate(layers)
        for what in ("key", "value")
    }
    inputs = {"input_ids": ids[:, PAST:], "attention_mask": torch.ones(BATCH, PAST + STEP, dtype=torch.int64)}
    if positions:
        inputs["position_ids"] = torch.arange(PAST, PAST + STEP).expand(BATCH, STEP).contiguous()
    inputs |= past
    batch, total = (
        ("batch_size", "total_sequence_length")
        if style == "genai"
        else ("batch_size", "past_sequence_length + sequence_length")
    )
    axes = {
        "input_ids": {0: batch, 1: "sequence_length"},
        "attention_mask": {0: batch, 1: total},
        "position_ids": {0: batch, 1: "sequence_length"},
    }
    axes |= {name: {0: batch, 2: "past_sequence_length"} for name in past}
    outputs = ["logits", *(name.replace("past_key_values", "present") for name in past)]
    shown = {
        **{k: v for k, v in axes.items() if k in inputs},
        "logits": {0: batch, 1: "sequence_length"},
        **{n: {0: batch, 2: total} for n in outputs[1:]},
    }
    if style == "unnamed":  # neither inputs nor dimensions say what they are
        names = {name: f"x{i}" for i, name in enumerate(inputs)}
        outputs = [f"y{i}" for i in range(len(outputs))]
        inputs = {names[name]: tensor for name, tensor in inputs.items()}
        shown = {names[n]: {axis: f"{names[n]}_{axis}" for axis in a} for n, a in shown.items() if n in names}
    return export((WithPositions if positions else Without)(), inputs, outputs, path, dynamo=dynamo, axes=shown)


def _arguments(model: Any) -> set[str]:
    import inspect

    return set(inspect.signature(model.forward).parameters)


def _seq2seq(kind: str, dynamo: bool, path: Path) -> Mapping[str, Any]:
    """The decoder of a model with an encoder: its own past grows, that of what the encoder said stays."""
    import torch
    import transformers

    name, settings = SEQ2SEQ[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(settings if kind == "t5" else {**_BART, **settings}))
    auto = transformers.AutoModelForSpeechSeq2Seq if kind == "whisper" else transformers.AutoModelForSeq2SeqLM
    model = auto.from_config(config)
    speech = kind == "whisper"

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def run(self, ids: Any, states: Any, mask: Any, past: tuple[Any, ...]) -> Any:
            own = transformers.DynamicCache(ddp_cache_data=tuple(zip(past[::4], past[1::4], strict=True)))
            cross = transformers.DynamicCache(ddp_cache_data=tuple(zip(past[2::4], past[3::4], strict=True)))
            cache = transformers.EncoderDecoderCache(own, cross)
            for layer in range(len(past) // 4):
                cache.is_updated[layer] = True
            said = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=states)
            more = {} if mask is None else {"attention_mask": mask}
            out = self.model(encoder_outputs=said, decoder_input_ids=ids, past_key_values=cache, use_cache=True, **more)
            found = out.past_key_values.self_attention_cache.layers
            return (out.logits, *(t for layer in found for t in (layer.keys, layer.values)))

    class Text(Step):
        def forward(self, ids: Any, states: Any, mask: Any, *past: Any) -> Any:
            return self.run(ids, states, mask, past)

    class Speech(Step):
        def forward(self, ids: Any, states: Any, *past: Any) -> Any:
            return self.run(ids, states, None, past)

    ids = torch.randint(3, 211, (BATCH, PAST + 1))
    if speech:
        source: dict[str, Any] = {"input_features": torch.randn(BATCH, 8, 100)}
    else:
        source = {
            "input_ids": torch.randint(3, 211, (BATCH, SOURCE)),
            "attention_mask": torch.ones(BATCH, SOURCE, dtype=torch.int64),
        }
    with torch.no_grad():
        out = model(**source, decoder_input_ids=ids[:, :PAST], use_cache=True)
    past = {
        f"past_key_values.{i}.{side}.{what}": getattr(cache.layers[i], what + "s")
        for i in range(2)
        for side, cache in (
            ("decoder", out.past_key_values.self_attention_cache),
            ("encoder", out.past_key_values.cross_attention_cache),
        )
        for what in ("key", "value")
    }
    inputs = {"input_ids": ids[:, PAST:], "encoder_hidden_states": out.encoder_last_hidden_state}
    if not speech:
        inputs["encoder_attention_mask"] = source["attention_mask"]
    inputs |= past
    batch = "batch_size"
    axes = {
        name: {0: batch, 1: "encoder_sequence_length"}
        for name in ("encoder_hidden_states", "encoder_attention_mask")
        if name in inputs
    }
    axes |= {"input_ids": {0: batch}}
    axes |= {
        n: {0: batch, 2: "encoder_sequence_length_out" if ".encoder." in n else "past_decoder_sequence_length"}
        for n in past
    }
    outputs = ["logits", *(n.replace("past_key_values", "present") for n in past if ".decoder." in n)]
    shown = {
        **axes,
        "logits": {0: batch},
        **{n: {0: batch, 2: "past_decoder_sequence_length + 1"} for n in outputs[1:]},
    }
    return export((Speech if speech else Text)(), inputs, outputs, path, dynamo=dynamo, axes=shown)


RECIPES = {
    **{f"{kind}-{how}": partial(_decoder, kind, how == "dynamo", "optimum") for kind in DECODERS for how in ("dynamo", "legacy")},
    **{f"{kind}-{style}-{how}": partial(_decoder, kind, how == "dynamo", style) for kind in ("gpt2", "llama", "opt", "bloom", "falcon") for style in ("genai", "plain", "eager", "unnamed") for how in ("dynamo", "legacy")},
    **{f"{kind}-step-{how}": partial(_seq2seq, kind, how == "dynamo") for kind in SEQ2SEQ for how in ("dynamo", "legacy")},
}  # fmt: skip
