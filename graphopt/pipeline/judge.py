"""Stage 4, ``judge``: measure what was found against the original, and decide what is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graphopt.ir.graph import Graph
from graphopt.onnxio.emit import Emitted, emit
from graphopt.pipeline.context import Context, smaller
from graphopt.pipeline.opening import as_given, first_run, open_sizes
from graphopt.pipeline.prepare import patience
from graphopt.pipeline.verify import Verified, verify
from graphopt.runtime import guard
from graphopt.runtime.environment import Neighbours
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.effort import Effort
from graphopt.search.problem import Budget

_VISIBLE = 1.003  # a measured ratio below which a second look is not worth its time
TIE = 0.01
"""How far from 1 an interval that holds it may reach for the two models to be as fast as each other."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What is to be written.

    Attributes:
        verified: What was left after the comparison.
        graph: The candidate, or the graph of the input where there is none.
        paired: Its measurement against the original; ``None`` when nothing was measured.
        elsewhere: The same at other sizes.
        kept: Whether the input is written in its place.
        tie: Whether the candidate is written because it is simpler, and as fast.
        final: What is written.
        memory: Peak bytes of a process that runs the original, and of one that runs the candidate; ``None`` where not measured.
        others: Processors that other programs took during the measurement; ``None`` where nobody knows.
        apart: Whether processors were seen far from each other; ``None`` where nobody knows.
        lost: The measurement of what the search found, where the normal form is written in its place.
        lost_at: Of which set of sizes that is; empty for the first.
    """

    verified: Verified
    graph: Graph
    paired: Paired | None
    elsewhere: tuple[tuple[dict[str, int], Paired], ...]
    kept: bool
    tie: bool
    final: Emitted
    memory: tuple[int | None, int | None] = (None, None)
    others: float | None = None
    apart: bool | None = None
    lost: Paired | None = None
    lost_at: Mapping[str, int] = field(default_factory=dict)


def judge(context: Context, verified: Verified) -> Judged:
    """Measure the candidate over several sessions of each model; it must be surely faster, or as fast and simpler.

    That goes by the first set of sizes; at another it may be as fast as it likes, but not surely slower.
    """
    outcome, original = verified.selection.outcome, context.original
    if not outcome.steps and verified.verification is None:
        return Judged(verified, context.loaded.graph, None, (), True, False, emit(original, original.graph))
    graph = outcome.state.graph
    candidate = emit(context.loaded, graph, max_bytes=context.limit)
    if not context.settings.measure:
        return Judged(verified, graph, None, (), False, False, candidate)
    context.tell("measure", "measuring against the original")
    simpler = not context.settings.keep_ties and smaller(original, candidate)
    neighbours = Neighbours()
    paired = verdict(context.arena, graph, context.clock, context.effort, simpler)
    others = neighbours.cores()
    distance = context.arena.distance
    apart = distance.far() or distance.spells if distance is not None else None
    elsewhere = _elsewhere(context, graph)
    loses = any(_loses(there) for _, there in elsewhere)
    faster = paired.ci95[0] > 1.0 and not loses
    tie = not (faster or loses) and simpler and is_tie(paired)
    memory = _memory(context, verified) if faster or tie else (None, None)
    final = candidate if faster or tie else emit(original, original.graph)
    return Judged(verified, graph, paired, elsewhere, not (faster or tie), tie, final, memory, others, apart)


def fall_back(context: Context, judged: Judged) -> Judged:
    """Where what the search found loses to the original, or seemed to lose to the normal form, the normal form in its place, if that is faster."""
    searched, clock, effort = judged.verified.searched, context.clock, context.effort
    ends = clock.elapsed + effort.plan.verdict * (effort.seconds or 0.0)
    late = effort.seconds is not None and ends > (1 + effort.plan.overtime) * effort.seconds
    beaten = judged.kept or (judged.paired is not None and searched.selection.losing)
    if not beaten or searched.plain is None or clock.interrupted_now or late:
        return judged
    plain = searched.plain()
    if not plain.selection.outcome.steps and not context.simpler:
        return judged
    context.tell("verify", "comparing outputs of the normal form")
    other = judge(context, verify(context, plain))
    better = not other.kept and (judged.kept or _ratio(other) > _ratio(judged))
    loser = judged if better else other
    if loser.verified.staged is not None:
        loser.verified.staged.close()
    if not better:
        return judged
    at, lost = next(((sizes, there) for sizes, there in judged.elsewhere if _loses(there)), ({}, judged.paired))
    return replace(other, lost=lost, lost_at=at)


def _loses(paired: Paired) -> bool:
    """Whether the variant is surely slower."""
    return paired.ci95[1] < 1.0


def _ratio(judged: Judged) -> float:
    return 0.0 if judged.paired is None else judged.paired.speedup


def is_tie(paired: Paired) -> bool:
    """Whether the variant is slower by no more than a per cent if at all, perhaps faster, and surely opens faster."""
    low, high = paired.ci95
    return low >= 1 - TIE and high >= 1 and paired.opens is not None and paired.opens[1][0] > 1.0


def verdict(arena: Arena, graph: Graph, clock: Budget, effort: Effort, smaller: bool = False) -> Paired:
    """The measurement against the original; where noise hides a gain (for a smaller graph, a tie) as many sessions again."""
    plan, limit = effort.plan, effort.seconds
    if clock.interrupted_now:
        return arena.verdict(graph, plan.hurry_s)
    rounds, sessions = effort.session_rounds, effort.sessions

    def stop() -> bool:
        return clock.interrupted_now

    began = clock.elapsed
    seconds = math.inf if limit is None else max(plan.verdict * limit, plan.rest * (limit - began))
    first = arena.verdict(graph, seconds, rounds, sessions, stop)
    if clock.interrupted_now or not (_hidden_gain(first) or (smaller and _hidden_tie(first))):
        return first
    if limit is not None:
        if 2 * clock.elapsed - began > (1 + plan.overtime) * limit:
            return first  # opening a large model takes what it takes
        seconds = min(plan.second * limit, plan.second_s, (1 + plan.overtime) * limit - clock.elapsed)
    return first.joined(arena.verdict(graph, seconds, rounds, sessions, stop))


def _hidden_gain(paired: Paired) -> bool:
    low, high = paired.ci95
    # On a busy machine the interval may hold a gain although its middle does not.
    return low <= 1.0 and (paired.speedup >= _VISIBLE or high >= 1 + 2 * TIE)


def _hidden_tie(paired: Paired) -> bool:
    low, high = paired.ci95
    return low <= 1.0 <= high and not is_tie(paired) and abs(paired.speedup - 1) < TIE


def _memory(context: Context, verified: Verified) -> tuple[int | None, int | None]:
    """Peak memory of the two models, as files."""
    clock, plan, limit = context.clock, context.effort.plan, context.effort.seconds
    late = limit is not None and clock.elapsed > (1 + plan.overtime) * limit
    if verified.staged is None or clock.interrupted_now or late:
        return None, None
    arena = context.arena
    context.tell("measure", "measuring peak memory")
    original = as_given(context.held, context.original)
    before, after = (
        guard.peak_memory(each, arena.config, arena.feeds, arena.patience) for each in (original, verified.staged.path)
    )
    return before, after


def _elsewhere(context: Context, graph: Graph) -> tuple[tuple[dict[str, int], Paired], ...]:
    """The measurement against the original at other sizes, each on top of the effort."""
    found: list[tuple[dict[str, int], Paired]] = []
    arena, effort = context.arena, context.effort
    for sizes in context.sets[1:]:
        if context.clock.interrupted_now:
            break
        there = _arena_at(context, arena, sizes)
        limit = effort.seconds
        seconds = math.inf if limit is None else max(effort.plan.hurry_s, effort.plan.elsewhere * limit)
        paired = there.verdict(
            graph, seconds, effort.session_rounds, effort.sessions, lambda: context.clock.interrupted_now
        )
        found.append((open_sizes(arena.original, there.feeds), paired))
    return tuple(found)


def _arena_at(context: Context, arena: Arena, sizes: Mapping[str, int]) -> Arena:
    """Where graphs are measured at some sizes."""
    shapes = dict(context.settings.input_shapes)
    seconds, feeds = first_run(arena.original, arena.config, context.ranges, (), sizes, arena.seed, shapes)
    return replace(arena, feeds=feeds, patience=patience(seconds), known=set())  # nothing has run at these
