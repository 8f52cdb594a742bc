"""``python -m tests.fuzz --models 50000 --seed 1 --workers 2``: random models, rewritten and compared; resumable.

What was done is appended to a journal, one line for a block of models, so that a run that was stopped goes on where it was. Failures
are shrunk and written as text, one for each rule and kind of failure.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import graphopt
from graphopt.rewrite.library import Library, load_library
from tests.fuzz.regress import FALLEN, write
from tests.fuzz.shrink import fails, shrunk
from tests.fuzz.trial import CHANGED, CRASHED, Case, draw, hand, hands, run, trial

BLOCK = 100
TOLD = ("outcomes", "rules", "dtypes", "opsets", "operators", "refusals")
PACKS = {"standard": ("standard",), "generated": ("generated",), "all": ("standard", "generated")}


@lru_cache
def library(pack: str) -> Library:
    """The rules of a pack."""
    return load_library(PACKS[pack]).whole


@lru_cache
def dealt(pack: str) -> list[Library]:
    """The rules of a pack in several hands."""
    return hands(library(pack))


def block(
    seed: int, first: int, count: int, pack: str, tell: Callable[[int], None] = lambda index: None
) -> dict[str, Any]:
    """What became of some models."""
    counts: dict[str, Counter[str]] = {k: Counter() for k in TOLD}
    failures: list[dict[str, Any]] = []
    for index in range(first, first + count):
        tell(index)
        rules = hand(dealt(pack), index)
        case = draw(seed, index, rules)
        verdict = None if case is None else trial(case, rules, index)
        if case is None or verdict is None:
            counts["outcomes"]["not runnable"] += 1
            continue
        counts["outcomes"][verdict.outcome] += 1
        counts["rules"].update(verdict.steps)
        counts["refusals"].update(f"{rule}: {reason[:80]}" for rule, reason in verdict.refusals)
        counts["dtypes"].update({i.dtype for i in case.inputs})
        counts["opsets"][str(case.model.opset_import[0].version)] += 1
        counts["operators"].update({n.op_type for n in case.model.graph.node})
        if verdict.outcome in (CHANGED, CRASHED):
            failures.append(
                {"index": index, "outcome": verdict.outcome, "rule": verdict.rule, "reason": verdict.reason}
            )
        elif verdict.outcome == "refused":
            counts["refusals"][f"load: {verdict.reason[:80]}"] += 1
    return _row(seed, first, count, pack, failures, {k: dict(c) for k, c in counts.items()})


def _row(
    seed: int,
    first: int,
    count: int,
    pack: str,
    failures: Sequence[dict[str, Any]],
    counts: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """A line of the journal."""
    told = {key: counts.get(key, {}) for key in TOLD}
    return {"seed": seed, "first": first, "count": count, "pack": pack, "failures": failures, **told}


def guarded(seed: int, first: int, count: int, pack: str) -> list[dict[str, Any]]:
    """The same in a process of its own: what ends that is a failure of the model that it was at, and the rest goes on."""
    dealt(pack)  # once, before the process is copied
    rows: list[dict[str, Any]] = []
    end = first + count
    while first < end:
        row, at = _apart(partial(block, seed, first, end - first, pack))
        if row is not None:
            return [*rows, row]
        if at > first:
            rows.append(block(seed, first, at - first, pack))
        failures, outcome = [], "not runnable"
        if _apart(partial(_runs, seed, at, pack))[0] is not None:  # else the model ends the process by itself
            failures = [{"index": at, "outcome": CRASHED, "rule": "", "reason": "the process ended"}]
            outcome = CRASHED
        rows.append(_row(seed, at, 1, pack, failures, {"outcomes": {outcome: 1}}))
        first = at + 1
    return rows


def _runs(seed: int, index: int, pack: str, tell: Callable[[int], None]) -> bool:
    """Run a model as it is."""
    case = draw(seed, index, hand(dealt(pack), index))
    return case is not None and bool(run(case.model, case.feeds()))


def _apart(work: Callable[[Callable[[int], None]], Any]) -> tuple[Any, int]:
    """The result of some work in a process of its own, or ``None`` and the last thing that it told."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        try:
            theirs.send((work(lambda index: theirs.send((None, index))), -1))
        except Exception as error:  # a fault of the fuzzer itself
            theirs.send((error, -1))
            raise

    process = context.Process(target=child)
    process.start()
    theirs.close()
    result, at = None, -1
    try:
        while result is None:
            result, index = ours.recv()
            at = index if result is None else at
    except EOFError:
        pass
    process.join()
    if isinstance(result, Exception):
        raise result
    return result, at


def keep(seed: int, failure: dict[str, Any], pack: str, folder: Path) -> str:
    """Shrink a failure and write it down."""
    rules = hand(dealt(pack), failure["index"])
    case = draw(seed, failure["index"], rules)
    verdict = None if case is None else trial(case, rules, failure["index"])
    if case is None or verdict is None or verdict.model is None:
        return "not again"
    start = Case(verdict.model, case.inputs, case.bindings)
    small = shrunk(start, rules, verdict.rule, verdict.outcome)
    again = fails(small, rules, verdict.rule, verdict.outcome)
    if again is None:  # it takes more than one step: the whole is kept
        small, again = case, verdict
    name = f"{verdict.rule or 'engine'}-{verdict.outcome}"
    return write(small, again, verdict.rule, name, folder).name


def _kept(seed: int, failure: dict[str, Any], pack: str, folder: Path, tell: Callable[[int], None]) -> str:
    return keep(seed, failure, pack, folder)


def blocks(models: int, done: set[tuple[int, int]], seed: int) -> Iterator[tuple[int, int]]:
    """The blocks that are left to do."""
    for first in range(0, models, BLOCK):
        if (seed, first) not in done:
            yield first, min(BLOCK, models - first)


def main() -> int:
    """Run, print a summary; the exit code says whether anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pack", choices=PACKS, default="all")
    parser.add_argument("--journal", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--failures", type=Path, default=FALLEN, help="folder for what fails, shrunk")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.journal.read_text().splitlines()] if given.journal.exists() else []
    rows = [row for row in rows if row["pack"] == given.pack and row["seed"] == given.seed]
    done = {(row["seed"], row["first"]) for row in rows}
    kept = {(f["rule"], f["outcome"]) for row in rows for f in row["failures"]}
    began = time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    dealt(given.pack)
    with ThreadPoolExecutor(given.workers) as pool:
        todo = blocks(given.models, done, given.seed)
        for job in [pool.submit(guarded, given.seed, first, n, given.pack) for first, n in todo]:
            made = job.result()
            rows += made
            with given.journal.open("a") as journal:
                journal.writelines(json.dumps(row) + "\n" for row in made)
            for failure in [f for row in made for f in row["failures"]]:
                if (failure["rule"], failure["outcome"]) in kept:
                    continue
                kept.add((failure["rule"], failure["outcome"]))
                print(
                    f"{given.seed}:{failure['index']} {failure['outcome']} {failure['rule']}: {failure['reason'][:150]}",
                    flush=True,
                )
                written, _ = _apart(partial(_kept, given.seed, failure, given.pack, given.failures))
                print("  written:", written, flush=True)
    told = summary(rows, time.monotonic() - began)
    show(told, library(given.pack))
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1))
    return int(bool(told["outcomes"].get(CHANGED) or told["outcomes"].get(CRASHED)))


def summary(rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """All blocks together."""
    total: dict[str, Counter[str]] = {k: Counter() for k in TOLD}
    failed: Counter[str] = Counter()
    for row in rows:
        for key, counter in total.items():
            counter.update(row[key])
        failed.update(f"{f['outcome']} {f['rule'] or 'engine'}" for f in row["failures"])
    return {"version": graphopt.__version__, "seconds": seconds, "failed": dict(failed.most_common()),
            **{k: dict(c.most_common()) for k, c in total.items()}}  # fmt: skip


def show(told: dict[str, Any], rules: Library) -> None:
    """Print the summary."""
    print(f"\n{sum(told['outcomes'].values())} models: " + ", ".join(f"{n} {k}" for k, n in told["outcomes"].items()))
    fired = told["rules"]
    print(f"rules: {len(fired)} of {len(rules.rules)} fired, {sum(fired.values())} times")
    print("dtypes: " + ", ".join(f"{k} {n}" for k, n in told["dtypes"].items()))
    print("opsets: " + ", ".join(f"{k} {n}" for k, n in sorted(told["opsets"].items(), key=lambda item: int(item[0]))))
    print(
        f"operators: {len(told['operators'])}: "
        + ", ".join(f"{k} {n}" for k, n in list(told["operators"].items())[:20])
        + " ..."
    )
    print(f"refused by the engine, with a reason: {sum(told['refusals'].values())}")
    for failure, n in told["failed"].items():
        print(f"  {n:5d} {failure}")


if __name__ == "__main__":
    sys.exit(main())
