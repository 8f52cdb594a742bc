"""Write generated rules as a pack: names in the words of their operators, YAML files by group of these, and the evidence beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.files import write_texts
from graphopt.prover.evidence import evidence_text
from graphopt.rewrite.library import LOCK
from graphopt.rewrite.schema import Rule
from graphopt.synth.draft import one_rule
from graphopt.synth.generate import Kept
from graphopt.synth.graphs import Rewriter
from graphopt.synth.operators import BINARY, REDUCE, TABLE, UNARY
from graphopt.synth.pairs import Pair, Ref, Side

HEADER = "# Made by `graphopt rules generate`; what is edited here is lost when it runs again.\n"


def check_folder(folder: Path) -> None:
    """See that a folder holds nothing that writing a pack would destroy.

    Raises:
        UsageError: It is no folder, or rules lie there that were not generated.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    for file in sorted(folder.glob("*.y*ml")) if folder.exists() else ():
        if not file.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
            raise UsageError(f"{file} holds rules that were not generated", "choose another folder with --out")


def write_pack(folder: Path, kept: Sequence[Kept], library: Sequence[Rule] = ()) -> list[str]:
    """Write rules and their evidence, in place of what was generated there before.

    No file takes its place before all are complete, and a kill just then leaves rules that have no evidence and don't load: the run is
    not finished, and the next writes them again.

    Args:
        folder: Where to; made if it does not exist.
        kept: The rules.
        library: Hand-written rules: names are not taken twice, and a rule that follows from them says so.

    Returns:
        The ids.

    Raises:
        UsageError: See :func:`check_folder`.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rewriter = Rewriter(library)
    named = _named(kept, {rule.id for rule in library})
    files: dict[str, list[str]] = defaultdict(list)
    verdicts = []
    for id, rule in sorted(named.items()):
        known = [rewriter.derives(p) for p in rule.pairs]
        doc = formula(rule.pairs[0], rule.ops)
        if all(known):
            doc += f". The library has {' and '.join(dict.fromkeys(known[0]))}"
        text = rule.text.replace("id: ID", f"id: {id}", 1).replace("doc: DOC", f"doc: {doc}.", 1)
        files[family(rule.pairs[0])].append(text)
        verdicts.append(replace(rule.verdict, rule=id, hash=one_rule(text).hash))
    made = {}
    for group, texts in files.items():
        head = f"{HEADER}family: generated-{group}\ndoc: Laws of {group} that were found by enumeration.\nrules:\n"
        made[folder / f"{group}.yaml"] = head + "\n".join(texts)
    evidence = evidence_text(folder / LOCK, verdicts, set(named))
    write_texts({**made, folder / LOCK: evidence} if evidence else made)
    for stale in set(folder.glob("*.yaml")) - set(made):
        stale.unlink()
    return list(named)


def _named(kept: Sequence[Kept], taken: Collection[str]) -> Mapping[str, Kept]:
    """The rules by id. Those that read alike say more; what still reads alike is numbered."""
    able = [list(names(rule.pairs[0], rule.ops)) for rule in kept]
    plain = Counter(found[0] for found in able)
    made: dict[str, Kept] = {}
    for rule, found in zip(kept, able, strict=True):
        wanted = found[1:] if plain[found[0]] > 1 else found
        id = next((name for name in wanted if name not in made and name not in taken), "")
        number = 1
        while not id or id in made or id in taken:
            number += 1
            id = f"{found[-1]}-{number}"
        made[id] = rule
    return made


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
