"""Which rules fire on some model, and which on none.

    python -m tests.bench.fires [--steps 200] [--suite-steps 30] [--no-suite] [--json FILE]

A rule fires on a model when it has a match there whose rewrite the engine accepts; whether it pays, by its ``prefer``
lines or by prediction, is not asked. Models are all exports in the zoo's folder and the onnx package's backend test
suite; of the suite's, those of an operator set that graphopt refuses as too old are converted first. On each, these graphs are looked at, in this order; a rule is listed under the first in which it fires:

- ``original``: the graph as it was loaded;
- ``simplified``: where every search starts;
- ``greedy``: all graphs that the greedy search goes through, with prices that nobody measured;
- ``walk``: a random walk from the simplified graph, which draws a rule and then one of its matches.

The same seed gives the same table on any machine, unless a walk or a search runs into its time limit; such models are
named.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.sites import Key, Sites
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Problem, State
from graphopt.zoo.export import cache_dir
from tests.bench.backend import Case, cases

STAGES = ("original", "simplified", "greedy", "walk")

_CANDIDATES = 5000
_SECONDS = 15.0  # for the search and for the walk, each


@dataclass
class Visit:
    """What was found on one model.

    Attributes:
        model: Its name.
        fired: Stage by rule.
        steps: Rewrites of the walk.
        note: Why the visit was cut short, if it was.
    """

    model: str
    fired: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    note: str = ""

    def look(self, graph: Graph, sites: Sites, stage: str) -> None:
        """Try the matches that the last edit brought, of rules that have not fired here yet."""
        for key in sites.fresh:
            if key[0] not in self.fired:
                try:
                    apply(graph, sites.matches[key])
                except RefusedError:
                    continue
                self.fired[key[0]] = stage


@dataclass(frozen=True)
class Source:
    """A model to visit.

    Attributes:
        name: What to call it.
        model: The file of a zoo model, or a test of the suite.
        steps: Length of its walk.
    """

    name: str
    model: Path | Case
    steps: int


def visit(source: Source, library: Library) -> Visit:
    """Look at a model in all stages."""
    found = Visit(source.name)
    try:
        graph = load(source.model.proto() if isinstance(source.model, Case) else source.model).graph
        with collector_paused():
            found.look(graph, Sites.of(graph, library), "original")
            with Store(None) as store:
                problem = Problem(library, KernelCost(store, measure=False))
                start = problem.start(simplify(graph))
                found.look(start.graph, start.sites, "simplified")
                _search(found, problem, start)
            # Seeded by name, so that another model more does not change what the others give.
            _walk(found, start.graph, start.sites, source.steps, random.Random(zlib.crc32(source.name.encode())))
    except GraphoptError as error:
        found.note = f"refused: {error}"[:200]
    except Exception as error:  # one bad model must not hide what the others say
        found.note = f"crashed: {type(error).__name__}: {error}"[:200]
    return found


def _search(found: Visit, problem: Problem, start: State) -> None:
    budget = Budget(_SECONDS, _CANDIDATES)
    outcome = Greedy().run(problem, start, budget, lambda state: found.look(state.graph, state.sites, "greedy"))
    if budget.elapsed >= _SECONDS:
        found.note = f"the search took {outcome.seconds:.0f} s"


def _walk(found: Visit, graph: Graph, sites: Sites, steps: int, rng: random.Random) -> None:
    deadline = time.monotonic() + _SECONDS
    while found.steps < steps:
        if time.monotonic() > deadline:
            found.note = f"the walk ended after {found.steps} steps"
            return
        by_rule: dict[str, list[Key]] = {}
        for key in sorted(sites.matches):
            by_rule.setdefault(key[0], []).append(key)
        while by_rule:
            rule = rng.choice(list(by_rule))
            keys = by_rule[rule]
            key = keys.pop(rng.randrange(len(keys)))
            if not keys:
                del by_rule[rule]
            try:
                graph, delta = apply(graph, sites.matches[key])
            except RefusedError:
                continue
            sites = sites.after(graph, delta)
            found.steps += 1
            found.look(graph, sites, "walk")
            break
        else:
            return


def sources(steps: int, suite_steps: int, suite: bool = True) -> list[Source]:
    """All models: the zoo's exports, the longest to visit first, then the suite."""
    files = sorted(cache_dir().glob("*.onnx"), key=lambda path: (-path.stat().st_size, path.name))
    found = [Source(f"zoo/{path.stem}", path, steps) for path in files]
    if suite:
        found += [Source(f"{case.kind}/{case.name}", case, suite_steps) for case in cases(upgrade=True)]
    return found


def run(chosen: Sequence[Source], library: Library, jobs: int) -> list[Visit]:
    """Visit models in child processes."""
    _work.update(sources=chosen, library=library)  # children inherit it: tests of the suite are large to send
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return pool.map(_one, range(len(chosen)), chunksize=1)


_work: dict[str, Any] = {}


def _one(index: int) -> Visit:
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    return visit(_work["sources"][index], _work["library"])


def summary(visits: Sequence[Visit], library: Library) -> dict[str, Any]:
    """For each rule: the stage in which it fires, on how many models, and one of them."""
    rules: dict[str, Any] = {}
    for rule in library.rules:
        where = [(STAGES.index(v.fired[rule.id]), v.model) for v in visits if rule.id in v.fired]
        stage, model = min(where, key=lambda w: w[0]) if where else (None, None)
        rules[rule.id] = {
            "family": rule.family,
            "stage": None if stage is None else STAGES[stage],
            "models": len(where),
            "zoo_models": sum(name.startswith("zoo/") for _, name in where),
            "model": model,
        }
    notes = {v.model: v.note for v in visits if v.note}
    return {
        "schema": "graphopt.fires/1",
        "library": library.hash,
        "models": len(visits),
        "rules": rules,
        "notes": notes,
    }


def report(found: dict[str, Any]) -> str:
    """The table by family, and the rules that never fire."""
    rules = found["rules"]
    families = sorted({r["family"] for r in rules.values()})
    heads = "".join(f"{stage:>12}" for stage in STAGES)
    lines = [f"{'family':16}{'rules':>6}{'fire':>6}{'zoo':>6}{heads}"]
    for family in [*families, "all"]:
        these = [r for r in rules.values() if family in ("all", r["family"])]
        stages = Counter(r["stage"] for r in these)
        zoo = sum(r["zoo_models"] > 0 for r in these)
        counts = "".join(f"{stages[stage]:12}" for stage in STAGES)
        lines.append(f"{family:16}{len(these):6}{len(these) - stages[None]:6}{zoo:6}{counts}")
    never = [(r["family"], id) for id, r in rules.items() if r["stage"] is None]
    fire = len(rules) - len(never)
    lines += ["", f"{fire} of {len(rules)} rules fire on some of {found['models']} models; {len(never)} never do:"]
    for family in families:
        ids = sorted(id for f, id in never if f == family)
        lines += [f"  {family}: {', '.join(ids)}"] if ids else []
    refused = sum(note.startswith("refused") for note in found["notes"].values())
    lines += ["", f"{refused} models were refused"] if refused else []
    lines += [f"{model}: {note}" for model, note in found["notes"].items() if not note.startswith("refused")]
    return "\n".join(lines)


def main() -> int:
    """Visit all models and print the table; the exit status is 1 when the engine crashed on one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="length of the walk on a model of the zoo")
    parser.add_argument("--suite-steps", type=int, default=30, help="the same on a model of the suite")
    parser.add_argument("--no-suite", action="store_true", help="the zoo alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    begin = time.monotonic()
    library = load_library(evidence=False)
    chosen = sources(arguments.steps, arguments.suite_steps, not arguments.no_suite)
    visits = run(chosen, library, arguments.jobs)
    found = summary(visits, library)
    print(report(found))
    print(f"{len(visits)} models, {sum(v.steps for v in visits)} random rewrites, {time.monotonic() - begin:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if any(note.startswith("crashed") for note in found["notes"].values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
