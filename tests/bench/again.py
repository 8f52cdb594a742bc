"""Do the intervals of a benchmark hold the ratios of another run of it?

    graphopt bench MODEL... --json first.json && graphopt bench MODEL... --json second.json
    python -m tests.bench.again first.json second.json

Counts the cells (variants of models) whose second ratio lies where the first says that of another run would (`Ratio.again`), and prints
those where it does not. An interval of 95 % is kept if at least nine of ten do. A search that is judged by the clock may end differently the second time;
then the two files differ, not only their times, which is said.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphopt.benchmark.results import SCHEMA, Bench


def read_bench(text: str) -> Bench:
    """The document of a benchmark as what it was made of."""
    document = json.loads(text)
    assert document.pop("schema") == SCHEMA
    found: Bench = _read(Bench, document)
    return found


def _read(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _read(next(a for a in arguments if a is not types.NoneType), value)
    if origin is tuple:
        return tuple(_read(arguments[0], item) for item in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        hints = typing.get_type_hints(hint)
        return typing.cast(Any, hint)(**{name: _read(hints[name], item) for name, item in value.items()})
    return value


def main() -> int:
    """Compare two documents; 1 if fewer than nine of ten cells hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    given = parser.parse_args()
    first, second = (read_bench(path.read_text(encoding="utf-8")) for path in (given.first, given.second))
    later = {(c.model, c.provider, c.threads, v.name): v for c in second.cases for v in c.variants}
    held = cells = alike = 0
    for case in first.cases:
        for variant in case.variants:
            again = later.get((case.model, case.provider, case.threads, variant.name))
            if variant.ratio is None or again is None or again.ratio is None:
                continue
            cells += 1
            alike += variant.ratio.verdict == again.ratio.verdict
            if variant.ratio.again[0] <= again.ratio.value <= variant.ratio.again[1]:
                held += 1
                continue
            steps = [v.search.steps if v.search else () for v in (variant, again)]
            other = ", by another search" if [s.rule for s in steps[0]] != [s.rule for s in steps[1]] else ""
            print(
                f"outside: {case.model}, {variant.name}: {variant.ratio.low:.3f} - {variant.ratio.high:.3f}, "
                f"then {again.ratio.value:.3f}{other}"
            )
    print(f"{held} of {cells} ratios inside ({held / max(cells, 1):.0%}), {alike} verdicts the same")
    return 0 if cells and held >= 0.9 * cells else 1


if __name__ == "__main__":
    raise SystemExit(main())
