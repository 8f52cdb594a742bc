"""Stage 4, ``judge``: measure what was found against the original, and decide what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphopt.ir.graph import Graph
from graphopt.onnxio.emit import Emitted, emit
from graphopt.pipeline.context import Context
from graphopt.pipeline.opening import first_run, open_sizes
from graphopt.pipeline.prepare import patience
from graphopt.pipeline.verify import Verified
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.effort import Effort
from graphopt.search.problem import Budget

_VISIBLE = 1.003  # a measured ratio below which a second look is not worth its time


@dataclass(frozen=True, eq=False)
class Judged:
    """What is to be written.

    Attributes:
        verified: What was left after the comparison.
        graph: The candidate, or the graph of the input where there is none.
        paired: Its measurement against the original; ``None`` when nothing was measured.
        elsewhere: The same at other sizes.
        kept: Whether the input is written in its place.
        final: What is written.
    """

    verified: Verified
    graph: Graph
    paired: Paired | None
    elsewhere: tuple[tuple[dict[str, int], Paired], ...]
    kept: bool
    final: Emitted


def judge(context: Context, verified: Verified) -> Judged:
    """Measure the candidate over several sessions of each model; unless it is surely faster, the input is kept."""
    outcome = verified.selection.outcome
    graph = outcome.state.graph if outcome.steps else context.loaded.graph
    paired: Paired | None = None
    elsewhere: tuple[tuple[dict[str, int], Paired], ...] = ()
    if verified.verification is not None and context.settings.measure:
        context.tell("measure", "measuring against the original")
        paired = verdict(context.arena, graph, context.clock, context.effort)
        elsewhere = _elsewhere(context, graph)
    kept = not outcome.steps or (paired is not None and paired.ci95[0] <= 1.0)
    original = context.original
    final = emit(original, original.graph) if kept else emit(context.loaded, graph, max_bytes=context.limit)
    return Judged(verified, graph, paired, elsewhere, kept, final)


def verdict(arena: Arena, graph: Graph, clock: Budget, effort: Effort) -> Paired:
    """The measurement against the original; a gain that noise hides gets a second, longer look."""
    plan, limit = effort.plan, effort.seconds
    if clock.interrupted_now:
        return arena.verdict(graph, plan.hurry_s)
    began = clock.elapsed
    if limit is None:
        first = arena.verdict(graph, session_rounds=effort.session_rounds, sessions=effort.sessions)
    else:
        first = arena.verdict(graph, max(plan.verdict * limit, plan.rest * (limit - began)))
    if first.ci95[0] > 1.0 or first.speedup < _VISIBLE or clock.interrupted_now:
        return first
    if limit is None:
        return arena.verdict(graph, session_rounds=effort.session_rounds, sessions=2 * effort.sessions)
    if clock.elapsed + (clock.elapsed - began) > limit + plan.overtime_s:  # opening a large model takes what it takes
        return first
    return arena.verdict(graph, min(plan.second * limit, plan.second_s))


def _elsewhere(context: Context, graph: Graph) -> tuple[tuple[dict[str, int], Paired], ...]:
    """The measurement against the original at other sizes, each on top of the effort."""
    found: list[tuple[dict[str, int], Paired]] = []
    arena, effort = context.arena, context.effort
    for sizes in context.sets[1:]:
        if context.clock.interrupted_now:
            break
        there = _arena_at(context, arena, sizes)
        if effort.seconds is None:
            paired = there.verdict(graph, session_rounds=effort.session_rounds, sessions=effort.sessions)
        else:
            paired = there.verdict(graph, max(effort.plan.hurry_s, effort.plan.elsewhere * effort.seconds))
        found.append((open_sizes(arena.original, there.feeds), paired))
    return tuple(found)


def _arena_at(context: Context, arena: Arena, sizes: Mapping[str, int]) -> Arena:
    """Where graphs are measured at some sizes."""
    shapes = dict(context.settings.input_shapes)
    seconds, feeds = first_run(arena.original, arena.config, context.ranges, {}, sizes, arena.seed, shapes)
    return replace(arena, feeds=feeds, patience=patience(seconds), known=set())  # nothing has run at these
