"""Generate rules: enumerate graphs, pair those with equal fingerprints, prove, prune, write.

TASO's way (Jia et al., SOSP 2019) over ONNX's operators, without a list of rules known to be wrong: what is written was
proved by the prover that all rules go through. The chain is told as numbers in a :class:`Chain`.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from graphopt.execution import Executor
from graphopt.prover.cases import Case
from graphopt.prover.evidence import Verdict
from graphopt.synth.journal import Journal, OutOfTime
from graphopt.synth.pairs import Pair
from graphopt.synth.work import (
    Attacked,
    Enumerated,
    Group,
    Merged,
    Proved,
    ToProve,
    Usage,
    attack,
    check,
    derivable,
    enumerate_world,
    merge,
    mergeable,
    paying,
    prove_group,
)
from graphopt.synth.worlds import select, strangers
from graphopt.version import __version__

T = TypeVar("T")
LIMIT = 150_000
"""Graphs of one number of operators that are made in a world, at most."""
PROOFS = 0.65
"""Share of the budget for enumeration and proofs."""
_SLICE = 40  # groups of which one task says whether they can pay
_CHUNK = 16  # groups that are proved before rules are kept and the next ones are looked at
_TURNS = 6  # rounds of the last attack
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
        open: Skeletons that did not.
        proved: Rules proved.
        rejected: Attempts refuted, or not proved.
        timeouts: Attempts that took too long.
        subsumed: Proved rules that follow from others.
        merged: Rules that became part of one for several operators.
        fallen: Rules that were refuted at last, at many more instances.
        mended: Rules that were proved in place of fallen ones, with conditions that exclude the counterexample.
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
    mended: int = 0
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
        fixed: Variables of its draft in whose place it has numbers.
        refuted: Instances at which rules that it came in place of were wrong.
        ops: Operators any of which it is for, where it was merged of several.
        members: These.
    """

    text: str
    pairs: tuple[Pair, ...]
    verdict: Verdict
    fixed: Mapping[str, str] = field(default_factory=dict)
    refuted: tuple[Case, ...] = ()
    ops: tuple[str, ...] = ()
    members: tuple[Kept, ...] = ()


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
        proofs = None if seconds is None else PROOFS * seconds
        self.journal = Journal(folder, {"version": __version__, **asdict(plan)}, proofs)
        self._until = None if proofs is None else time.time() + proofs
        self._report = report or (lambda stage, chain: None)
        self._usage: dict[str, Usage] = {}
        self._started = time.monotonic()
        self._doing = ""

    def run(self) -> list[Kept]:
        """All stages but the writing; the rules kept."""
        try:
            self._prove(in_turn(self._paying(self._enumerate())))
        except OutOfTime:
            self.chain.finished = False
            again = "; a world is enumerated in one go: give more minutes" if self._doing.startswith("enumerat") else ""
            self.chain.cut.append(f"the budget was used up at: {self._doing}{again}")
        self.journal.deadline = None  # what was found is finished
        self._tell("pruning")
        self._prune()
        self._attack("attack", attack, list(self.kept))
        self._tell("merging")
        self._merge()
        self._attack("attack", attack, [k for k in self.kept if k.members])
        self._attack("check", check, list(self.kept))
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
        tasks = [(world, plan.depth, plan.seed, plan.limit, self._until) for world in self.worlds]
        groups: dict[Any, Group] = {}
        self._tell(f"enumerating {len(tasks)} worlds")
        apart = strangers(plan.ops)
        told = {frozenset((op, other)): f"no world has {op} with {other}" for op in apart for other in apart[op]}
        self.chain.cut += told.values()
        for made in self.journal.map("enumerate", self.executor, enumerate_world, tasks, asdict, _record(Enumerated)):
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
        return list(groups.values())

    def _paying(self, groups: list[Group]) -> list[Group]:
        """The groups whose rewrite can save something."""
        slices = [groups[i : i + _SLICE] for i in range(0, len(groups), _SLICE)]
        left: list[Group] = []
        told = self.journal.map("paying", self.executor, paying, slices, _with_usage, _from_usage)
        for part, (pays, usage) in zip(slices, told, strict=True):
            self._remember(usage)
            left += [group for group, able in zip(part, pays, strict=True) if able]
            self.chain.unpaying += pays.count(False)
            self._tell("looking for what can pay")
        return left

    def _prove(self, groups: list[Group]) -> None:
        """Prove groups in their turn, those that the rules kept so far do not give."""
        for start in range(0, len(groups), _CHUNK):
            rules = [k.text for k in self.kept]
            tasks: list[ToProve] = [
                (group, rules, self.plan.seed, [], self._until) for group in groups[start : start + _CHUNK]
            ]
            stage = f"prove-{start:05}"
            for proved in self.journal.map(stage, self.executor, prove_group, tasks, asdict, _record(Proved)):
                self._take(proved, known=len(rules))
                self._tell(f"proving: {start} of {len(groups)}")

    def _take(self, proved: Proved, known: int = -1, refuted: tuple[Case, ...] = ()) -> int:
        """Keep what was proved unless it follows from other rules; how many rules were proved.

        Args:
            proved: What was proved.
            known: How many rules it was already seen not to follow from.
            refuted: Instances that were known to refute rules for it.
        """
        self._remember(proved.usage)
        self.chain.derived += proved.derived
        self.chain.open += not proved.derived and not refuted
        count = 0
        for found in proved.found:
            if found["outcome"] == "rejected":
                self.chain.rejected += 1
            elif found["outcome"] == "timeout":
                self.chain.timeouts += 1
            else:
                count += 1
                pairs = tuple(map(Pair.from_json, found["pairs"]))
                if len(self.kept) > known and derivable(
                    [(f"kept-{i}", k.text) for i, k in enumerate(self.kept)], pairs, found["text"]
                ):
                    self.chain.subsumed += 1
                else:
                    self.kept.append(Kept(found["text"], pairs, Verdict(**found["verdict"]), found["fixed"], refuted))
        self.chain.proved += count
        return count

    def _prune(self) -> None:
        """Drop what follows from rules that came later: the largest first."""
        left = list(self.kept)
        for kept in sorted(self.kept, key=lambda k: -k.pairs[0].size):
            others = [(f"kept-{i}", k.text) for i, k in enumerate(left) if k is not kept]
            if derivable(others, kept.pairs, kept.text):
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
                members = tuple(self.kept[m] for m in made.members)
                pairs = tuple(p for m in members for p in m.pairs)
                added.append(Kept(made.text, pairs, made.verdict, ops=made.ops, members=members))
                self.chain.merged += len(made.members) - 1
        self.kept = [k for i, k in enumerate(self.kept) if i not in gone] + added

    def _attack(self, name: str, work: Callable[[tuple[str, int]], Attacked], attacked: list[Kept]) -> None:
        """Attack rules at other instances than they were proved at.

        What falls is proved anew with conditions that exclude the counterexample, and attacked in its turn, or goes.

        Args:
            name: Of the attack.
            work: :func:`graphopt.synth.work.attack` or :func:`graphopt.synth.work.check`.
            attacked: The rules.
        """
        for turn in range(_TURNS):
            texts = [k.text for k in attacked]
            stage, tasks = _named(f"{name}-{turn}", texts), [(text, turn) for text in texts]
            told = self.journal.map(stage, self.executor, work, tasks, asdict, _record(Attacked))
            felled: list[tuple[Kept, Attacked]] = []
            for kept, found in zip(attacked, told, strict=True):
                self._remember(found.usage)
                felled += [(kept, found)] if found.message else []
                if found.text:
                    weaker = replace(kept, text=found.text, verdict=Verdict(**found.verdict))
                    self.kept = [weaker if k is kept else k for k in self.kept]
                self._tell(f"what is kept: {name} {turn + 1}")
            fallen = [kept for kept, _ in felled]
            others = [k for k in self.kept if k not in fallen]
            self._drop(fallen)
            if turn + 1 < _TURNS:
                self._mend(felled, turn)
            attacked = [k for k in self.kept if k not in others]

    def _drop(self, fallen: Sequence[Kept]) -> None:
        """Take away rules that fell; those made of several become these again."""
        self.kept = [k for k in self.kept if k not in fallen]
        for kept in fallen:
            self.kept += kept.members
            self.chain.fallen += not kept.members
            self.chain.merged -= max(0, len(kept.members) - 1)

    def _mend(self, felled: Sequence[tuple[Kept, Attacked]], turn: int) -> None:
        """Prove what fell with conditions that exclude the counterexamples."""
        whole = [(k, (*k.refuted, {**k.fixed, **told.refuted})) for k, told in felled if not k.members]
        tasks: list[ToProve] = [
            ([p.to_json() for p in k.pairs], [], self.plan.seed, list(refuted), None) for k, refuted in whole
        ]
        stage = _named(f"mend-{turn}", [k.text for k, _ in whole])
        told = self.journal.map(stage, self.executor, prove_group, tasks, asdict, _record(Proved))
        for (_, refuted), proved in zip(whole, told, strict=True):
            self.chain.mended += self._take(proved, refuted=refuted)


def _named(stage: str, texts: Sequence[str]) -> str:
    """A name for a stage whose tasks depend on how far the proofs came."""
    return f"{stage}-{hashlib.blake2b(''.join(texts).encode(), digest_size=8).hexdigest()}"


def _with_usage(result: tuple[Any, Usage]) -> Any:
    return [result[0], asdict(result[1])]


def _from_usage(data: Any) -> tuple[Any, Usage]:
    return data[0], Usage(**data[1])


def _record(kind: Callable[..., T]) -> Callable[[Any], T]:
    """Makes a record of what JSON has of it."""
    return lambda data: kind(**{**data, "usage": Usage(**data["usage"])})


def _merged_out(made: Merged | None) -> Any:
    return None if made is None else asdict(made)


def _merged_in(data: Any) -> Merged | None:
    if data is None:
        return None
    return Merged(tuple(data["ops"]), data["text"], tuple(data["members"]), Verdict(**data["verdict"]))


ALIKE = 8
"""Laws of the same operators that count as much as one operator more."""


def in_turn(groups: Sequence[Group]) -> list[Group]:
    """Groups of pairs, each of one skeleton, in the order in which they should be looked at.

    A run that is out of time should have met every family of laws. Small laws come first, because larger ones follow from them;
    but some combinations of operators have laws by the hundred, all small and all alike (where signs may stand, what may be
    added twice), and others have two. So every law of a combination pushes those after it back.
    """
    before: Counter[frozenset[str]] = Counter()
    placed: list[tuple[int, int, Group]] = []
    for pair, group in sorted(((Pair.from_json(group[0]), group) for group in groups), key=lambda item: _size(item[0])):
        placed.append((pair.size + before[pair.ops] // ALIKE, len(placed), group))
        before[pair.ops] += 1
    return [group for _, _, group in sorted(placed, key=lambda item: item[:2])]


def _size(pair: Pair) -> tuple[int, int, int, str]:
    """Small laws first, and of those the ones with more inputs that may differ."""
    return pair.size, len(pair.before.nodes), -len(pair.shapes), repr(pair.skeleton())
