"""The accepted examples of all rules on an execution provider: both sides run there and must agree.

    python -m tests.bench.device [NAME ...] [--provider cuda] [--option KEY=VALUE ...]

Evidence is the processor's; kernels of a device have faults of their own (CUDA's ReduceMax of nothing but minus infinity is the lowest finite
number). NAME is a rule or a family. On CUDA float32 is computed as such, not as TF32, unless an option says otherwise.
"""

from __future__ import annotations

import argparse

from graphopt.errors import GraphoptError
from graphopt.prover.examples import compare_sides
from graphopt.rewrite.library import load_library
from graphopt.runtime.session import SessionConfig


def main() -> int:
    """Print the examples that differ, or do not run; 1 if one differs or none ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--provider", default="cuda")
    parser.add_argument("--option", nargs="*", default=[])
    given = parser.parse_args()
    options = {"use_tf32": "0"} if given.provider == "cuda" else {}
    options |= dict(option.split("=", 1) for option in given.option)
    config = SessionConfig(given.provider, level="disabled", provider_options=options, required=False)
    try:
        rules = load_library(given.names, provider=given.provider).rules
    except GraphoptError as error:
        parser.error(str(error))
    ran, failed, differ = 0, 0, 0
    for rule in rules:
        for case in rule.examples["accept"]:
            try:
                apart = compare_sides(rule, case, 7, config)
            except GraphoptError as error:
                failed += 1
                print(f"{rule.id}: does not run: {str(error)[:160]}")
                continue
            ran += 1
            if apart > max(10 * rule.bound, 1e-3):
                differ += 1
                print(f"{rule.id}: differs by {apart:.2g} at {case}")
    print(f"{len(rules)} rules on {given.provider}: {ran} examples ran, {differ} differ, {failed} do not run")
    return 1 if differ or not ran else 0


if __name__ == "__main__":
    raise SystemExit(main())
