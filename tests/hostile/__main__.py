"""``python -m tests.hostile [PART_OF_A_NAME]``: what graphopt does with each hostile input, its seconds of
processor time, its memory (at least what this process holds, of which a child starts as a copy).

Exits with 1 if one of them takes over 10 s of the processor or 2 GB, ends by a signal, is called an internal error, or reaches the terminal raw.
"""

from __future__ import annotations

import sys

from tests.hostile.cases import CASES
from tests.hostile.run import run


def main() -> int:
    """Run them all and print a table."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [case for case in CASES if part in case.name]
    print(f"{'input':<52} {'exit':>4} {'s':>5} {'MB':>5}  said")
    bad, slowest, largest = [], 0.0, 0
    for case in chosen:
        found = run(case)
        slowest, largest = max(slowest, found.seconds), max(largest, found.peak)
        if found.wrong:
            bad.append(found)
        said = "".join(c if c.isprintable() else "?" for c in found.answer)
        row = f"{case.name[:52]:<52} {found.code:>4} {found.seconds:>5.1f} {found.peak / 1e6:>5.0f}"
        print(f"{row}  {'WRONG: ' + found.wrong + ': ' if found.wrong else ''}{said[:160]}", flush=True)
    print(f"\n{len(chosen)} inputs, {len(bad)} wrong; at most {slowest:.1f} s and {largest / 1e6:.0f} MB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
