"""Random models, rewritten at random, compute the same; and so do those that once did not."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.schema import parse_rules
from tests.fuzz.__main__ import BLOCK, guarded
from tests.fuzz.draft import Input
from tests.fuzz.recipes import RECIPES
from tests.fuzz.regress import FOLDER, read, write
from tests.fuzz.shrink import fails, shrunk
from tests.fuzz.trial import CHANGED, CRASHED, Case, difference, draw, trial

MODELS, SEED = 600, 20240
STANDARD = load_library().whole
EVERY = load_library(("standard", "generated"), evidence=False).whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "models"),
    [(SEED, MODELS), pytest.param(20241, 6000, marks=pytest.mark.thorough)],
    ids=["same", "more"],
)
def test_random_models_compute_the_same(seed: int, models: int) -> None:
    # In processes of their own: a model may end the process that runs it.
    rows = [row for first in range(0, models, BLOCK) for row in guarded(seed, first, BLOCK, "all")]
    wrong = [
        f"{seed}:{f['index']} {f['outcome']} by {f['rule'] or 'the engine'}: {f['reason'][:200]}"
        for row in rows
        for f in row["failures"]
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(row["outcomes"].get("same", 0) for row in rows) > 0.8 * models


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.onnxtxt")), ids=lambda path: path.stem)
def test_what_failed_once(path):
    case, rule = read(path)
    assert not rule or rule in EVERY.by_id, f"there is no rule {rule} any more: delete {path.name}, or name its heir"
    assert trial(case, EVERY, 0, only=rule or "-") is not None, "the model does not run as it is"
    for outcome in (CHANGED, CRASHED):
        verdict = fails(case, EVERY, rule, outcome)
        assert verdict is None, verdict.reason


def test_a_model_is_made_again_from_its_number():
    for index in range(12):
        one, two = draw(3, index, STANDARD), draw(3, index, STANDARD)
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert one.model.SerializeToString(deterministic=True) == two.model.SerializeToString(deterministic=True)
            assert one.bindings == two.bindings


WRONG = """
family: wrong
doc: Wrong.
rules:
  - id: sine-is-its-argument
    doc: Of small numbers alone.
    equal: real
    match: ["y = Sin(x)"]
    replace: ["y = Identity(x)"]
    examples: {accept: [{x: 2x3xf32}]}
"""


def test_what_a_wrong_rule_does_is_found_shrunk_and_written_down(tmp_path):
    library = Library(tuple(parse_rules(WRONG, "wrong.yaml")))
    drawn = (draw(1, index, library) for index in range(50))
    case, verdict = next((c, v) for c in drawn if c and (v := trial(c, library, 0)) and v.outcome == CHANGED)
    assert verdict.rule == "sine-is-its-argument" and verdict.model is not None
    small = shrunk(Case(verdict.model, case.inputs, case.bindings), library, verdict.rule, CHANGED)
    path = write(small, verdict, verdict.rule, "wrong", tmp_path)
    again, rule = read(path)
    assert rule == verdict.rule and len(again.model.graph.node) <= 3
    assert fails(again, library, rule, CHANGED) is not None


def test_exact_is_the_last_bit_and_the_sign_of_zero():
    zero, nan = np.array([0.0, np.nan], np.float32), np.array([0.0, -np.nan], np.float32)
    assert difference([zero], [nan], "exact") == ""
    assert difference([zero], [np.array([-0.0, np.nan], np.float32)], "exact") and not difference(
        [zero], [-zero], "real"
    )
    assert difference([zero[:1]], [zero[:1] + np.float32(1e-45)], "exact")


def test_many_operators_and_numbers_that_are_none():
    assert len(RECIPES) >= 60
    arrays = [Input(f"x{i}", "float32", (4, 5)).array({}, 0) for i in range(100)]
    assert 5 <= sum(not np.isfinite(a).all() for a in arrays) <= 30
    assert any((np.signbit(a) & (a == 0)).any() for a in arrays)
