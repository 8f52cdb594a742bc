"""How far a quantised model's outputs are from being determined.

Kernels of whole numbers round ties otherwise than the arithmetic that they stand for. One level in one element is enough, and every later
layer makes more of it: in an EfficientNet of 8 bits and random weights, inputs moved by a sixteenth of a level of 8 bits move the output by
a fifth of its scale, and ONNX Runtime's own optimiser moves that of an Inception by 15 %. Neither is an error, and a rewrite that has more of
such kernels used moves them as far, although it is exact. What tells an error from that is the model without the runtime's optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.errors import SessionError
from graphopt.runtime.guard import open_guarded
from graphopt.runtime.session import Model
from graphopt.verification.compare import SAME, Tolerance, compare
from graphopt.verification.reference import Reference

_NEAR = 2.0
"""Tolerated multiple of what the runtime's own optimiser does to the original: a rewrite may have twice as many fused kernels."""
_STEP = 1 / 4096
"""How far inputs are moved, as a fraction of their range: a sixteenth of a level of 8 bits."""


def unrest(original: Model, before: Reference, as_run: Sequence[Sequence[Any]]) -> list[Tolerance]:
    """What to tolerate in each output of a model that is known to be the same without the runtime's optimiser.

    Args:
        original: The model.
        before: What it does without the optimiser.
        as_run: Its outputs with it, for each trial.
    """
    stirred = before.outputs
    with suppress(SessionError), open_guarded(original, before.config) as session:
        stirred = [session.run(_stirred(feeds)) for feeds in before.feeds]
    tolerances = list[Tolerance]()
    for n in range(len(before.names)):
        # Of all trials together: whether a tie falls in one is chance.
        by_runtime = by_inputs = SAME
        for reference, run, moved in zip(before.outputs, as_run, stirred, strict=True):
            by_runtime = by_runtime.worse(compare(reference[n], run[n], Tolerance(rtol=0.0)))
            by_inputs = by_inputs.worse(compare(reference[n], moved[n], Tolerance(rtol=0.0)))
        rtol = max(_NEAR * _finite(by_runtime.max_rel), _finite(by_inputs.max_rel))
        tolerances.append(Tolerance(rtol=rtol, flips=max(math.ceil(_NEAR * by_runtime.flips), by_inputs.flips)))
    return tolerances


def exactly(before: Reference) -> Reference:
    """The same, to be agreed with as closely as the types of the outputs can."""
    return replace(before, tolerances=[[Tolerance()] * len(before.names)] * len(before.outputs))


def _stirred(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with each float moved up or down by a little of the range of its array."""
    rng = np.random.default_rng(0)
    return {
        name: (value + np.ptp(value) * _STEP * rng.choice((-1.0, 1.0), value.shape)).astype(value.dtype)
        if isinstance(value, np.ndarray) and value.dtype.name.startswith("float") and value.size
        else value
        for name, value in feeds.items()
    }


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 0.0
