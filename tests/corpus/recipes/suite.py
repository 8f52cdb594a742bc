"""The onnx package's backend suite, the full networks left out: what it says of every operator, and small exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.bench.backend import KINDS, Case, _data, cases
from tests.corpus.recipes import Build


def _write(case: Case, path: Path) -> Mapping[str, Any]:
    model = case.proto()
    onnx.save(model, path)
    feeds, _ = next(iter(_data(case, model)))
    # A file of arrays holds no sequence: such a model comes without inputs.
    return dict(feeds) if all(isinstance(a, np.ndarray) for a in feeds.values()) else {}


class _Recipes(Mapping[str, Build]):
    """Collecting them takes seconds, which is left for when they are wanted."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def _all(self) -> dict[str, Case]:
        if not self._cases:
            kinds = [kind for kind in KINDS if kind != "light"]
            self._cases = {f"{case.kind}.{case.name}": case for case in cases(kinds)}
        return self._cases

    def __getitem__(self, name: str) -> Build:
        return partial(_write, self._all()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


RECIPES: Mapping[str, Build] = _Recipes()
