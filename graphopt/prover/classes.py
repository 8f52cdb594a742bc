"""The classes of contents that a rule is tried on: those of its claim, and those that its operators, its numbers and its types ask for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from graphopt.ir.graph import Graph
from graphopt.ir.types import FLOATS
from graphopt.prover.hazards import COUNTING
from graphopt.prover.values import (
    BEYOND_FLOAT32,
    EXACT,
    NARROWED,
    PLACES,
    REAL,
    SUMMED,
    Fill,
    around,
    cast_operands,
    compares,
    extreme,
    makes_integers,
    multiplies,
    neighbours,
    next_to,
    of_range,
    own_numbers,
    widened,
)
from graphopt.rewrite.schema import Rule

_STEPPING = frozenset({"Round", "Floor", "Ceil", "QuantizeLinear", "Mod"})
"""Operators that jump from one number to the next, between which two ways to compute their operand may fall apart."""
_PLACING = frozenset({"ArgMax", "ArgMin", "TopK"})
_RISING = Fill("numbers that rise", magnitude=1.0, rising=True)
"""For operators that say where the largest is: far from the first place, to where narrow types don't count."""
MASKED = Fill("numbers and minus infinity where a rule asks for it", pool=(-np.inf, 0.0, -1.0, 0.5), finite=False)
"""For operands that an IsInf reads: what masks hold, of which a claim about real numbers speaks as well."""
_STEPS = (0, 1, 2, 3, 4, 6, 9, 13, 21, 45, 99, 122)
_NEXT = PLACES["f32"]  # in which scales are given


def fills(rule: Rule, before: Graph, after: Graph, given: Collection[int]) -> tuple[Fill, ...]:
    """The classes of contents that a rule is tried on.

    Args:
        rule: The rule.
        before: Its pattern.
        after: Its replacement.
        given: Keys of constants that stand for any content.
    """
    real, whole = rule.claim == "real", makes_integers(before)
    chosen = _within(EXACT if rule.claim == "exact" else (*REAL, *(NARROWED if real and widened(before) else ())), rule)
    if whole:
        chosen = tuple(f for f in chosen if f.finite)
    if cast := cast_operands(before):
        chosen = (*chosen, of_range(cast.values()))
    numbers = own_numbers((before, after), given)
    own = around(numbers)
    if own.pool and (rule.domain is None or own.largest <= rule.domain):
        chosen = (*chosen, own, *((next_to(numbers),) if rule.claim == "exact" else ()))
    if rule.claim == "exact" and compares(before):
        chosen = (*chosen, *neighbours(before))
    if rule.domain is None and any(node.op in _PLACING for node in before.nodes.values()):
        chosen = (*chosen, _RISING)
    if rule.claim == "exact":
        chosen = (*chosen, *between_steps(before, numbers), *beyond_counting(before, after))
    # Of doubles there is no reference with more digits, which would tell what side has lost those of the small numbers.
    doubles = any(value.type.dtype == "f64" for value in before.values.values())
    if real and not (whole or doubles or multiplies(before)):
        chosen = (*chosen, *SUMMED)
    if real and not whole and masked(before, after):
        chosen = (*chosen, MASKED)
    chosen = (*chosen, *(() if whole or rule.domain else beyond_float32(rule, before)))
    return (*chosen, extreme(rule.domain)) if rule.claim == "approx" else chosen


def masked(*graphs: Graph) -> set[int]:
    """Operands of the pattern of which an IsInf of either side asks."""
    asked = {key for graph in graphs for node in graph.nodes.values() if node.op == "IsInf" for key in node.inputs[:1]}
    return {key for key in graphs[0].inputs if key in asked}


def beyond_float32(rule: Rule, graph: Graph) -> tuple[Fill, ...]:
    """Numbers that a float64 has and a float32 has not: a cast makes infinity or nothing of them, and no bound that is a float32 is one to them.

    Under a claim about real numbers only where all floats have room for them, and no products of theirs run out of it.
    """
    held = {t for key in graph.inputs if (t := graph.type(key).dtype) in FLOATS}
    if "f64" not in held or rule.claim == "approx":
        return ()
    if rule.claim == "exact":
        return (BEYOND_FLOAT32,)
    return () if len(held) > 1 or multiplies(graph) else (replace(BEYOND_FLOAT32, pool=(), magnitude=1e60),)


def _within(chosen: tuple[Fill, ...], rule: Rule) -> tuple[Fill, ...]:
    """Classes of contents kept to the domain that a rule speaks of, if it names one, and the ends of that."""
    domain = rule.domain
    if domain is None:
        return chosen
    inside = tuple(f for f in chosen if f.finite and f.largest <= domain)
    ends = (domain, -domain, 0.99 * domain, -0.99 * domain, 0.9 * domain, -0.9 * domain, 0.0)
    inside = (*inside, Fill("numbers of the whole domain", domain / 2), Fill("the ends of the domain", pool=ends))
    return tuple(replace(fill, within=domain) for fill in inside)


def between_steps(graph: Graph, numbers: Sequence[float]) -> tuple[Fill, ...]:
    """Multiples of a rule's numbers and halfway from one to the next, with their neighbours: where a rounded quotient is another than a rounded product.

    Args:
        graph: The pattern.
        numbers: What the rule names there: a scale, most likely.
    """
    if not any(node.op in _STEPPING for node in graph.nodes.values()):
        return ()
    sizes = sorted({abs(v) for v in numbers})
    between = [(n + 0.5) * size for size in sizes for n in _STEPS]
    whole = [n * size for size in sizes for n in _STEPS[1::3]]
    pool = tuple(v * factor for v in (*between, *whole) for factor in (1.0, 1 - _NEXT, 1 + _NEXT))
    return (Fill("numbers between steps", pool=(*pool, *(-v for v in pool))),) if pool else ()


def beyond_counting(*graphs: Graph) -> tuple[Fill, ...]:
    """Integers that follow one another beyond what the floats count to that are made of them: two of them become one, and there are others between.

    Not where the content of one operand alone says how long a result is, which would have so many elements.
    """
    made: set[str] = set()
    for graph in graphs:
        for node in graph.nodes.values():
            if node.op in COUNTING and not _runs_between(graph, node.inputs):
                return ()
            if node.op in ("Cast", "CastLike") and node.inputs[0] is not None and node.outputs[0] is not None:
                of, to = str(graph.type(node.inputs[0]).dtype), str(graph.type(node.outputs[0]).dtype)
                made |= {to} if of[0] in "iu" and to in FLOATS else set()
    return tuple(Fill(f"whole numbers beyond what {t} counts to", 1.0, beyond=int(2 / PLACES[t])) for t in sorted(made))


def _runs_between(graph: Graph, operands: Sequence[int | None]) -> bool:
    """Whether a range goes from one operand of the graph to another, perhaps by way of a cast."""
    ends: set[int] = set()
    for key in operands[:2]:
        node = graph.producer(key)
        if node is not None and node.op in ("Cast", "CastLike"):
            key = node.inputs[0]
        if key in graph.inputs:
            ends.add(key)
    return len(ends) == 2
