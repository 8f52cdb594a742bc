"""The grid meets what chance hardly does: combinations of ranks, attributes and equal sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphopt.prover.attack import attack
from graphopt.prover.beside import beside
from graphopt.prover.cases import build_instance, parse_case
from graphopt.prover.grid import grid
from graphopt.prover.variation import Variation
from graphopt.rewrite.schema import read_rules

RULES = read_rules(Path(__file__).parent / "wrong" / "hidden.yaml")
BESIDE = read_rules(Path(__file__).parent / "wrong" / "beside.yaml")
BELIEVED = read_rules(Path(__file__).parent / "wrong" / "believed.yaml")
COUPLED = {
    "layer-norm-shift-by-axis", "softmax-of-one", "softmax-per-row", "activations-of-lstm", "alpha-of-activations",
    "slice-of-same-shape", "symmetric-weights", "symmetric-kernel", "identity-by-trace", "alternating-signs", "mask-of-each-row",
    "middle-axes-by-sum", "window-by-size", "strides-by-product",
}  # fmt: skip
TOGETHER = {
    "matmulinteger-zero-columns", "qdq-first-scale", "shift-by-vector", "mod-then-divide", "lstm-default-activations",
    "rnn-relu-activations", "roialign-scaled", "swish-alpha", "pad-twice-by-mode", "ms-nbits-accuracy", "nbits-by-default",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_is_hidden_is_found_whatever_the_seed(rule, seed):
    assert any(attack(instance, rule, seed, brief=True).wrong for instance in grid(rule, seed=seed))


def test_every_rank_with_every_flag():
    rule = RULES[0]
    met = {(len(case["x"].dims), len(case["c"].dims), case["f"]) for case in (i.case for i in grid(rule))}
    assert {(x, c, f) for x in (1, 2, 3) for c in range(x) for f in (0, 1)} <= met


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "rule",
    [r for r in BESIDE if r.id.removeprefix("beside-") in TOGETHER]
    + [r for r in BELIEVED if r.id.removeprefix("believed-") in COUPLED],
    ids=lambda rule: rule.id,
)
def test_what_shows_only_together_is_found_beside_an_example(rule, seed):
    examples = [parse_case(rule, case) for case in rule.examples["accept"]]
    vary = Variation(rule, np.random.default_rng(seed), examples)
    made = (build_instance(rule, case) for example in examples for case in beside(vary, example))
    assert any(attack(instance, rule, seed, brief=True).wrong for instance in made if instance is not None)
