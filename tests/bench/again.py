"""Do the intervals of a benchmark hold the ratios of another run of it?

    graphopt bench MODEL... --json first.json && graphopt bench MODEL... --json second.json
    python -m tests.bench.again first.json second.json

Counts the cells (variants of models) whose second ratio lies where the first says that of another run would (`Ratio.again`), and prints
those where it does not. An interval of 95 % is kept if at least nine of ten do. A search that is judged by the clock may end differently the second time;
then the two files differ, not only their times, which is said.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphopt.benchmark.results import Bench


def main() -> int:
    """Compare two documents; 1 if fewer than nine of ten cells hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    given = parser.parse_args()
    first, second = Bench.load(given.first), Bench.load(given.second)
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
