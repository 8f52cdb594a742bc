"""Random models, rewritten at random, compute the same; and so do those that once did not."""

from __future__ import annotations

import pytest

from graphopt.rewrite.library import load_library
from tests.fuzz.__main__ import BLOCK, guarded
from tests.fuzz.regress import FOLDER, read
from tests.fuzz.shrink import fails
from tests.fuzz.trial import CHANGED, CRASHED, draw, trial

MODELS, SEED = 2000, 20240
STANDARD = load_library().whole
EVERY = load_library(("standard", "generated"), evidence=False).whole


@pytest.mark.slow
def test_random_models_compute_the_same():
    # In processes of their own: a model may end the process that runs it.
    rows = [row for first in range(0, MODELS, BLOCK) for row in guarded(SEED, first, BLOCK, "standard")]
    wrong = [
        f"{SEED}:{f['index']} {f['outcome']} by {f['rule'] or 'the engine'}: {f['reason'][:200]}"
        for row in rows
        for f in row["failures"]
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(row["outcomes"].get("same", 0) for row in rows) > 0.8 * MODELS


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
