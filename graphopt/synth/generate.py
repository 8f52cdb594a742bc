"""Generate rules: enumerate graphs, pair those with equal fingerprints, prove, prune, write.

TASO's way (Jia et al., SOSP 2019) over ONNX's operators, without a list of rules known to be wrong: what is written was
proved by the prover that all rules go through. The chain is told as numbers in a :class:`Chain`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphopt import __version__
from graphopt.equivalence.evidence import Verdict
from graphopt.execution import Executor
from graphopt.synth.journal import Journal, OutOfTime
from graphopt.synth.merge import Merged, merge, mergeable
from graphopt.synth.operators import BINARY, UNARY
from graphopt.synth.pairs import Pair
from graphopt.synth.work import (
    Enumerated,
    Group,
    Proved,
    Usage,
    attack,
    derivable,
    enumerate_world,
    filter_groups,
    prove_group,
)
from graphopt.synth.worlds import select

LIMIT = 150_000
"""Graphs of one number of operators that are made in a world, at most."""
PROOFS = 0.8
"""Share of the budget for enumeration and proofs."""
_SLICE = 40  # groups that one task filters
_CHUNK = 16  # groups that are proved before rules are kept and the next ones are looked at
_TURNS = 6  # rounds of the last attack
_SMALL = 3  # size up to which laws of arithmetic have their turn with the others
_ARITHMETIC = frozenset({*UNARY, *BINARY, "Pow"})
_INSTANCES = 12  # pairs of a skeleton that go on to the next stage


@dataclass(frozen=True)
class Plan:
    """What to generate. The same plan gives the same rules, however often it is interrupted and whatever it runs on.

    Attributes:
        ops: Presets or operators; none for everything.
        depth: Operators of a graph, at most.
        max_dim: Largest dimension of an input.
        seed: Of random elements.
        limit: Graphs of one number of operators in a world.
    """

    ops: tuple[str, ...] = ()
    depth: int = 3
    max_dim: int = 4
    seed: int = 0
    limit: int = LIMIT


@dataclass
class Chain:
    """How many were left after each stage.

    Attributes:
        graphs: Enumerated.
        classes: Different fingerprints.
        pairs: Of equal fingerprints.
        skeletons: Different but for shapes and attributes.
        unpaying: Skeletons that can never save anything.
        derived: Skeletons that followed from rules kept before they came to be proved.
        open: Skeletons left to prove.
        proved: Rules proved.
        rejected: Attempts refuted, or not proved.
        timeouts: Attempts that took too long.
        subsumed: Proved rules that follow from others.
        merged: Rules that became part of one for several operators.
        fallen: Rules that were refuted at last, at many more instances.
        kept: Rules kept.
        cut: What a limit or the budget left out, for people.
        finished: Whether the budget sufficed.
        seconds: Since this process began.
        processor: Seconds of processor time, of all processes, those of an interrupted run included.
        memory: Bytes at most, all processes together.
    """

    graphs: int = 0
    classes: int = 0
    pairs: int = 0
    skeletons: int = 0
    unpaying: int = 0
    derived: int = 0
    open: int = 0
    proved: int = 0
    rejected: int = 0
    timeouts: int = 0
    subsumed: int = 0
    merged: int = 0
    fallen: int = 0
    kept: int = 0
    cut: list[str] = field(default_factory=list)
    finished: bool = True
    seconds: float = 0.0
    processor: float = 0.0
    memory: int = 0


@dataclass(frozen=True)
class Kept:
    """A rule that was kept.

    Attributes:
        text: In YAML, with ``ID`` and ``DOC``.
        pairs: The pairs that it came from.
        verdict: Its evidence.
        ops: Operators any of which it is for, where it was merged of several.
    """

    text: str
    pairs: tuple[Pair, ...]
    verdict: Verdict
    ops: tuple[str, ...] = ()


Report = Callable[[str, Chain], None]


class Generator:
    """One run.

    Args:
        plan: What to generate.
        executor: Where the work is done.
        folder: For what is not finished.
        seconds: Budget, ``None`` for none. Proofs may take :data:`PROOFS` of it; then what was found is finished.
        report: Hears what is being done.

    Raises:
        UsageError: The plan makes no sense; see :func:`graphopt.synth.worlds.select`.
    """

    def __init__(
        self, plan: Plan, executor: Executor, folder: Path, seconds: float | None = None, report: Report | None = None
    ) -> None:
        self.plan, self.executor = plan, executor
        self.worlds = select(plan.ops, plan.max_dim)  # before anything is written: names may be wrong
        self.chain = Chain()
        self.kept: list[Kept] = []
        self.journal = Journal(
            folder, {"version": __version__, **asdict(plan)}, None if seconds is None else PROOFS * seconds
        )
        self._report = report or (lambda stage, chain: None)
        self._usage: dict[str, Usage] = {}
        self._started = time.monotonic()
        self._doing = ""

    def run(self) -> list[Kept]:
        """All stages but the writing; the rules kept."""
        try:
            groups = self._enumerate()
            for last, size in sorted({_round(g) for g in groups}):
                self._round(f"{'arithmetic ' if last else ''}{size}", [g for g in groups if _round(g) == (last, size)])
        except OutOfTime:
            self.chain.finished = False
            self.chain.cut.append(f"the budget was used up at: {self._doing}")
        self.journal.deadline = None  # what was found is finished
        self._tell("pruning")
        self._prune()
        self._tell("merging")
        self._merge()
        self._attack()
        self._tell("done")
        return self.kept

    def _tell(self, stage: str) -> None:
        self._doing = stage
        self.chain.kept = len(self.kept)
        self.chain.seconds = time.monotonic() - self._started
        self._remember(Usage.now())
        self.chain.memory = sum(u.bytes for u in self._usage.values())
        self.chain.processor = sum(u.seconds for u in self._usage.values())
        self._report(stage, self.chain)

    def _remember(self, usage: Usage) -> None:
        held = self._usage.get(usage.process, usage)
        self._usage[usage.process] = Usage(
            usage.process, max(usage.bytes, held.bytes), max(usage.seconds, held.seconds)
        )

    def _enumerate(self) -> list[Group]:
        plan = self.plan
        tasks = [(world, plan.depth, plan.seed, plan.limit) for world in self.worlds]
        groups: dict[Any, Group] = {}
        self._tell(f"enumerating {len(tasks)} worlds")
        for made in self.journal.map("enumerate", self.executor, enumerate_world, tasks, asdict, _enumerated):
            self._remember(made.usage)
            self.chain.graphs += made.terms
            self.chain.classes += made.classes
            self.chain.pairs += made.pairs
            if made.cut:
                self.chain.cut.append(f"world {made.world}: {plan.limit} graphs of {made.cut[0]} operators, not all")
            for group in made.groups:
                held = groups.setdefault(Pair.from_json(group[0]).skeleton(), [])
                held += group[: _INSTANCES - len(held)]
            self.chain.skeletons = len(groups)
            self._tell(f"enumerated {made.world}")
        return sorted(groups.values(), key=_order)

    def _round(self, name: str, groups: list[Group]) -> None:
        """Prove the skeletons of a round, those that the rules kept so far do not give."""
        rules = [k.text for k in self.kept]
        slices = [(groups[i : i + _SLICE], rules) for i in range(0, len(groups), _SLICE)]
        left: list[Group] = []
        done = 0
        stage = f"{name}-filter"
        for states, usage in self.journal.map(stage, self.executor, filter_groups, slices, _states, _unstates):
            self._remember(usage)
            for group, state in zip(groups[done : done + len(states)], states, strict=True):
                self.chain.unpaying += state == "saving"
                self.chain.derived += state == "derived"
                if state == "open":
                    left.append(group)
            done += len(states)
            self._tell(f"size {name}: {done} of {len(groups)} skeletons looked at")
        self.chain.open += len(left)
        for start in range(0, len(left), _CHUNK):
            rules = [k.text for k in self.kept]
            tasks = [(group, rules, self.plan.seed) for group in left[start : start + _CHUNK]]
            stage = f"{name}-prove-{start // _CHUNK}"
            for proved in self.journal.map(stage, self.executor, prove_group, tasks, asdict, _proved):
                self._remember(proved.usage)
                self._take(proved)
                self._tell(f"size {name}: {len(left)} skeletons to prove, {start} done")

    def _take(self, proved: Proved) -> None:
        self.chain.derived += proved.derived
        for found in proved.found:
            if found["outcome"] == "rejected":
                self.chain.rejected += 1
            elif found["outcome"] == "timeout":
                self.chain.timeouts += 1
            else:
                self.chain.proved += 1
                pairs = tuple(map(Pair.from_json, found["pairs"]))
                if derivable([(f"kept-{i}", k.text) for i, k in enumerate(self.kept)], pairs):
                    self.chain.subsumed += 1
                else:
                    self.kept.append(Kept(found["text"], pairs, Verdict(**found["verdict"])))

    def _prune(self) -> None:
        """Drop what follows from rules that came later: the largest first."""
        left = list(self.kept)
        for kept in sorted(self.kept, key=lambda k: -k.pairs[0].size):
            others = [(f"kept-{i}", k.text) for i, k in enumerate(left) if k is not kept]
            if derivable(others, kept.pairs):
                left.remove(kept)
                self.chain.subsumed += 1
        self.kept = left

    def _merge(self) -> None:
        """Make one rule of those that differ in one operator."""
        texts = [k.text for k in self.kept]
        tasks = [(ops, places, [texts[p] for p in places]) for ops, places in mergeable(texts)]
        gone: set[int] = set()
        added: list[Kept] = []
        for made in self.journal.map(_named("merge", texts), self.executor, merge, tasks, _merged_out, _merged_in):
            if made is not None:
                gone.update(made.members)
                pairs = tuple(p for m in made.members for p in self.kept[m].pairs)
                added.append(Kept(made.text, pairs, made.verdict, made.ops))
                self.chain.merged += len(made.members) - 1
        self.kept = [k for i, k in enumerate(self.kept) if i not in gone] + added

    def _attack(self) -> None:
        """Drop what falls at more instances than it was proved at, until nothing falls in a whole round."""
        fell, turn = True, 0
        while fell and turn < _TURNS:
            texts = [k.text for k in self.kept]
            stage, tasks = _named(f"attack-{turn}", texts), [(text, turn) for text in texts]
            told = self.journal.map(stage, self.executor, attack, tasks, _told, _untold)
            stands: list[Kept] = []
            for kept, (why, usage) in zip(self.kept, told, strict=True):
                self._remember(usage)
                stands += [] if why else [kept]
                self._tell(f"attacking what is kept, round {turn + 1}")
            fell, turn = len(stands) < len(self.kept), turn + 1
            self.chain.fallen += len(self.kept) - len(stands)
            self.kept = stands


def _named(stage: str, texts: Sequence[str]) -> str:
    """A name for a stage whose tasks depend on how far the proofs came."""
    return f"{stage}-{hashlib.blake2b(''.join(texts).encode(), digest_size=8).hexdigest()}"


def _round(group: Group) -> tuple[bool, int]:
    """When a skeleton's turn is: larger laws later, and those of arithmetic alone after all others.

    There are many of them, and their operators are seldom what a model spends its time on.
    """
    pair = Pair.from_json(group[0])
    ops = {node.op for side in (pair.before, pair.after) for node in side.nodes}
    return pair.size > _SMALL and ops <= _ARITHMETIC, pair.size


def _order(group: Group) -> tuple[int, int, int, str]:
    """Small laws first, and of those the ones with more inputs that may differ."""
    pair = Pair.from_json(group[0])
    return pair.size, len(pair.before.nodes), -len(pair.shapes), repr(pair.skeleton())


def _states(result: tuple[list[str], Usage]) -> Any:
    return [result[0], asdict(result[1])]


def _unstates(data: Any) -> tuple[list[str], Usage]:
    return data[0], Usage(**data[1])


def _told(result: tuple[str, Usage]) -> Any:
    return [result[0], asdict(result[1])]


def _untold(data: Any) -> tuple[str, Usage]:
    return data[0], Usage(**data[1])


def _enumerated(data: Any) -> Enumerated:
    return Enumerated(**{**data, "usage": Usage(**data["usage"])})


def _proved(data: Any) -> Proved:
    return Proved(**{**data, "usage": Usage(**data["usage"])})


def _merged_out(made: Merged | None) -> Any:
    return None if made is None else asdict(made)


def _merged_in(data: Any) -> Merged | None:
    if data is None:
        return None
    return Merged(tuple(data["ops"]), data["text"], tuple(data["members"]), Verdict(**data["verdict"]))
