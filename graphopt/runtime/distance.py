"""How far the processors of a session's threads are from each other, and waiting until they are near.

A hypervisor moves the processors of a virtual machine. At most times what one thread wrote goes to the other and back in 50 ns, at
others, most likely when they share no cache, in 340 ns and more (an AMD EPYC, two virtual processors, spells of 3 to 110 seconds). Then a Transpose of a
megabyte takes three times as long, a plan full of such kernels one and a half times, the original next to nothing: a ratio that
was measured in one state says little of the other. Threads that pass a matrix to each other tell, next to one thread that has it for
itself: nearby two of them take 0.7 of its time, beside other programs as long, far apart 2.3 times as long.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from onnx import TensorProto, helper

from graphopt.errors import SessionError
from graphopt.runtime.providers import CPU, full_name
from graphopt.runtime.session import SPIN_S, LoadableModel, Session, SessionConfig, spinning

_SIZE, _TURNS = 512, 8  # of a square matrix of a megabyte, which several threads turn so many times
_FAR = 1.6  # times as long as one thread
_ALIKE = 1.1  # times as long as ever: as fast
_TRIES = 8  # one fast run shows that they are near: what disturbs it only adds to it
_FRESH_S = 0.3  # for so long an answer holds
_POLL_S = 0.5


class Distance:
    """Tells whether processors are far from each other.

    Args:
        one: Runs the matrix through one thread.
        several: Through all.

    Attributes:
        patience: Seconds that may still be waited, all told.
        spells: Whether they have been far at any time when that was asked.
    """

    def __init__(self, one: Callable[[], None], several: Callable[[], None]) -> None:
        self._one, self._several = one, several
        self.patience = 0.0
        self.spells = False
        self._stop: Callable[[], bool] = lambda: False
        self._near = False  # whether they have ever been
        self._answer: tuple[float, bool] | None = None
        self._alone = _least(one, 0.0)

    def far(self) -> bool:
        """Whether they are far from each other now."""
        if self._answer is None or time.monotonic() - self._answer[0] > _FRESH_S:
            self._alone = min(self._alone, _least(self._one, _ALIKE * self._alone))
            found = _least(self._several, _FAR * self._alone) > _FAR * self._alone
            self._answer = time.monotonic(), found
            self._near |= not found
            self.spells |= found
        return self._answer[1]

    def wait_for(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Allow it to wait so long from now on, all told, and until ``stop`` says otherwise."""
        self.patience, self._stop = seconds, stop

    def settle(self) -> float:
        """Wait until they are near each other, if they have been before, and as long as there is patience.

        Returns:
            Seconds waited.
        """
        begin = time.monotonic()
        while self.patience > 0 and not self._stop() and self.far() and self._near:
            self.patience -= _POLL_S
            time.sleep(_POLL_S)
        return time.monotonic() - begin


def distance(config: SessionConfig) -> Distance | None:
    """How far apart the processors of a session's threads are.

    Returns:
        The same object for the same number of threads; ``None`` for one thread, for other devices, and where it can't be told.
    """
    return None if config.threads == 1 or full_name(config.provider) != CPU else _of(config.threads)


@lru_cache
def _of(threads: int) -> Distance | None:
    names = ["x", *(f"v{turn}" for turn in range(1, _TURNS)), "y"]
    nodes = [helper.make_node("Transpose", [a], [b]) for a, b in itertools.pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_SIZE, _SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "distance", ends[:1], ends[1:])
    model, feeds = LoadableModel.probe(graph), {"x": np.ones((_SIZE, _SIZE), np.float32)}
    try:
        one, several = (
            Session(model, spinning(SessionConfig(threads=each, level="disabled"), SPIN_S)).prepare(feeds)
            for each in (1, threads)
        )
        return Distance(one, several)
    except SessionError:
        return None


def _least(run: Callable[[], None], enough: float) -> float:
    """Seconds of the fastest of some runs, or of the first that takes no more than ``enough``."""
    run()
    least = float("inf")
    for _ in range(_TRIES):
        begin = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - begin)
        if least <= enough:
            break
    return least
