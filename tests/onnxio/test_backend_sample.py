"""A sample of the onnx package's backend suite; ``python -m tests.bench.backend`` runs all of it."""

from __future__ import annotations

from graphopt.rewrite.library import load_library
from tests.bench.backend import PASSES, cases, report, run, sample


def test_sample_of_the_backend_suite() -> None:
    chosen = [*sample(58), *cases(["light"], "light_s*")]
    library = load_library(evidence=False)
    outcomes = run(chosen, jobs=2, library=library)
    text = report(outcomes, PASSES, library)
    assert not any(o.bad for o in outcomes), text
    assert sum(o.passes.get("rules") == "passed" for o in outcomes) > 35, text
