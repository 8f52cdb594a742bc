"""How far a quantised model's outputs are from being determined.

Kernels of whole numbers round ties otherwise than the arithmetic that they stand for. One level in one element is enough, and every later
layer makes more of it: in an EfficientNet of 8 bits and random weights, inputs moved by a sixteenth of a level of 8 bits move the output by
a fifth of its scale, and ONNX Runtime's own optimiser moves that of an Inception by 15 %. Neither is an error, and a rewrite that has more of
such kernels used moves them as far, although it is exact. What tells an error from that is the model without the runtime's optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.verification.compare import SAME, Tolerance
from graphopt.verification.reference import Reference, joined

_NEAR = 2.0
"""Tolerated multiple of what the runtime's own optimiser does to the original: a rewrite may have twice as many fused kernels."""


def unrest(before: Reference, as_run: Sequence[Sequence[Any]]) -> list[Tolerance]:
    """What to tolerate in each output of a model that is known to be the same without the runtime's optimiser.

    Args:
        before: What it does without the optimiser.
        as_run: Its outputs with it, for each trial.
    """
    by_runtime = joined(before.outputs, as_run)  # whether a tie falls in one is chance
    by_inputs = before.stirred or [SAME] * len(by_runtime)
    return [
        Tolerance(
            rtol=max(_NEAR * run.known_rel, moved.known_rel),
            flips=max(math.ceil(_NEAR * run.flips), moved.flips),
        )
        for run, moved in zip(by_runtime, by_inputs, strict=True)
    ]


def exactly(before: Reference) -> Reference:
    """The same, to be agreed with as closely as the types of the outputs can."""
    return replace(before, tolerances=[[Tolerance()] * len(before.names)] * len(before.outputs))
