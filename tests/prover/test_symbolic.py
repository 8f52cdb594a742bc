from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from graphopt.config import rules_dir
from graphopt.prover.attack import Counterexample, attack
from graphopt.prover.cases import Instance, build_instance, operands, parse_case
from graphopt.prover.instances import instances
from graphopt.prover.proof import prove
from graphopt.prover.symbolic import OUTSIDE, judge
from graphopt.rewrite.library import LOCK, load_library, read_evidence, rule_files
from graphopt.rewrite.schema import parse_rules, read_rules
from tests.prover.mutants import accepted, mutants, wrong
from tests.prover.witness import wrong_rules

LIBRARY = load_library(evidence=False).by_id
WRONG = read_rules(Path(__file__).parent / "wrong_rules.yaml")

pytest.importorskip("z3")


# Operators, and forms of them, that have no semantics: over real numbers there is nothing that IsNaN could say.
OPEN = {id: found.get("open", "") for id, found in read_evidence(rules_dir() / LOCK).items()}
MEANT = sorted(id for id in LIBRARY if "no semantics" not in OPEN[id] and "this form of" not in OPEN[id])


@pytest.mark.parametrize("ident", sorted(random.Random(1).sample(MEANT, 25)))
def test_a_rule_equals_itself(ident: str):
    rule = LIBRARY[ident]
    for found in instances(rule, limit=4, tries=40):
        same = Instance(found.case, found.before, found.before, found.symbolic, found.elements)
        verdict = judge(same, rule, 0)
        assert not isinstance(verdict, Counterexample)
        method = "floats" if rule.claim == "approx" or verdict[1] == OUTSIDE else "terms"
        assert verdict[0] in (method, "undefined")


def _sample() -> list:
    # Of each file by itself: a new one does not draw others for all that follow it.
    files = rule_files([rules_dir()])
    found = [m for file in files for m in itertools.islice(mutants(file, random.Random(f"3 {file.name}")), 4)]
    return [m for m in found if wrong(m)]


def test_sampled_mutants_are_refused():
    sample = _sample()
    assert len(sample) >= 15
    assert [f"{m.rule.id}: {m.change}" for m in sample if accepted(m)] == []


def _rule(text: str):
    (rule,) = parse_rules("family: t\ndoc: t\nrules:\n" + text, "t.yaml")
    return rule


def test_the_counterexample_is_minimal_and_says_shapes_values_and_both_results():
    rule = next(r for r in WRONG if r.id == "relu-of-sum")
    wrong_at = prove(rule).counterexample
    assert wrong_at is not None
    assert sum(np.size(a) for a in wrong_at.inputs.values()) <= 6
    text = str(wrong_at)
    assert "x: " in text and "x = " in text
    assert "onnxruntime gives" in text and "for the replacement" in text


def test_a_timeout_is_not_a_pass():
    rule = LIBRARY["merge-conv-groups-to-block"]
    proof = prove(rule, seconds=0.0)
    assert proof.outcome == "timeout"


def test_a_where_that_nothing_satisfies_is_no_proof():
    rule = _rule("""
  - id: never
    doc: Its condition contradicts itself.
    equal: exact
    match: ["y = Relu(x)"]
    where: ["rank(x) == 1 and rank(x) == 2"]
    replace: ["y = x"]
    examples: {accept: [{x: 3xf32}], reject: [{x: 3x3xf32}]}
""")
    assert prove(rule).outcome == "unsupported"
    from graphopt.prover.evidence import check_rule

    assert check_rule(rule).verdict == "failed"


def test_each_method_is_needed_by_some_rule():
    methods = {
        "inverse-transposes": "terms",
        "associate-to-the-right": "field",
        "prelu-as-two-relus": "order",
    }
    for ident, method in methods.items():
        proof = prove(LIBRARY[ident], limit=20, tries=200)
        assert proof.outcome == "proved", ident
        assert proof.methods.get(method), (ident, proof.methods)


def test_an_approximation_is_attacked_never_proved():
    assert prove(LIBRARY["gelu-from-erf-div-half-after"], limit=5, tries=60).outcome == "attacked"


def test_a_wrong_bound_is_refuted():
    rule = _rule("""
  - id: sigmoid-is-nearly-hard
    doc: Not that nearly.
    equal: approx(1e-4)
    match: ["y = Sigmoid(x)"]
    replace: ["y = HardSigmoid(x)"]
    examples: {accept: [{x: 2x3xf32}]}
""")
    assert prove(rule).outcome == "failed"


def test_a_divisor_that_the_replacement_leaves_out():
    rule = LIBRARY["shape-of-binary"]
    case = parse_case(rule, {"x": "Nx3x2xi8", "c": "const i8", "part": {"start": 1}, "f": "Div"})
    instance = build_instance(rule, case)
    assert instance is not None and instance.symbolic
    made = attack(instance, rule)
    assert made.runs and made.wrong is None


CUBIC = """
  - id: sine-of-little
    doc: The first terms of the series.
    equal: approx(0.02)
    domain: 1
    match: ["y = Sin(x)"]
    replace: ["z = Mul(x, x)", "c = Mul(z, x)", "t = Div(c, 6.0)", "y = Sub(x, t)"]
    examples: {accept: [{x: 2x3xf32}]}
"""
INSIDE = """
  - id: clip-of-little
    doc: Nothing is clipped.
    equal: approx(1e-6)
    domain: 1
    match: ["y = Clip(x, -1.0, 1.0)"]
    replace: ["y = x"]
    examples: {accept: [{x: 2x3xf32}]}
"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", [CUBIC, INSIDE], ids=["sine", "clip"])
def test_a_domain_is_kept_to(text: str, seed: int):
    assert prove(_rule(text), seed=seed, limit=5, attacks=40).outcome in ("proved", "attacked")
    assert prove(_rule(text.replace("    domain: 1\n", "")), seed=seed, limit=5, attacks=40).outcome == "failed"


def test_a_sum_beyond_float16_is_no_doubt_about_what_operators_mean():
    rule = LIBRARY["merge-conv-groups-to-block"]
    given = {"x": "2x16x9xf16", "w": "const 16x4x3xf16 = 10000.0", "g": 4, "conv": {"dilations": [2]}}
    instance = build_instance(rule, parse_case(rule, given))
    assert instance is not None
    assert attack(instance, rule, seed=1).doubt == ""


@pytest.mark.parametrize(("there", "back"), [(10, 1), (16, 1)])
def test_a_type_of_fewer_digits_rounds_what_goes_through_it(there: int, back: int):
    rule = _rule(f"""
  - id: through-and-back
    doc: A real number is what it was; a float is not.
    equal: real
    match: ["h = Cast<to = {there}>(x)", "y = Cast<to = {back}>(h)"]
    where: ["dtype(x) == 'f32'"]
    replace: ["y = Identity(x)"]
    examples: {{accept: [{{x: 2x3xf32}}], reject: [{{x: 2x3xf64}}]}}
""")
    assert prove(rule, limit=20, tries=200).outcome == "failed"


def test_a_wider_type_changes_no_number():
    rule = _rule("""
  - id: product-in-the-wider-type
    doc: A half is a single too.
    equal: exact
    match: ["w = Cast<to = 1>(x)", "y = Cast<to = 10>(w)"]
    where: ["dtype(x) == 'f16'"]
    replace: ["y = Identity(x)"]
    examples: {accept: [{x: 2x3xf16}], reject: [{x: 2x3xf64}]}
""")
    assert prove(rule, limit=20, tries=200).outcome == "proved"


def test_exact_claims_are_not_proved_by_real_laws():
    rule = _rule("""
  - id: sum-regrouped
    doc: True for real numbers, not bit for bit.
    equal: exact
    match: ["s = Add(a, b)", "y = Add(s, c)"]
    replace: ["t = Add(b, c)", "y = Add(a, t)"]
    examples: {accept: [{a: 3xf32, b: 3xf32, c: 3xf32}]}
""")
    assert prove(rule).outcome == "failed"
    assert (
        prove(
            _rule("""
  - id: sum-regrouped
    doc: True for real numbers.
    equal: real
    match: ["s = Add(a, b)", "y = Add(s, c)"]
    replace: ["t = Add(b, c)", "y = Add(a, t)"]
    examples: {accept: [{a: 3xf32, b: 3xf32, c: 3xf32}]}
""")
        ).outcome
        == "proved"
    )


def test_the_same_seed_gives_the_same_proof():
    rule = LIBRARY["merge-reductions"]
    assert prove(rule, seed=5, limit=20, tries=400) == prove(rule, seed=5, limit=20, tries=400)


FAR = """
  - id: relu-far-away
    doc: Beyond a hundred it is not zero.
    equal: real
    match: ["a = Sub(x, 100.0)", "y = Relu(a)"]
    replace: ["y = Mul(x, 0.0)"]
    examples: {accept: [{x: 3xf32}]}
"""


def test_z3_finds_what_lies_beyond_the_numbers_that_are_drawn():
    rule = _rule(FAR)
    instance = instances(rule, limit=1)[0]
    verdict = judge(instance, rule, 0, use_order=True)
    assert isinstance(verdict, Counterexample), verdict
    assert max(float(a.max()) for a in verdict.inputs.values()) > 100
    assert not isinstance(judge(instance, rule, 0, use_order=False), Counterexample)


@pytest.mark.parametrize("ident", ["integers-casts-through-a-narrow-type", "integers-there-and-back-through-int32"])
def test_whole_numbers_that_wrap_prove_nothing(ident: str):
    rule = next(r for r in wrong_rules() if r.id == ident)
    # (To the same type twice is no more than once.)
    wrong = [i for i in instances(rule, limit=12) if i.case.get("t", 0) != i.case.get("u")]
    found = [judge(i, rule, 0) for i in wrong if any(o.dtype[0] in "iu" for o in operands(i.case))]
    assert found and all(isinstance(v, Counterexample) or v[0] in ("floats", "undefined", "large") for v in found), (
        found
    )


def test_the_family_is_told():
    family = prove(LIBRARY["merge-transposes"]).family
    for said in (
        "dtypes ",
        "f32",
        "ranks ",
        "sizes 0 to ",
        "and symbols",
        "operator sets 7 to 25",
        "values of p",
        "values of q",
    ):
        assert said in family, family
