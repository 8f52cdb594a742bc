"""Which known laws a generated pack holds.

    python -m tests.bench.laws [PACK] [--json FILE] [--markdown]

A law of ``laws.yaml`` is found if rules of the pack (default: the one that comes with graphopt) lead from its left side to its
right side in at most two applications. The generator does not know the list.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from graphopt.ir.delta import RefusedError
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.library import GENERATED, load_library
from graphopt.rewrite.schema import Rule, read_rules
from graphopt.synth.graphs import Rewriter

LAWS = Path(__file__).with_name("laws.yaml")
STEPS = 2


def derivation(law: Rule, rewriter: Rewriter) -> Sequence[str]:
    """Ids of the rules that lead from a law's left side to its right side; none if it is missed."""
    example = build_example(law, law.examples["accept"][0])
    assert example.match is not None, law.id
    try:
        after, _ = apply(example.graph, example.match)
    except RefusedError as error:  # a mistake in the list
        raise AssertionError(f"{law.id}: {error}") from error
    return rewriter.path(example.graph, after, STEPS)


def main() -> int:
    """Look for every law; the exit status is 1 when fewer than 30 are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", nargs="?", default=GENERATED, help="a folder of rules (default: the pack of graphopt)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true", help="a table in Markdown")
    arguments = parser.parse_args()
    rewriter = Rewriter(load_library((arguments.pack,), evidence=False).rules)
    found = {law.id: derivation(law, rewriter) for law in read_rules(LAWS)}
    for name, used in found.items():
        print(
            f"| {name} | {', '.join(used) or '-'} |"
            if arguments.markdown
            else f"{name:44}{', '.join(used) or 'MISSED'}"
        )
    count = sum(map(bool, found.values()))
    print(f"{count} of {len(found)} laws found with {len(rewriter.rules)} rules")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if count >= 30 else 1


if __name__ == "__main__":
    raise SystemExit(main())
