"""What this machine can do at best: the numbers that turn FLOPs and bytes into milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

NEAR, ALIASED = 4 * 64 * 56 * 56, 4 * 64 * 64 * 64
"""Bytes of an early layer's feature map in an image network; the channels of the second lie whole numbers of ``WAY`` apart."""
FAR = 4 * 64 * 384 * 384
"""Bytes of a feature map that has no room beside a second one in a last-level cache of the usual size."""
WAY = 4096
"""Bytes after which addresses share a set of a core's first cache: so do a block's channels whose size is a multiple, more than a set has lines."""


@dataclass(frozen=True)
class Roofline:
    """Peak numbers; the defaults are those of one core of a server processor with AVX-512.

    Attributes:
        gflops: Floating-point operations of a matrix product whose weights are in the cache, 10^9 a second.
        gbytes: Bytes read and written by elementwise operators, 10^9 a second.
        far_gbytes: Bytes read from memory, 10^9 a second.
        scalar_gops: Elementwise operations (those that :mod:`graphopt.cost.analytic` counts), 10^9 a second.
        reorder_gbytes: Bytes of a feature map of ``NEAR`` bytes converted into or out of the blocked layout, 10^9 a second.
        reorder_aliased_gbytes: The same of one of ``ALIASED`` bytes, whose channels are in each other's way in the cache.
        reorder_far_gbytes: The same of one of ``FAR`` bytes, which comes from memory and goes there.
        overhead_ms: What the runtime spends on a node whatever it does, in milliseconds: where it is measured, what a Reshape between two
            products takes, whose code and shape have left the cache by then.
        shared_bytes: How much this process gets of the last-level cache.
        profiler_ms: What measuring adds to the time of a window, in milliseconds: the profiler to a kernel, or where windows
            are timed from outside, the call into the runtime.
        pace_ms: Time of the model that tells how fast the machine is at the moment, at its best; 0 where none does.
    """

    gflops: float = 150.0
    gbytes: float = 40.0
    far_gbytes: float = 10.0
    scalar_gops: float = 30.0
    reorder_gbytes: float = 40.0
    reorder_aliased_gbytes: float = 25.0
    reorder_far_gbytes: float = 8.0
    shared_bytes: float = 32 << 20
    overhead_ms: float = 0.0003
    profiler_ms: float = 0.001
    pace_ms: float = math.inf
