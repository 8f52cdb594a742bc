"""Does the prover refuse wrong rules? The table of mutants.

    python -m tests.bench.mutants [--family NAME ...] [--show]

Every shipped rule is changed in one place in every way that tests/prover/mutants.py knows. Of the mutants that are
wrong by ONNX Runtime's own results, the prover must accept none. Mutants that the runtime can't tell from a right rule are
counted apart: some are right (a condition about kernels dropped), and of the others the prover refuses what it can.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from graphopt.config import rules_dir
from graphopt.execution import make_executor
from graphopt.rewrite.library import rule_files
from tests.prover.mutants import accepted, mutants, wrong


def family(file: Path) -> list[tuple[str, str, str, bool, bool]]:
    """Rule, kind, change, whether it is wrong, and whether the prover accepts it, for each mutant of a file."""
    return [(m.rule.id, m.kind, m.change, wrong(m), accepted(m)) for m in mutants(file)]


def main() -> int:
    """Print the table; 1 if a wrong rule is accepted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="*", help="only these families")
    parser.add_argument(
        "--show", action="store_true", help="list the accepted mutants that the runtime can't tell apart"
    )
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    files = [f for f in rule_files([rules_dir()]) if not given.family or f.stem in given.family]
    begin = time.monotonic()
    with make_executor("processes", given.jobs) as executor:
        rows = [row for found in executor.map(family, files) for row in found]
    kinds = sorted({kind for _, kind, *_ in rows})
    print(f"{'':24}{'wrong':>8}{'refused':>9}{'accepted':>10}   {'not told apart':>14}{'refused':>9}")
    for kind in [*kinds, "all"]:
        of = [r for r in rows if kind in ("all", r[1])]
        bad = [r for r in of if r[3]]
        taken, open_ = sum(r[4] for r in bad), len(of) - len(bad)
        refused = sum(not r[4] for r in of if not r[3])
        print(f"{kind:24}{len(bad):8}{len(bad) - taken:9}{taken:10}   {open_:14}{refused:9}")
    for rule, kind, change, is_wrong, taken in rows:
        if taken and (is_wrong or given.show):
            print(f"{'ACCEPTED ' if is_wrong else ''}{rule}: {kind}: {change}")
    print(f"{len(rows)} mutants in {time.monotonic() - begin:.0f} s")
    return 1 if any(r[3] and r[4] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
