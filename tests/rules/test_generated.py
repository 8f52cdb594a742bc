"""The pack that comes with graphopt: its form, its evidence, and a sample of its laws."""

from __future__ import annotations

import random

import pytest
from onnx import parser

import graphopt
from graphopt.config import rules_dir
from graphopt.prover.evidence import check_rule
from graphopt.rewrite.library import GENERATED, LOCK, STANDARD, VERDICTS, lint, load_library, read_evidence
from graphopt.rewrite.schema import Rule, read_rules
from graphopt.synth.graphs import Rewriter
from tests.bench.laws import LAWS, derivation
from tests.share import part

PACK = load_library((GENERATED,), evidence=False).rules


def test_it_is_in_form_and_every_rule_has_its_evidence():
    assert not lint([rules_dir() / GENERATED])
    evidence = read_evidence(rules_dir() / GENERATED / LOCK)
    assert {rule.id: rule.hash for rule in PACK} == {id: entry["hash"] for id, entry in evidence.items()}
    verdicts = [entry["verdict"] for entry in evidence.values()]
    assert set(verdicts) <= set(VERDICTS)
    assert verdicts.count("proved") >= 0.9 * len(verdicts)


def test_it_is_larger_than_the_pack_that_taso_shipped_and_over_more_operators():
    assert len(PACK) >= 133
    operators = {op for rule in PACK for line in rule.match for _, op in line.ops}
    assert len(operators) > 7


def test_constants_that_can_not_be_joined_end_nothing(tmp_path):
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] a, float[2, 3] b) => (float[2, 6] y)
        <float c = {1.5}, float d = {2.5}> { p = Add(a, c) q = Add(b, d) y = Concat<axis = -1>(p, q) }"""
    )
    result = graphopt.optimize(model, rules=["generated"], measure=False, strategy="backtracking")
    assert result.report["nodes"]["after"] <= 3


def test_it_loads_beside_the_library_and_not_by_default():
    library = load_library()
    assert not {rule.id for rule in PACK} & {rule.id for rule in library.rules}
    assert len(load_library((STANDARD, GENERATED)).rules) == len(library.rules) + len(PACK)


@pytest.mark.parametrize("rule", part(random.Random(0).sample(PACK, 60), 6, lambda rule: rule.id))
def test_a_rule_is_true_at_other_instances(rule: Rule):
    verdict = check_rule(rule, seed=99, limit=15, attacks=40, tries=200, generic=False)
    assert verdict.loads, verdict.message


def test_it_holds_laws_that_people_know():
    rewriter = Rewriter(PACK)
    found = {law.id for law in read_rules(LAWS) if derivation(law, rewriter)}
    assert {"transposes-compose", "matmul-and-bias-is-gemm", "softmax-is-shift-invariant", "split-of-concat"} <= found
    assert len(found) >= 20
