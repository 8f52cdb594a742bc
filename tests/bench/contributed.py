"""The runtime's own operators against the plain forms that its optimiser is given, three shapes each: which deserve a rule.

usage: python -m tests.bench.contributed [--seconds 1] [NAME ...]

One thread, processor time of the thread (wall time of a shared machine says little), runs of both forms in turn. Above 1 the operator is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

Feeds = dict[str, np.ndarray[Any, Any]]
_OWN = "com.microsoft"
_RNG = np.random.default_rng(0)


class Draft:
    """Nodes of a model in the making; operands are names of values, or constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, op: str, *operands: Any, domain: str = "", results: int = 1, **attributes: Any) -> str:
        names = [x if isinstance(x, str) else self._constant(x) for x in operands]
        out = [f"v{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(op, names, out, domain=domain, **attributes))
        return out[0]

    def _constant(self, x: Any) -> str:
        array = np.array(x, np.float32 if isinstance(x, float) else np.int64) if isinstance(x, float | list) else x
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def model(self, result: str, feeds: Feeds, opset: int) -> bytes:
        """The serialised model."""
        inputs = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in feeds.items()]
        graph = helper.make_graph(
            self.nodes, "g", inputs, [helper.make_tensor_value_info(result, 1, None)], self.constants
        )
        sets = [helper.make_opsetid("", opset), helper.make_opsetid(_OWN, 1)]
        return bytes(helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString())


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Random numbers."""
    return _RNG.standard_normal(shape).astype(np.float32)


def _heads(d: Draft, x: str, tokens: int, heads: int, width: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
    return d("Transpose", d("Reshape", x, [1, tokens, heads, width]), perm=perm)


def _attention(own: Callable[[Draft, int, int, int], str], opset: int = 17, mask: bool = False) -> Iterator[Any]:
    for s, d, h in ((128, 384, 12), (512, 768, 12), (1500, 384, 6)):
        feeds = {x: normal(1, s, d) for x in "qkv"}
        if mask:
            feeds["m"] = np.where(_RNG.random((1, 1, s, s)) < 0.2, np.float32(-1e4), np.float32(0))
        p, w = Draft(), d // h
        scores = p("MatMul", _heads(p, "q", s, h, w), _heads(p, "k", s, h, w, (0, 2, 3, 1)))
        scores = p("Mul", scores, float(w**-0.5))
        scores = p("Add", scores, "m") if mask else scores
        made = p("MatMul", p("Softmax", scores, axis=-1), _heads(p, "v", s, h, w))
        plain = p("Reshape", p("Transpose", made, perm=(0, 2, 1, 3)), [1, s, d])
        o = Draft()
        yield (
            f"{s} tokens, {d} wide, {h} heads",
            feeds,
            p.model(plain, feeds, 17),
            o.model(own(o, s, d, h), feeds, opset),
        )


def _projected() -> Iterator[Any]:
    """Projections as one product, cut in three for MultiHeadAttention, against the operator that takes them along."""
    for s, d, h in ((16, 512, 8), (128, 384, 12), (197, 768, 12), (512, 768, 12), (1500, 384, 6)):
        feeds, w, b = {"x": normal(1, s, d)}, 0.05 * normal(d, 3 * d), normal(3 * d)
        p, o = Draft(), Draft()
        p("Split", p("Add", p("MatMul", "x", w), b), [d, d, d], axis=-1, results=3)
        plain = p("MultiHeadAttention", *(f"v2_{i}" for i in range(3)), domain=_OWN, num_heads=h)
        own = o("Attention", "x", w, b, domain=_OWN, num_heads=h)
        yield f"{s} tokens, {d} wide, {h} heads", feeds, p.model(plain, feeds, 17), o.model(own, feeds, 17)


def _grouped(d: Draft, s: int, h: int) -> str:
    last, whole = np.array([s - 1], np.int32), np.array(s, np.int32)
    heads = {"num_heads": h, "kv_num_heads": h, "causal": 0}
    return d("GroupQueryAttention", "q", "k", "v", "", "", last, whole, domain=_OWN, results=3, **heads)


def _looking_back(blocks: int) -> Iterator[Any]:
    """Attention with a causal mask, whole, against blocks of queries with the keys that they see."""
    for s, d, h in ((64, 768, 12), (128, 768, 12), (256, 768, 12), (512, 768, 12), (1024, 768, 12), (2048, 768, 12)):
        feeds = {x: normal(1, s, d) for x in "qkv"}
        mask = np.where(np.tri(s), 0, -np.inf).astype(np.float32)[None, None]
        p, o = Draft(), Draft()
        plain = p("MultiHeadAttention", "q", "k", "v", "", "", mask, domain=_OWN, num_heads=h)
        o("Split", "q", [s // blocks] * blocks, axis=1, results=blocks)
        made = []
        for i in range(blocks):
            start, end = i * s // blocks, (i + 1) * s // blocks
            k, v = (o("Slice", x, [0], [end], [1]) for x in "kv")
            seen = np.ascontiguousarray(mask[:, :, start:end, :end])
            made.append(o("MultiHeadAttention", f"v0_{i}", k, v, "", "", seen, domain=_OWN, num_heads=h))
        yield (
            f"{s} tokens, {d} wide, {h} heads",
            feeds,
            p.model(plain, feeds, 17),
            o.model(o("Concat", *made, axis=1), feeds, 17),
        )


def _rows(plain: Callable[[Draft, int], str], own: Callable[[Draft, int], str], two: bool = False) -> Iterator[Any]:
    for tokens, width in ((1, 3072), (128, 3072), (1500, 1536)):
        feeds = {"x": normal(1, tokens, width), **({"z": normal(1, tokens, width)} if two else {})}
        p, o = Draft(), Draft()
        yield f"{tokens} x {width}", feeds, p.model(plain(p, width), feeds, 17), o.model(own(o, width), feeds, 17)


def _gelu(d: Draft, x: str) -> str:
    erf = d("Erf", d("Div", x, float(2**0.5)))
    return d("Mul", d("Mul", x, d("Add", erf, 1.0)), 0.5)


def _tanh_gelu(d: Draft, x: str) -> str:
    cube = d("Mul", d("Pow", x, 3.0), 0.044715)
    return d("Mul", d("Mul", x, 0.5), d("Add", d("Tanh", d("Mul", d("Add", x, cube), 0.7978845608)), 1.0))


def _rms(d: Draft, x: str, width: int) -> str:
    mean = d("ReduceMean", d("Pow", x, 2.0), axes=[-1])
    return d("Mul", d("Div", x, d("Sqrt", d("Add", mean, 1e-6))), normal(width))


def _convolutions() -> Iterator[Any]:
    for channels, size in ((32, 56), (64, 56), (256, 14)):
        feeds, w, b = {"x": normal(1, channels, size, size)}, normal(channels, channels, 3, 3), normal(channels)
        p, o = Draft(), Draft()
        plain = p("Relu", p("Conv", "x", w, b, pads=[1, 1, 1, 1]))
        own = o("FusedConv", "x", w, b, domain=_OWN, activation="Relu", pads=[1, 1, 1, 1])
        yield f"{channels} channels, {size}x{size}", feeds, p.model(plain, feeds, 17), o.model(own, feeds, 17)


def cases() -> dict[str, Iterator[Any]]:
    """By operator: shapes, inputs, the plain model and the one with the operator."""
    layer: dict[str, Any] = {"domain": _OWN, "epsilon": 1e-6}
    return {
        "MultiHeadAttention": _attention(lambda d, s, w, h: d("MultiHeadAttention", "q", "k", "v", domain=_OWN, num_heads=h)),
        "MultiHeadAttention, mask": _attention(
            lambda d, s, w, h: d("MultiHeadAttention", "q", "k", "v", "", "", "m", domain=_OWN, num_heads=h), mask=True
        ),
        "GroupQueryAttention": _attention(lambda d, s, w, h: _grouped(d, s, h)),
        "Attention (23)": _attention(lambda d, s, w, h: d("Attention", "q", "k", "v", q_num_heads=h, kv_num_heads=h), 23),
        "Attention (23), mask": _attention(
            lambda d, s, w, h: d("Attention", "q", "k", "v", "m", q_num_heads=h, kv_num_heads=h), 23, mask=True
        ),
        "Attention with its projections": _projected(),
        "causal, two blocks": _looking_back(2),
        "causal, four blocks": _looking_back(4),
        "causal, eight blocks": _looking_back(8),
        "BiasGelu": _rows(lambda d, n: _gelu(d, d("Add", "x", normal(n))), lambda d, n: d("BiasGelu", "x", normal(n), domain=_OWN)),
        "FastGelu": _rows(lambda d, n: _tanh_gelu(d, "x"), lambda d, n: d("FastGelu", "x", domain=_OWN)),
        "QuickGelu": _rows(
            lambda d, n: d("Mul", "x", d("Sigmoid", d("Mul", "x", 1.702))), lambda d, n: d("QuickGelu", "x", domain=_OWN, alpha=1.702)
        ),
        "SkipLayerNormalization": _rows(
            lambda d, n: d("LayerNormalization", d("Sum", "x", "z"), normal(n), normal(n), epsilon=1e-6),
            lambda d, n: d("SkipLayerNormalization", "x", "z", normal(n), normal(n), **layer), two=True,
        ),
        "SkipSimplifiedLayerNormalization": _rows(
            lambda d, n: _rms(d, d("Add", "x", "z"), n),
            lambda d, n: d("SkipSimplifiedLayerNormalization", "x", "z", normal(n), **layer), two=True,
        ),
        "FusedConv": _convolutions(),
    }  # fmt: skip


def ratio(plain: bytes, own: bytes, feeds: Feeds, seconds: float) -> tuple[float, float]:
    """Milliseconds of the plain form, and the median ratio to it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [ort.InferenceSession(m, options, providers=["CPUExecutionProvider"]) for m in (plain, own)]
    spent: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(spent) < 9:
        pair = []
        for session in sessions:
            began = time.thread_time()
            session.run(None, feeds)
            pair.append(time.thread_time() - began)
        spent.append((pair[0], pair[1]))
    times = np.array(spent[2:])
    return 1e3 * float(np.median(times[:, 0])), float(np.median(times[:, 0] / times[:, 1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    ort.set_default_logger_severity(3)
    print("| operator | shape | plain form, ms | ratio |\n|---|---|---|---|")
    for name, shapes in cases().items():
        if given.names and not any(n in name for n in given.names):
            continue
        for shape, feeds, plain, own in shapes:
            ms, times = ratio(plain, own, feeds, given.seconds)
            print(f"| {name} | {shape} | {ms:.3f} | {times:.2f} |", flush=True)


if __name__ == "__main__":
    main()
