"""How many of the shipped rules are proved for tensors of all sizes?

    python -m tests.bench.generic [--family NAME ...] [--generated] [--show] [--seconds 5]

Prints the share by family, the time, and what is missing of the others, grouped.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from graphopt.config import rules_dir
from graphopt.prover.generic import GenericProof, prove_generic
from graphopt.rewrite.library import rule_files
from graphopt.rewrite.schema import read_rules


def _reason(proof: GenericProof) -> str:
    """Why a rule is not proved, without what differs from rule to rule."""
    return re.sub(r"\s*[:(].*", "", proof.why) or "proved"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="*", help="only these families")
    parser.add_argument("--generated", action="store_true", help="the generated pack instead of the library")
    parser.add_argument("--show", action="store_true", help="every rule with its time and what is missing")
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time for a rule")
    given = parser.parse_args()
    folder = Path(rules_dir()) / "generated" if given.generated else Path(rules_dir())
    files = [f for f in rule_files([folder]) if not given.family or f.stem in given.family]
    whole: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    times = []
    print(f"{'family':20}{'rules':>7}{'exact, real':>13}{'all sizes':>11}{'some':>7}{'seconds':>9}")
    for file in files:
        counts: Counter[str] = Counter()
        begin = time.monotonic()
        for rule in read_rules(file):
            proof = prove_generic(rule, seconds=given.seconds)
            times.append(proof.seconds)
            counts["rules"] += 1
            counts["claims"] += rule.claim != "approx"
            counts["all"] += proof.complete
            counts["some"] += bool(proof.proved) and not proof.complete
            reasons[_reason(proof)] += not proof.complete
            if given.show:
                print(f"  {'all ' if proof.complete else '    '} {rule.id:44}{proof.seconds:7.2f} s  {proof.why[:120]}")
        whole += counts
        print(
            f"{file.stem:20}{counts['rules']:7}{counts['claims']:13}{counts['all']:11}{counts['some']:7}"
            f"{time.monotonic() - begin:9.1f}"
        )
    print(f"{'all':20}{whole['rules']:7}{whole['claims']:13}{whole['all']:11}{whole['some']:7}{sum(times):9.1f}")
    print(f"median {statistics.median(times):.2f} s a rule, longest {max(times):.1f} s")
    for reason, count in reasons.most_common():
        if count:
            print(f"{count:5}  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
