"""The expression language: what it computes, what it does not know, what it refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from graphopt.errors import RuleError
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.rewrite.expr import Env, Ref, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.symbols import Symbol, TooLargeError, Unknown, equal
from tests.onnxio.models import F, model, node, weight

UNKNOWN = object()


def graph() -> Graph:
    """One value of every sort, and nodes that read them."""
    big = np.arange(70_000, dtype=np.float32)  # beyond what `value` reads, within what `min_of` does
    weights = [
        weight("half", np.float32(0.5)),
        weight("one", np.array([[1.0]], np.float32)),
        weight("pair", np.array([3, -1], np.int64)),
        weight("grid", np.array([[1, 2], [2, 1]], np.float32)),
        weight("big", big),
        weight("rows", np.arange(5, 20_005)[:, None]),  # beyond what `values` reads
        weight("empty", np.zeros((0, 3), np.float32)),
        weight("causal", np.array([[0, -1000, -np.inf], [-np.inf, 5, -4]], np.float32)),
        weight("yes", np.array(True)),
        weight("gain", np.float32(2)),
        weight("halves", np.array([1.5, -2.0], np.float16)),
        weight("doubles", np.array([1.5, -2.0])),
        helper.make_tensor("brain", TensorProto.BFLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("words", TensorProto.STRING, [1], [b"a"]),
    ]
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Add", ["r", "r"], ["once"]),
        node("Add", ["r", "half"], ["twice"]),
        node("Neg", ["grid"], ["lazy"]),
        node("Mystery", ["x"], ["blank"], domain="my.ops"),
        node("Mystery", ["free"], ["odd"], domain="my.ops"),  # of which no one tells a name of its last dimension
        node("Gelu", ["half"], ["uncomputable"], domain="com.microsoft"),
        node("Identity", ["uncomputable"], ["same"]),
        node("Sqrt", ["y"], ["root"]), node("Reciprocal", ["root"], ["over"]),
        node("Div", ["y", "root"], ["by_root"]), node("Mul", ["over", "y"], ["by_over"]),
        node("Mul", ["by_root", "gain"], ["gained"]), node("Mul", ["gained", "gain"], ["twice_gained"]),
        node("Div", ["root", "y"], ["upside_down"]), node("Sum", ["by_over", "twice_gained", "upside_down"], ["normal"]),
    ]  # fmt: skip
    proto = model(
        nodes, [("x", F, ["N", 3, None]), ("y", F, ["N", "M"]), ("s", F, [4, 5, 6]), ("free", F, None)],
        [("once", F, None), ("twice", F, None), ("r", F, None), ("lazy", F, None), ("same", F, None), ("normal", F, None), ("odd", F, ["N", 3, None])],
        weights, domains={"my.ops": 1, "com.microsoft": 1},
    )  # fmt: skip
    return load(proto).graph


GRAPH = graph()
NAMES: dict[str, Any] = {v.name: Ref(k) for k, v in GRAPH.values.items()} | {
    "absent": Ref(None),
    "i": 7,
    "f": 0.5,
    "t": (1, 2, 3),
    "nothing": None,
    "text": "same",
    "refs": (Ref(1), Ref(2)),
}


def evaluate(text: str) -> Any:
    """The result, or :data:`UNKNOWN`."""
    try:
        result = compile_expression(text, FUNCTIONS).run(Env(GRAPH, dict(NAMES), 8))
    except Unknown:
        return UNKNOWN
    return [result.dtype.name, result.tolist()] if isinstance(result, np.ndarray) else result


RESULTS: list[tuple[str, Any]] = [
    # Syntax.
    ("1 + 2 * 3 - 4 / 8", 6.5),
    ("7 // 2, 7 % 2, 2 ** 10, -i", (3, 1, 1024, -7)),
    ("1e-5 == 0.00001", True),
    ("[1, 2] == (1, 2)", True),
    ("'a' + \"b\" == 'ab'", True),
    ("1 < i < 8 and i != 8", True),
    ("1 < i < 5", False),
    ("i >= 7 and i <= 7 and not i > 7", True),
    ("2 in t and 4 not in t", True),
    ("nothing is None and i is not None", True),
    ("nothing == None and i != None", True),
    ("True or False", True),
    ("i if i > 5 else f", 7),
    ("t[0], t[-1], t[1:], t[::-1], t[:-1]", (1, 3, (2, 3), (3, 2, 1), (1, 2))),
    ("(0,) * 3 + t", (0, 0, 0, 1, 2, 3)),
    ("[a * 2 for a in t if a != 2]", (2, 6)),
    ("sum(a for a in t)", 6),
    ("[a + b for a, b in zip(t, t)]", (2, 4, 6)),
    ("[[a * b for b in t] for a in (1, 2)]", ((1, 2, 3), (2, 4, 6))),
    ("[i for i in t]", (1, 2, 3)),
    ("x == x and x != y", True),
    # Types.
    ("rank(x), rank(half), rank(grid)", (3, 0, 2)),
    ("dim(x, 1), dim(s, -1)", (3, 6)),
    ("shape(s)", (4, 5, 6)),
    ("shape(half)", ()),
    ("size(s), size(half), size(empty)", (120, 1, 0)),
    ("dtype(x), dtype(pair), dtype(yes), dtype(brain), dtype(words)", ("f32", "i64", "bool", "bf16", "str")),
    ("is_float(x), is_float(brain), is_float(halves), is_float(pair), is_float(yes)", (True, True, True, False, False)),
    ("is_static(s), is_static(x), is_static(half), is_static(free)", (True, False, True, False)),
    # Symbols.
    ("dim(x, 0) == dim(y, 0)", True),
    ("shape(x)[:1] == shape(y)[:1]", True),
    ("len(shape(x)), len(shape(y))", (3, 2)),
    ("shape(x) == shape(s)", False),  # 3 is not 5, whatever N is
    ("shape(x) == shape(y)", False),
    ("dim(x, 0) in (1, dim(y, 0))", True),
    ("is_int(dim(x, 1), 5), is_int(dim(x, 0)), is_int(dim(x, 2)), is_int(f), is_int(True)", (True, False, False, False, False)),
    # Constants.
    ("is_const(half), is_const(half, grid), is_const(lazy), is_const(x), is_const(half, x)", (True, True, True, False, False)),
    ("is_const(absent)", True),
    ("present(half), present(absent)", (True, False)),
    ("value(half), value(one), value(pair), value(yes)", (0.5, 1.0, (3, -1), True)),
    ("value(lazy)", (-1.0, -2.0, -2.0, -1.0)),
    ("values(half), values(empty)", ((0.5,), ())),
    ("min_of(pair), max_of(pair), max_of(big), min_of(lazy)", (-1, 3, 69_999, -2)),
    ("distinct(grid), distinct(lazy), distinct(half)", ((1, 2), (-2, -1), (0.5,))),
    ("rises_from(rows)", 5),
    ("margin(causal, 1, 1), margin(causal, 1, 2), margin(causal, 2, 2), margin(causal, 2, 1)", (1000.0, np.inf, 9.0, -np.inf)),
    ("content(pair)", (3, -1)),
    ("target(s, s), target(y, y)", ((4, 5, 6), (0, 0))),
    ("uses(r), uses(once), uses(half), uses(s)", (3, 1, 2, 0)),  # r: two nodes and an output
    ("is_output(r), is_output(half)", (True, False)),
    ("normalised(by_root), normalised(by_over), normalised(gained)", (True, True, True)),
    ("normalised(twice_gained), normalised(upside_down), normalised(s), normalised(absent)", (False,) * 4),
    ("opset(), block()", (17, 8)),
    ("samples()", UNKNOWN),  # an input has an open first dimension
    # Shapes and permutations.
    ("axis(-1, 4), axis(2, 4), axis(-4, 4)", (3, 2, 0)),
    ("axes((-1, 0, 1), 3)", (0, 1, 2)),
    ("broadcast((3, 1), (2, 1, 4)), broadcast((), t)", ((2, 3, 4), t_ := (1, 2, 3))),
    ("broadcast(shape(y), shape(y)) == shape(y)", True),
    ("broadcast((1, 1), shape(y)) == shape(y)", True),
    ("broadcasts_to((3, 1), (2, 3, 4)), broadcasts_to((), t), broadcasts_to((2, 3), (3,))", (True, True, False)),
    ("broadcasts_to((2,), (3,)), broadcasts_to((3,), (1,)), broadcasts_to(shape(y), shape(y))", (False, False, True)),
    ("permute('abc', (2, 0, 1)), invert((2, 0, 1))", (("c", "a", "b"), (1, 2, 0))),
    ("permute(permute(t, (2, 0, 1)), invert((2, 0, 1)))", (1, 2, 3)),
    ("close(1, 1.000001), close(1, 1.1), close(0, 0.000001), close(1, 1.1, 0.2), close(0.00001, 0)", (True, False, False, True, True)),
    # Python's own.
    ("len(t), min(t), max(t), sum(t), prod(t), prod(())", (3, 1, 3, 6, 6, 1)),
    ("min(2, i), max(2, i), abs(-3), abs(-f), int(2.9), sqrt(16)", (2, 7, 3, 0.5, 2, 4.0)),
    ("[cosine(k, 12) for k in (0, 2, 3, 4, 6, 8, 9, 10, 12, -3)]", (1.0, 0.5, 0.0, -0.5, -1.0, -0.5, 0.0, 0.5, 1.0, 0.0)),
    ("[close(cosine(k, 8), sqrt(0.5)) for k in (1, 3, 7)]", (True, False, True)),
    ("range(3), range(1, 3), range(4, 0, -2)", ((0, 1, 2), (1, 2), (4, 2))),
    ("sorted((3, 1, 2)), reversed(t)", ((1, 2, 3), (3, 2, 1))),
    ("reversed(shape(y))[1] == dim(y, 0)", True),
    ("all([a > 0 for a in t]), any([a > 2 for a in t]), all(()), any(())", (True, True, True, False)),
    ("find(t, 3), find(t, 7), find((), 1)", (2, 3, 0)),
    ("find(shape(x), dim(x, 0))", 0),
    ("zip(t, 'abc'), enumerate('ab')", (((1, "a"), (2, "b"), (3, "c")), ((0, "a"), (1, "b")))),
    # New constants.
    ("i64(3)", ["int64", 3]),
    ("i64((1, -1))", ["int64", [1, -1]]),
    ("i64([])", ["int64", []]),
    ("i64(shape(s)[1:] + (2,))", ["int64", [5, 6, 2]]),
    ("like(half, 2)", ["float32", 2.0]),
    ("like(halves, [1, 2])", ["float16", [1.0, 2.0]]),
    ("like(pair, ((1,), (2,)))", ["int64", [[1], [2]]]),
    ("eye(half, 2)", ["float32", [[1.0, 0.0], [0.0, 1.0]]]),
    ("full(pair, (1, 2), 7)", ["int64", [[7, 7]]]),
    ("full(half, (), 0.5)", ["float32", 0.5]),
    ("cosine(0, 5), cosine(1, 3), cosine(1, 4), cosine(-7, 14), cosine(5, 6)", (1.0, -0.5, 0.0, -1.0, 0.5)),
    ("close(cosine(1, 8), sqrt(0.5), 1e-15), close(cosine(4 * 3 - 40, 4 * 40), 0.45399049973954680, 1e-15)", (True, True)),
    ("lowest(half) < -3e38, lowest(halves)", (True, -65504.0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "result"), RESULTS, ids=[text for text, _ in RESULTS])
def test_result(text: str, result: Any) -> None:
    assert evaluate(text) == result


def test_every_function_is_tested() -> None:
    used = set().union(*(compile_expression(text, FUNCTIONS).calls for text, _ in RESULTS))
    assert used == set(FUNCTIONS)


@pytest.mark.parametrize(
    "text",
    [
        # A symbol or an unknown dimension is neither equal to a number nor different from it.
        "dim(x, 0) == 3", "dim(x, 0) != 3", "dim(x, 0) == dim(y, 1)", "dim(x, 0) != dim(y, 1)", "dim(odd, 2) == dim(odd, 2)",
        "dim(x, 0) > 0", "dim(x, 0) + 1", "-dim(x, 0)", "3 * dim(x, 0)", "shape(odd) == shape(odd)", "dim(x, 0) in (1, 2)",
        "dim(x, 0) not in (1, 2)", "max(shape(x))", "max(dim(x, 0), 1)", "prod(shape(x))", "sum(shape(y))", "sorted(shape(y))",
        "abs(dim(x, 0))", "i64(shape(y))", "like(half, dim(x, 0))", "full(half, shape(y), 0)", "size(x)",
        "find(shape(x), 3)", "find(shape(x), dim(y, 1))", "find((5, 6), dim(x, 0))",
        "broadcast(shape(y), (2, 3))", "broadcasts_to(shape(y), (2, 3))", "not dim(x, 0) == 3",
        "dim(x, 0) == 3 or dim(x, 0) != 3", "[a for a in shape(x) if a > 1]", "3 if dim(x, 0) == 3 else 4",
        # The rank is not known, the value is not given, there is no such element.
        "rank(free)", "shape(free)", "dim(free, 0)", "size(free)", "rank(blank)", "dtype(blank)", "is_float(blank)",
        "rank(absent)", "dtype(absent)", "value(absent)", "uses(absent)", "is_static(absent)", "min_of(absent)",
        "dim(s, 3)", "t[3]", "t['a']", "nothing[0]", "i[0]", "shape(s)[7]", "missing",
        # Not a constant, too large, or beyond computing.
        "value(x)", "values(x)", "value(big)", "distinct(big)", "min_of(x)", "distinct(s)", "min_of(empty)",
        "margin(x, 1, 1)", "margin(half, 1, 1)", "margin(rows, 1, 1)", "margin(causal, 3, 1)", "margin(causal, 0, 1)", "margin(causal, 1, 3)",
        "rises_from(pair)", "rises_from(grid)", "rises_from(empty)", "rises_from(s)", "rises_from(absent)", "values(rows)",
        "value(uncomputable)", "min_of(same)", "distinct(same)", "content(x)", "content(half)", "content(absent)", "content(i)",
        # More than one dimension left over, one next to one that is copied, or nothing known.
        "target(s, y)", "target(odd, odd)", "target(s, free)", "target(free, s)", "target(absent, s)", "target(s, i)",
        # A function is asked about something that it is not for.
        "rank(i)", "shape(t)", "dim(s, 0.5)", "is_const(i)", "value(f)", "uses(t)", "normalised(i)", "axis(4, 4)", "axis(-5, 4)", "axis(f, 2, 3)",
        "axes(3, 4)", "permute(t, (0, 1))", "permute(t, (0, 0, 1))", "invert((0, 2))", "invert(3)", "broadcast((2,), (3,))",
        "broadcast(2, 3)", "len(i)", "min()", "min(())", "max(1, 'a')", "sum(('a', 1))", "sqrt(-1)", "cosine(1, 0)", "cosine('a', 1)", "cosine(1, dim(x, 0))", "int('x')", "int(())",
        "range(f)", "range(1, 2, 0)", "sorted((1, 'a'))", "reversed(i)", "all(i)", "zip(t, (1, 2))", "enumerate(i)", "find(i, 1)",
        "i64(0.5)", "i64('a')", "i64(((1,), (1, 2)))", "like(words, 1)", "like(brain, 1)", "like(half, 'a')", "like(half, nothing)",
        "like(half, ((1,), (1, 2)))", "full(brain, (1,), 0)", "full(half, (300, 300), 0)", "full(half, (-1,), 0)",
        "lowest(pair)", "lowest(brain)", "eye(brain, 2)", "eye(half, f)", "eye(half, -1)", "eye(half, 1000000000)",
        # Operators.
        "1 / 0", "1 // 0", "1 % 0", "'a' - 1", "t + 1", "nothing + 1", "-t", "-nothing", "i < 'a'", "t < t", "nothing < 1",
        "not i", "not t", "i and True", "True and t", "i or False", "1 if i else 2", "0 ** -1",
        "1 in i", "1 in nothing", "1 not in f", "i[1:]", "nothing[:2]", "t[f:]", "t[::0]", "t['a':]",
        "[a for a in i]", "[a for a in nothing]", "[a for a, b in t]", "[a for a, b in ((1, 2, 3),)]", "[a for a in t if a]",
    ],
)  # fmt: skip
def test_unknown(text: str) -> None:
    expression = compile_expression(text, FUNCTIONS)
    assert evaluate(text) is UNKNOWN
    assert not expression.holds(Env(GRAPH, dict(NAMES)))
    assert not compile_expression(f"not ({text})", FUNCTIONS).holds(Env(GRAPH, dict(NAMES)))


@pytest.mark.parametrize(
    ("text", "holds"),
    [("True", True), ("1", False), ("i", False), ("rank(s) == 3", True), ("None", False), ("(1,)", False)],
)
def test_only_true_holds(text: str, holds: bool) -> None:
    assert compile_expression(text, FUNCTIONS).holds(Env(GRAPH, dict(NAMES))) is holds


def test_a_decided_half_is_enough() -> None:
    assert evaluate("dim(x, 0) == 3 or rank(x) == 3") is True
    assert evaluate("rank(x) == 3 or dim(x, 0) == 3") is True
    assert evaluate("rank(x) == 2 and dim(x, 0) == 3") is False
    assert evaluate("True if rank(x) == 3 else dim(x, 0) == 3") is True


def test_equality_of_symbols() -> None:
    assert equal(Symbol("N"), Symbol("N"))
    assert not equal((Symbol("N"), 1), (Symbol("N"), 2))
    for a, b in (
        (Symbol(None), Symbol(None)),
        (Symbol("N"), Symbol("M")),
        (Symbol("N"), 1),
        ((1, Symbol("N")), (1, 2)),
    ):
        with pytest.raises(Unknown):
            equal(a, b)
        with pytest.raises(Unknown):
            equal(b, a)


def test_names_and_calls() -> None:
    expression = compile_expression(
        "[a for a in shape(x) if a == n] == t and rank(x) > len(t)", FUNCTIONS, "f.yaml:3:9"
    )
    assert expression.names == {"x", "n", "t"}
    assert expression.calls == {"shape", "rank", "len"}
    assert expression.where == "f.yaml:3:9"
    assert compile_expression("[x for x in x]", FUNCTIONS).names == {"x"}


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("rank(x) = 2", 19, "", None),
        ("rank(x", 15, "", None),
        ("", 11, "", None),
        ("1 +", 14, "", None),
        ("1; 2", 12, "", None),
        ("ranc(x) == 2", 11, "unknown function 'ranc'", "did you mean 'rank'?"),
        ("list(t)", 11, "unknown function 'list'", "lists, tuples and ranges are the same here: leave it out"),
        ("1 == shap(x)[0]", 16, "unknown function 'shap'", "did you mean 'shape'?"),
        ("xyzzy(x)", 11, "unknown function 'xyzzy'", None),
        ("open(1)", 11, "unknown function 'open'", "did you mean 'opset'?"),
        ("evil(1)", 11, "unknown function 'evil'", None),
        ("__import__('os')", 11, "unknown function '__import__'", None),
        ("x.shape", 11, "Attribute is not part of the rule language", None),
        ("().__class__.__bases__", 11, "Attribute is not part", None),
        ("x.count(1)", 11, "only plain calls", None),
        ("[len][0](t)", 11, "only plain calls", None),
        ("len(obj=t)", 11, "only plain calls", None),
        ("len(*t)", 15, "Starred is not part", "lists are joined by '+'"),
        ("len(**t)", 11, "only plain calls", None),
        ("lambda: 1", 11, "Lambda is not part", None),
        ("(y := 1)", 12, "NamedExpr is not part", None),
        ("{1: 2}", 11, "Dict is not part", None),
        ("{1, 2}", 11, "Set is not part", None),
        ("{a for a in t}", 11, "SetComp is not part", None),
        ("{a: a for a in t}", 11, "DictComp is not part", None),
        ("f'{x}'", 11, "JoinedStr is not part", None),
        ("1 + b'a'", 15, "literal is not part", None),
        ("1j", 11, "literal is not part", None),
        ("...", 11, "literal is not part", None),
        ("~1", 11, "operator is not part", None),
        ("+1", 11, "operator is not part", None),
        ("1 << 2", 11, "operator is not part", None),
        ("1 | 2", 11, "operator is not part", None),
        ("t @ t", 11, "operator is not part", None),
        ("[a for b in t for a in b]", 11, "one 'for' at a time", None),
        ("[1 for t[0] in t]", 11, "loop variables must be names", None),
        ("[1 for (a, (b, c)) in t]", 11, "loop variables must be names", None),
        ("await x", 11, "Await is not part", None),
        ("(yield x)", 12, "Yield is not part", None),
    ],
)  # fmt: skip
def test_refused(text: str, column: int, message: str, hint: str | None) -> None:
    with pytest.raises(RuleError) as caught:
        compile_expression(text, FUNCTIONS, "rules/a.yaml:5:11")
    assert message in str(caught.value)
    assert caught.value.hint == hint
    where = str(caught.value).split(": ")[0]
    assert where.startswith("rules/a.yaml:5:")
    if message or text == "rank(x) = 2":
        assert where == f"rules/a.yaml:5:{column}"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("9**9**9**9", 14, "a whole number of more than 256 bits"),
        ("1 + 10 ** 400 * 1.0", 15, "a whole number of more than 256 bits"),
        ("dim(x, 0) < 2 ** 300", 23, "a whole number of more than 256 bits"),
        ("prod(range(1, 60000))", 11, "a whole number of more than 256 bits"),
        ("range(10**9)", 11, "a range of more than 65536 items"),
        ("[0 for i in range(-10**30, 10**30)]", 23, "a range of more than 65536 items"),
        ("[0] * 10**9", 11, "lists of more than 65536 items"),
        ("[[0] * 60000] * 60000", 11, "lists of more than 65536 items"),
        ("'a' * 10**9", 11, "lists of more than 65536 items"),
        ("1 + " * 5000 + "1", 11, "longer than 2000 characters"),
        ("1 + " * 60 + "1", 11, "more than 50 operators deep"),
    ],
)
def test_what_is_too_large_is_found_where_it_is_written(text: str, column: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        compile_expression(text, FUNCTIONS, "rules/a.yaml:5:11")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"rules/a.yaml:5:{column}: ")


@pytest.mark.parametrize(
    "text",
    [
        "i ** i ** i ** i", "range(i ** 9)", "[0] * i ** 9", "[0] * 60000 + [0] * 9999 * i", "'a' * i ** 9", "full(x, (i ** 9,), 0)",
        "like(half, [[0] * 60000] * i)", "i64([[0] * 60000] * i)", "[[k for k in range(60000)] for j in range(i * 9)]",
        "prod([i] * 100)", "int(1e300 * i)", "eye(half, i ** 4)",
    ],
)  # fmt: skip
def test_what_is_too_large_only_here_is_undecided_and_says_why(text: str) -> None:
    expression = compile_expression(text, FUNCTIONS)
    with pytest.raises(TooLargeError, match="more than"):
        expression.run(Env(GRAPH, dict(NAMES)))
    assert not expression.holds(Env(GRAPH, dict(NAMES)))


def test_formatting_is_no_remainder() -> None:
    assert evaluate("'%99d' % 5") is UNKNOWN
    assert evaluate("(-8) ** 0.5") is UNKNOWN


def test_the_caller_names_no_place() -> None:
    with pytest.raises(RuleError, match=r"^'x\.y': Attribute is not part of the rule language$"):
        compile_expression("x.y", FUNCTIONS)


def test_new_constants_have_the_dtype_of_a_value() -> None:
    assert evaluate("like(doubles, 0.1)") == ["float64", 0.1]
    assert evaluate("like(half, 0.1)") == ["float32", float(np.float32(0.1))]
    assert evaluate("like(yes, (True, False))") == ["bool", [True, False]]
    assert evaluate("full(doubles, (2,), 0.1)") == ["float64", [0.1, 0.1]]
    assert ml_dtypes.bfloat16  # what `brain` is made of; numpy has no such type, so nothing can be like it


def counted(text):
    """An expression, and how often it has called ``abs``."""
    calls = []

    def spied(env, number):
        calls.append(number)
        return abs(number)

    return compile_expression(text, {**FUNCTIONS, "abs": spied}), calls


@pytest.mark.parametrize("given", [(1, 1.0, True), ((1, (2,)), (1, (2.0,))), (0.0, -0.0)])
def test_a_loop_over_numbers_is_run_once_for_each_of_them(given):
    expression, calls = counted("[[m, abs(i)] for i in range(3)]")
    for _ in range(2):
        made = [expression.run(Env(GRAPH, {"m": m})) for m in given]
        assert [[repr(m) for m, _ in rows] for rows in made] == [[repr(m)] * 3 for m in given]
    assert len(calls) == 3 * len(given)


@pytest.mark.parametrize("text", ["[dim(x, 1) * abs(i) for i in range(2)]", "[m * abs(i) for i in range(2)]"])
def test_a_loop_over_the_graph_or_a_symbol_is_run_each_time(text):
    expression, calls = counted(text)
    names = {**NAMES, "m": (Symbol("N"),)}
    for _ in range(3):
        try:
            expression.run(Env(GRAPH, dict(names)))
        except Unknown:
            continue
    assert len(calls) >= 3


def test_of_many_numbers_not_all_results_of_a_loop_are_kept():
    expression, calls = counted("[m + abs(i) for i in range(1)]")
    for _ in range(2):
        for m in range(1000):
            assert expression.run(Env(GRAPH, {"m": m})) == (m,)
    assert len(calls) > 1000
