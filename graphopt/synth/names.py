"""Names and descriptions of generated rules: what they do, in the words of their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphopt.synth.operators import BINARY, REDUCE, TABLE, UNARY
from graphopt.synth.pairs import Pair, Ref, Side

_SHORT = {
    "Reciprocal": "reciprocal", "LayerNormalization": "layer-norm", "BatchNormalization": "batch-norm", "ReduceSum": "sum",
    "ReduceMean": "mean", "ReduceMax": "maximum", "AveragePool": "average-pool", "MaxPool": "max-pool", "MatMul": "matmul",
    "GlobalAveragePool": "global-pool", "Sub": "difference", "Add": "addition", "Mul": "product", "Div": "quotient", "Pow": "square",
    "Neg": "negative", "Exp": "exponential", "Sqrt": "root",
}  # fmt: skip
_FAMILIES = (
    ("conv", {"Conv"}),
    ("gemm", {"Gemm"}),
    ("matmul", {"MatMul"}),
    ("layernorm", {"LayerNormalization"}),
    ("batchnorm", {"BatchNormalization"}),
    ("softmax", {"Softmax"}),
    ("pooling", {"MaxPool", "AveragePool", "GlobalAveragePool"}),
    ("reduction", {"ReduceSum", "ReduceMean", "ReduceMax"}),
    ("concat", {"Concat", "Split", "Slice"}),
    ("layout", {"Transpose", "Reshape", "Squeeze", "Unsqueeze"}),
    ("functions", {"Relu", "Sigmoid", "Tanh", "Exp", "Sqrt"}),
)
_PLACES = ("left", "right", "third", "fourth", "fifth")
_ANY = (("function", UNARY), ("operation", BINARY), ("reduction", REDUCE), ("pool", ("MaxPool", "AveragePool")))


def family(pair: Pair) -> str:
    """The group of a rule: its heaviest operator."""
    return next((name for name, ops in _FAMILIES if pair.ops & ops), "arithmetic")


def names(pair: Pair, ops: Sequence[str] = ()) -> Iterator[str]:
    """What becomes what, ``concat-of-relus-is-relu-of-concat``, each name saying more than the one before.

    Args:
        pair: An instance.
        ops: Operators, one of them the instance's, that the rule is for.
    """
    words = dict.fromkeys(ops, next((word for word, alike in _ANY if set(ops) <= set(alike)), ""))
    are = "is" if len(pair.before.roots) == 1 else "are"
    for placed in (False, True):
        text = f"{_phrase(pair.before, words, placed)}-{are}-{_phrase(pair.after, words, placed)}".lower()
        yield text
    reads = [(n, o) for n, node in enumerate(pair.before.nodes) for o in node.operands if isinstance(o, str)]
    if len(set(reads)) < len(reads):
        yield f"{text}-with-equal-operands"
    elif len({o for _, o in reads}) < len(reads):
        yield f"{text}-with-a-shared-operand"


def _phrase(side: Side, words: Mapping[str, str], placed: bool) -> str:
    roots = [_words(side, r, words, placed) for r in side.roots]
    if len(roots) == 1:
        return roots[0]
    if (
        all(isinstance(r, tuple) and side.nodes[r[0]].op == "Split" for r in side.roots)
        and len({r[0] for r in side.roots if isinstance(r, tuple)}) == 1
    ):
        return roots[0].replace("first-of-", "", 1)
    return f"two-{_plural(roots[0])}" if roots[0] == roots[1] else "-and-".join(roots)


def _words(side: Side, ref: Ref, words: Mapping[str, str], placed: bool) -> str:
    """An expression in words; with the places of operands where these matter, if they are asked for."""
    if not isinstance(ref, tuple):
        return "operand" if isinstance(ref, str) else ""
    node = side.nodes[ref[0]]
    word = words.get(node.op) or _SHORT.get(node.op, node.op.lower())
    if node.op == "Split":
        word = f"{('first', 'second')[ref[1]]}-of-split"
    place = placed and len(node.operands) > 1 and not TABLE[node.op].commutative
    inner = [
        (f"{_PLACES[k]}-" if place else "") + _words(side, r, words, placed)
        for k, r in enumerate(node.operands)
        if isinstance(r, tuple)
    ]
    numbers = [f"{r:g}".replace("-", "minus-").replace(".", "-") for r in node.operands if isinstance(r, float)]
    parts = [_plural(text) if inner.count(text) > 1 else text for text in dict.fromkeys(inner)]
    return f"{word}-of-{'-and-'.join([*parts, *numbers])}" if parts or numbers else word


def _plural(text: str) -> str:
    head, of, rest = text.partition("-of-")
    return (head if head.endswith("s") or head.endswith("x") else head + "s") + of + rest


def formula(pair: Pair, ops: Sequence[str] = ()) -> str:
    """The law as an equation, attributes left out."""
    law = f"{_formula(pair.before, ops)} = {_formula(pair.after, ops)}"
    return f"{law} for op in {', '.join(ops)}" if ops else law


def _formula(side: Side, ops: Sequence[str]) -> str:
    def of(ref: Ref) -> str:
        if isinstance(ref, str):
            return ref
        if isinstance(ref, float):
            return f"{ref:g}"
        node = side.nodes[ref[0]]
        numbers = (f"{p.value:g}" for p in node.form if p.kind == "number")
        text = f"{'op' if node.op in ops else node.op}({', '.join([*map(of, node.operands), *numbers])})"
        return f"{text}[{ref[1]}]" if node.op == "Split" else text

    return ", ".join(of(r) for r in side.roots)
