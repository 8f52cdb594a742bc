"""From rounds to a ratio with an interval and a verdict.

A round gives one ratio. The median of a session's rounds is free of slow spells, but not of the session's luck, so the
unit of the statistics is the cycle (one session of each contender): the ratio is the mean over cycles of those medians,
a fifth trimmed at either end (a cycle may fall into a slow spell as a whole), on a logarithmic scale. Its error comes from
a bootstrap that resamples whole cycles; with few of them a bootstrap is too sure of itself, by the factors that are
corrected here (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 5.3).

The interval says where *another run* would come out, and is therefore wider by the square root of two than one for the
mean: both runs have an error. For a reader who asks "would I see this too?" that is the honest one, and two equal models
are almost never told apart by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphopt.benchmark.results import Ratio, Verdict
from graphopt.runtime.dtypes import Array
from graphopt.runtime.timing import RESAMPLES, student

_TRIM = 0.2
_SPARE = 8  # of fewer cycles none can be spared


def ratio(cycles: Sequence[Array], baseline: int, variant: int, precision: float, seed: int = 0) -> Ratio:
    """The time of a contender over that of another.

    Args:
        cycles: Seconds per run, for each cycle a row for each round and a column for each contender; two at least.
        baseline: Column of the one.
        variant: Column of the other; above 1 it is the faster.
        precision: How far from 1 an interval around 1 may reach to mean ``equal``.
        seed: Of the bootstrap.
    """
    logs = np.array([np.median(np.log(table[:, baseline] / table[:, variant])) for table in cycles])
    count = len(logs)
    picks = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    error = _trimmed_mean(logs[picks]).std() * math.sqrt(count / (count - 1))
    middle, half = float(_trimmed_mean(logs)), float(math.sqrt(2) * student(count - 1) * error)
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Ratio(math.exp(middle), low, high, verdict(low, high, precision))


def verdict(low: float, high: float, precision: float) -> Verdict:
    """What an interval says."""
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "equal" if low >= 1 - precision and high <= 1 + precision else "unclear"


def _trimmed_mean(values: Array) -> Array:
    """Along the last axis."""
    count = values.shape[-1]
    cut = int(_TRIM * count) if count >= _SPARE else 0
    mean: Array = np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return mean
