"""Proofs for all sizes: right laws pass, wrong ones never do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("z3")

from graphopt.config import rules_dir
from graphopt.prover.generic import prove_generic
from graphopt.rewrite.schema import Rule, parse_rules, read_rules
from tests.prover.mutants import mutants
from tests.prover.other_sizes import counterexamples

WRONG = Path(__file__).parent / "wrong_rules.yaml"
# Of a few families: mutants whose proof takes long say nothing more.
FAMILIES = ("identity", "reduce")


def law(match: str, replace: str, case: str, claim: str = "exact", where: str = "", let: str = "") -> Rule:
    """A rule of a few lines, separated by semicolons."""
    text = f"""
family: laws
doc: laws
rules:
  - id: law
    doc: a law
    equal: {claim}
    match: [{", ".join(repr(m.strip()) for m in match.split(";"))}]
    where: [{repr(where) if where else ""}]
    let: {{{let}}}
    replace: [{", ".join(repr(m.strip()) for m in replace.split(";"))}]
    examples: {{accept: [{case}]}}
"""
    (rule,) = parse_rules(text, "law.yaml")
    return rule


@pytest.mark.parametrize(
    ("match", "replace", "case", "claim"),
    [
        ("y = Transpose<perm = [1, 0]>(x)", "t = Transpose<perm = [1, 0]>(x); u = Transpose<perm = [1, 0]>(t); y = Transpose<perm = [1, 0]>(u)", "{x: 2x3xf32}", "exact"),
        ("c = Concat<axis = 1>(a, b); y = Relu(c)", "r = Relu(a); s = Relu(b); y = Concat<axis = 1>(r, s)", "{a: 2x3xf32, b: 2x4xf32}", "exact"),
        ("m = MatMul(a, b); y = MatMul(m, c)", "n = MatMul(b, c); y = MatMul(a, n)", "{a: 2x3xf32, b: 3x4xf32, c: 4x5xf32}", "real"),
        ("s = Add(a, b); y = Mul(s, c)", "p = Mul(a, c); q = Mul(b, c); y = Add(p, q)", "{a: 2x3xf32, b: 3xf32, c: 2x1xf32}", "real"),
        ("m = MatMul(a, b); y = Transpose<perm = [1, 0]>(m)", "s = Transpose<perm = [1, 0]>(a); t = Transpose<perm = [1, 0]>(b); y = MatMul(t, s)", "{a: 2x3xf32, b: 3x4xf32}", "exact"),
        ("e = Exp(x); f = Exp(y); z = Mul(e, f)", "s = Add(x, y); z = Exp(s)", "{x: 2x3xf32, y: 3xf32}", "real"),
        # A number of a Where has the type of what is chosen, not that of the condition.
        ("w = Where(c, x, 2); y = Mul(w, w)", "n = Not(c); w = Where(n, 2, x); y = Mul(w, w)", "{c: 2x3xbool, x: 3xf32}", "real"),
    ],
)  # fmt: skip
def test_right_laws_are_proved_for_all_sizes(match: str, replace: str, case: str, claim: str) -> None:
    proof = prove_generic(law(match, replace, case, claim))
    assert proof.complete, proof.why
    assert proof.cases and len(proof.proved) == 1


@pytest.mark.parametrize(
    ("match", "replace", "case", "claim"),
    [
        # Off by one, and axes or operands in the wrong place.
        ("y = Transpose<perm = [0, 2, 1]>(x)", "y = Transpose<perm = [1, 0, 2]>(x)", "{x: 3x3x3xf32}", "exact"),
        ("c = Concat<axis = 0>(a, b); y = Relu(c)", "r = Relu(a); s = Relu(b); y = Concat<axis = 0>(s, r)", "{a: 3x3xf32, b: 3x3xf32}", "exact"),
        ("y = MatMul(a, b)", "y = MatMul(b, a)", "{a: 3x3xf32, b: 3x3xf32}", "real"),
        # True of real numbers only.
        ("s = Add(a, b); y = Add(s, c)", "t = Add(b, c); y = Add(a, t)", "{a: 3xf32, b: 3xf32, c: 3xf32}", "exact"),
        ("m = MatMul(a, b); y = MatMul(m, c)", "n = MatMul(b, c); y = MatMul(a, n)", "{a: 2x3xf32, b: 3x4xf32, c: 4x5xf32}", "exact"),
        # True of one size only, or where nothing is stretched.
        ("m = ReduceMean<axes = [1], keepdims = 0>(x)", "m = ReduceSum<axes = [1], keepdims = 0>(x)", "{x: 2x1xf32, opset: 12}", "real"),
        ("y = Add(a, b)", "y = Add(b, b)", "{a: 1xf32, b: 1xf32}", "real"),
        ("a = Relu(x); y = Sqrt(a)", "a = Abs(x); y = Sqrt(a)", "{x: 2xf32}", "real"),
        ("p = Mul(x, x); y = Sqrt(p)", "y = x", "{x: 2xf32}", "real"),
    ],
)  # fmt: skip
def test_wrong_laws_are_not(match: str, replace: str, case: str, claim: str) -> None:
    replace = replace.replace("a = Abs(x); y = Sqrt(a)", "b = Abs(x); y = Sqrt(b)")
    assert not prove_generic(law(match, replace, case, claim)).proved


def test_a_slice_that_begins_one_later_is_another() -> None:
    rule = law(
        "y = Slice(x, starts, ends, axes)",
        "y = Slice(x, later, end, axes)",
        "{x: 4x3xf32, starts: 'const 1xi64 = [0]', ends: 'const 1xi64 = [2]', axes: 'const 1xi64 = [0]'}",
        let="later: 'i64([1])', end: 'i64([3])'",
    )
    assert not prove_generic(rule).proved


def test_a_reshape_to_another_number_of_elements_is_not_taken_for_granted() -> None:
    rule = law(
        "m = Mul(x, s)",
        "row = Reshape(s, flat); m = Mul(x, row)",
        "{x: 2x3xf32, s: 2x3xf32}",
        "exact",
        let="flat: 'i64([0])'",
    )
    assert not prove_generic(rule).proved


def test_wrong_rules_hold_at_the_ranks_and_attributes_where_they_are_proved() -> None:
    proved = set()
    for rule in read_rules(WRONG):
        found = prove_generic(rule)
        proved |= {rule.id} if found.proved else set()
        assert not list(counterexamples(rule, found.proved)), rule.id
    # Laws that fail at attributes or constants other than those of their examples.
    assert proved == {
        "average-pool-counts-padding", "average-pools-chain", "factor-through-relu-of-any-sign", "batch-norm-into-padded-conv",
        "integer-division-is-exact", "equal-permutations-cancel", "equal-factors-are-one",
        "split-of-conv-wherever-it-cuts", "sum-after-conv-is-its-bias", "axes-put-in-at-once",
    }  # fmt: skip


def test_a_size_is_no_place_in_a_list() -> None:
    """A size used as a bound of a part is refused, not clamped to nothing, which would hold for every size."""
    rule = law(
        "s = Shape(x); y = Slice(s, start, end)",
        "y = known",
        "{x: 2x3x4xf32, start: 'const 1xi64 = [1]', end: 'const 1xi64 = [3]'}",
        where="len(shape(x)[value(start):value(end)]) == 0",
        let="known: 'i64(shape(x)[value(start):value(end)])'",
    )
    assert not prove_generic(rule).proved


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_mutants_hold_at_the_ranks_and_attributes_where_they_are_proved(family: str) -> None:
    looked_at = 0
    for mutant in mutants(rules_dir() / f"{family}.yaml"):
        found = prove_generic(mutant.rule, seconds=1.0)
        looked_at += bool(found.proved)
        wrong = next(counterexamples(mutant.rule, found.proved, tries=8), None)
        assert wrong is None, f"{mutant.rule.id}: {mutant.change}: {wrong}"
    assert looked_at


def test_a_name_stretched_to_a_number_is_known_to_the_engine() -> None:
    """N stretched to 2 is 2: the case is not one in which the engine knows nothing, and there the law is wrong."""
    rule = law(
        "y = Mul(x, c)",
        "y = Mul(x, k)",
        "{x: Nx3xf32, c: 2x3xf32}",
        where="dim(x, 1) == 3 or is_int(dim(y, 0))",
        let="k: 'c if dim(x, 1) == 3 else x'",
    )
    assert not prove_generic(rule).proved


def test_an_approximation_is_not_proved() -> None:
    rule = law("y = Tanh(x)", "y = Tanh(x)", "{x: 2xf32}", "approx(0.1)")
    assert not prove_generic(rule).proved


def test_time_that_runs_out_is_no_proof() -> None:
    rule = law(
        "m = MatMul(a, b); y = MatMul(m, c)",
        "n = MatMul(b, c); y = MatMul(a, n)",
        "{a: 2x3xf32, b: 3x4xf32, c: 4x5xf32}",
        "real",
    )
    proof = prove_generic(rule, seconds=-1.0)
    assert not proof.complete and "were over" in proof.why
