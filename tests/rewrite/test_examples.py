"""Examples of rules: what the linter says of those that do not behave, and what lists and operator sets do in them."""

from __future__ import annotations

import pytest

from graphopt.onnxio.load import load
from graphopt.prover.evidence import check_rule
from graphopt.rewrite.library import lint_rule
from graphopt.rewrite.schema import Rule
from tests.onnxio.models import F, library, model, node, rewritten, rule


def made(match: list[str], replace: list[str], where: list[str], accept: str, reject: str = "[]") -> Rule:
    text = rule("one", match, replace, where=where) if where else rule("one", match, replace)
    return library(f"{text}\nexamples: {{accept: {accept}, reject: {reject}}}").rules[0]


PRODUCT = (["y = MatMul(x, w)"], ["y = MatMul(x, w)"])
TURN = (["y = Transpose<perm = [$a, $b]>(x)"], ["y = x"])


@pytest.mark.parametrize(
    ("parts", "where", "accept", "reject", "told"),
    [
        (PRODUCT, ["rank(w) == 2", "dim(w, 0) == 4"], "[{x: 3x4xf32, w: 4x4xf32}]", "[{x: Nx4xf32, w: 4x4xf32}, {x: 4x4xf32, w: 2x4x4xf32}]",
         ["reject 0: matches",
          "no reject fails on 'where' line 2 first, 'dim(w, 0) == 4': reject 0 matches; reject 1 fails on 'where' line 1 first, 'rank(w) == 2'"]),
        (PRODUCT, ["dim(x, 0) == 3"], "[{x: Nx4xf32, w: 4x4xf32}]", "[]",
         ["accept 0: fails on 'where' line 1 first, 'dim(x, 0) == 3' (undecided)",
          "no reject fails on 'where' line 1 first, 'dim(x, 0) == 3': there is none"]),
        (PRODUCT, ["dim(x, 0)"], "[{x: 3x4xf32, w: 4x4xf32}]", "[{x: Nx4xf32, w: 4x4xf32}]",
         ["accept 0: fails on 'where' line 1 first, 'dim(x, 0)' (it is 3, not True or False)"]),
        (PRODUCT, ["rank(x) ** 40 ** 9 > 1"], "[{x: 3x4xf32, w: 4x4xf32}]", "[{x: 3x4xf32, w: 4x4xf32}]",
         ["accept 0: fails on 'where' line 1 first, 'rank(x) ** 40 ** 9 > 1' (too large: a whole number of more than 256 bits)"]),
        (PRODUCT, ["is_const(w)"], "[{x: 4x4xf32, w: const 4x4xf32}]", "[{x: const 4x4xf32, w: const 4x4xf32}]",
         ["no reject fails on 'where' line 1 first, 'is_const(w)': reject 0 does not fit the pattern: all is constant, which the engine computes without a rule"]),
        ((["y = Elu<alpha = $a>(x)"], ["y = Mul(x, a)"]), [], "[{x: 4x4xf32, a: 2.0}]", "[]",
         ["accept 0: the engine refuses the rewrite: 'a' is a number, not a value: make it a constant with i64() or like()"]),
        (TURN, [], "[{x: 4x4xf32}]", "[]",
         ["accept 0: does not fit the pattern: 'y = Transpose<perm = [$a, $b]>(x)': attribute 'perm' is None, no list of 2"]),
        (TURN, [], "[{x: 4x4xf32, a: 0}]", "[]", ["accept 0: 'perm' of 'y = Transpose<perm = [$a, $b]>(x)' needs all its items"]),
        ((["t = Transpose<perm = [1, 0]>(w)", "z = Transpose<perm = [1, 0]>(t)", "y = MatMul(x, z)"], ["y = MatMul(x, w)"]), [],
         "[{x: 4x4xf32, w: const 4x4xf32}]", "[]",
         ["accept 0: does not fit the pattern: 't = Transpose<perm = [1, 0]>(w)' has no node of its own"]),
        ((["a = Relu(x)", "b = Relu(z)"], ["a = Abs(x)", "b = Abs(z)"]), [], "[]", "[]", ["'b = Relu(z)' shares no value with the lines before it"]),
        ((["a = MatMul(x, w)", "b = MatMul(x, w)"], ["a = MatMul(x, w)", "b = MatMul(x, w)"]), [], "[{x: 4x4xf32, w: 4x4xf32}]", "[]",
         ["accept 0: does not fit the pattern: a and b are one value, as they compute the same"]),
        (PRODUCT, [], "[{x: 'const 4x4xf32 = [1,', w: 4x4xf32}]", "[]", ["accept 0: x: '[1,' is neither a number nor a list of numbers"]),
        (PRODUCT, [], "[{x: 'const 3xf32 = [1, 2]', w: 3x4xf32}]", "[]", ["accept 0: x: const 3xf32 = [1, 2]: "]),
        (PRODUCT, [], "[{x: const 3xbf16, w: 3x4xbf16}]", "[]", ["accept 0: x: a constant needs a dtype that numpy has, not bf16"]),
        (PRODUCT, [], "[{x: 3x4xf32, w: 4x4xf32, opset: 99}]", "[]", ["accept 0: opset: '99' is no version of ONNX's operator set, 1 to"]),
    ],
)  # fmt: skip
def test_what_the_linter_says(
    parts: tuple[list[str], list[str]], where: list[str], accept: str, reject: str, told: list[str]
) -> None:
    found = lint_rule(made(*parts, where, accept, reject))
    assert all(any(text in message for message in found) for text in told), found


def test_an_attribute_that_can_not_be_told() -> None:
    found = lint_rule(made(["y = Concat<axis = value(x)>(x, x)"], ["y = x"], [], "[{x: Nx4xf32}]"))
    assert found == ["accept 0: the types do not tell what an attribute is"]


def pooled(pads: tuple[int, ...] | None):
    attributes = {} if pads is None else {"pads": pads}
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], **attributes)]
    return load(model(nodes, [("x", F, [1, 2, 5, 5])], [("y", F, None)])).graph


@pytest.mark.parametrize(
    ("pattern", "pads", "matches"),
    [
        ("[$a, $b, $c, $d]", (1, 0, 1, 0), 1),
        ("[$a, $b, $c, $d]", (1, 1, 1, 0), 0),  # fails on the condition
        ("[$a, $b, $c, $d]", None, 1),  # the default
        ("[$a, $b, $a, $b]", (1, 0, 1, 0), 1),
        ("[$a, $b, $a, $b]", (1, 0, 0, 1), 0),
        ("[$a, 0, 1, $b]", (1, 0, 1, 0), 1),
        ("[$a, 1, 1, $b]", (1, 0, 1, 0), 0),
        ("[$a, $b]", (1, 0, 1, 0), 0),
        ("[$a, $b, $c, $d, $e]", (1, 0, 1, 0), 0),
    ],
)
def test_items_of_a_list(pattern: str, pads: tuple[int, ...] | None, matches: int) -> None:
    where = {"where": ["a == c and b == d"]} if pattern == "[$a, $b, $c, $d]" else {}
    text = rule(
        "pads",
        [f"y = MaxPool<pads = {pattern}, *rest>(x)"],
        ["y = AveragePool<pads = [a, 0, a, 0], *rest>(x)"],
        **where,
    )
    assert rewritten(pooled(pads), library(text), 1)[1] == matches


def test_items_of_a_list_in_examples() -> None:
    one = made(
        ["y = MaxPool<kernel_shape = $k, pads = [$a, $b, $a, $b]>(x)"], ["y = MaxPool<kernel_shape = k, pads = [a, b, a, b]>(x)"], ["a == b"],
        "[{x: 1x2x5x5xf32, k: [2, 2], a: 1, b: 1}]", "[{x: 1x2x5x5xf32, k: [2, 2], a: 0, b: 1}]",
    )  # fmt: skip
    assert not lint_rule(one)


def test_a_string_with_a_comma() -> None:
    nodes = [node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik")]
    graph = load(model(nodes, [("a", F, [2, 3]), ("b", F, [3, 4])], [("y", F, None)])).graph
    to_product = rule("product", ['y = Einsum<equation = "ij,jk->ik">(a, b)'], ["y = MatMul(a, b)"])
    assert rewritten(graph, library(to_product))[1] == 1
    assert rewritten(graph, library(to_product.replace("->ik", "->ki")))[1] == 0


def test_a_condition_on_the_operator_set() -> None:
    parts = (["y = HardSwish(x)"], ["y = HardSwish(x)"], ["opset() >= 15"])
    assert not lint_rule(made(*parts, "[{x: 3xf32}, {x: 3xf32, opset: 15}]", "[{x: 3xf32, opset: 14}]"))
    assert "reject 0: matches" in lint_rule(made(*parts, "[{x: 3xf32}]", "[{x: 3xf32, opset: 16}]"))


def test_matrices_and_a_choice_of_operands_in_let() -> None:
    """Nested lists are constants, what is computed of them is, and an absent operand gets a stand-in."""
    text = rule(
        "turned-twice", ["y = Gemm(x, w, b?)"],
        ["v = MatMul(w, p)", "u = MatMul(v, p)", "m = MatMul(x, u)", "y = Add(m, bias)"], where=["dim(w, 1) == 2"],
        let={"swap": "[[0, 1], [1, 0]]", "p": "like(x, [[swap[i][j] for j in range(2)] for i in range(2)])",
             "bias": "b if present(b) else full(x, (2,), 0)"},
    )  # fmt: skip
    cases = "{accept: [{x: 3x4xf32, w: const 4x2xf32}, {x: 3x4xf32, w: 4x2xf32, b: 2xf32}], reject: [{x: 3x4xf32, w: 4x3xf32}]}"
    verdict = check_rule(library(f"{text}\nexamples: {cases}").rules[0], limit=20, tries=200)
    assert verdict.verdict == "proved", verdict.message
