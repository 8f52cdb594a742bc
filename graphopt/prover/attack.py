"""The attack: both sides of a rule in ONNX Runtime, at every instance and on every class of contents.

It needs no semantics of its own, so it holds for every operator that the runtime has a kernel for. What counts as a
difference follows the claim:

    exact    a bit differs, but for the payload of a NaN
    real     the replacement is further from the pattern, computed in float64, than rounding explains: some times the
             pattern's own error, and what moving the inputs by their last place does to the result
    approx   the error exceeds the bound, relative to the largest number in sight

Where the pattern itself does not run, or its result is not finite under a claim about real numbers, nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from graphopt.errors import SessionError
from graphopt.ir.types import FLOATS, NUMPY_NAMES, Array, digest
from graphopt.prover.apart import NEAR, furthest_of, near, size, unit
from graphopt.prover.bindings import bindings
from graphopt.prover.cases import Case, Instance, fits
from graphopt.prover.classes import MASKED, fills, masked
from graphopt.prover.evaluate import at_contents, overhangs
from graphopt.prover.hazards import counts, deadly, divides_by_computed, empties_a_window, frail, joins_empty
from graphopt.prover.semantics import ContradictionError, UnsupportedError
from graphopt.prover.sides import Sides
from graphopt.prover.values import (
    MOST_TIMES,
    NEXT_TO,
    ORDINARY,
    OWN,
    SIGNS,
    Fill,
    cast_operands,
    content,
    factors,
    limits,
    rng_of,
    uses,
    widened,
)
from graphopt.rewrite.schema import Rule

_OWN = 8.0  # tolerated multiple of the pattern's own error
_MOVED = 32.0  # tolerated multiple of what moving the inputs by their last place does
_MOVES, _MORE_MOVES = 2, 8  # of which the furthest counts; the second where a difference was found
_ROUNDING = 256.0  # tolerated roundings of the largest result
_FEWER = 64.0  # of them in types of 16 bits, where 256 are an eighth of it
_TYPICAL = 1e-3  # of the size of an ordinary result: what is smaller, on inputs that are not, counts as nothing
_BRIEF = 2  # classes of contents at all sizes but the first
_DRAWS = 16  # different contents of an operand under one seed


@dataclass(frozen=True)
class Counterexample:
    """Where the two sides of a rule differ.

    Attributes:
        case: The operands' types and the attributes.
        inputs: Content of the operands by name; empty when the sides differ whatever it is.
        message: What differs: an element with both results, a shape, or why the replacement can't be computed.
        instance: Where it was found, in the form of the rule's ``examples``.
    """

    case: tuple[str, ...]
    inputs: Mapping[str, Array] = field(default_factory=dict)
    message: str = ""
    instance: Case = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [f"{name} = {_shown(array)}" for name, array in self.inputs.items()]
        return "; ".join([", ".join(self.case), *shown, self.message])


@dataclass
class Attack:
    """What came of running both sides of one instance.

    Attributes:
        runs: Contents on which both sides were compared.
        worst: Largest error seen, relative to the largest element of the pattern's result.
        doubt: Why the prover's semantics are not to be believed here; empty where they agree with the runtime.
        wrong: A counterexample.
    """

    runs: int = 0
    worst: float = 0.0
    doubt: str = ""
    wrong: Counterexample | None = None


def attack(instance: Instance, rule: Rule, seed: int = 0, brief: bool = False) -> Attack:
    """Run both sides of an instance on contents of every class, or of the first two and of what is next to the rule's numbers, at several sizes of each symbol."""
    made = Attack()
    try:
        sides = Sides(instance)
    except SessionError:
        return made
    with sides.before as before:
        try:
            trial = Trial(rule, sides, before, made, seed)
        except SessionError:
            # The runtime refuses a part of the pattern that it takes as a whole: a Cast with an attribute too many that it leaves out.
            return made
        graphs = (instance.before, instance.after)
        breaks = any(map(frail, graphs)) or deadly(instance.before)
        if breaks and any(0 in (value.type.shape or ()) for graph in graphs for value in graph.values.values()):
            return made

        def possible(bind: Mapping[str, int]) -> bool:
            empty = breaks and any(0 in sides.shape(key, bind) for key in sides.inputs)
            return not empty and not any(empties_a_window(graph, bind) for graph in graphs)

        for bind, fill in _trials(instance, rule, possible, brief):
            trial.run(bind, fill)
            if made.wrong is not None:
                break
        trial.close()
    return made


def _trials(
    instance: Instance, rule: Rule, possible: Callable[[Mapping[str, int]], bool], brief: bool
) -> Iterator[tuple[dict[str, int], Fill]]:
    chosen = fills(rule, instance.before, instance.after, instance.symbolic)
    first, *others = bindings(instance)
    # Cases that choose a rule's constants, for how they round or as the end of what conditions allow, show it on nothing but these numbers.
    # A Where keeps the sign of a zero for some shapes of its operands.
    where = any(node.op == "Where" for node in instance.before.nodes.values())
    telling = (OWN, NEXT_TO, *((SIGNS,) if where else ()))
    some = (*chosen[:_BRIEF], *(f for f in chosen[_BRIEF:] if f.name in telling)) if brief else chosen
    yield from ((first, fill) for fill in (some if possible(first) else ()))
    yield from ((bind, fill) for bind in others if possible(bind) for fill in chosen[:_BRIEF])


def _roundings(dtype: Any) -> float:
    """The roundings that are tolerated, relative to the largest result."""
    return (_FEWER if dtype.itemsize == 2 else _ROUNDING) * unit(dtype) / 2


class Trial:
    """The sessions of an instance, and what was found with them."""

    def __init__(self, rule: Rule, sides: Sides, before: Any, found: Attack, seed: int) -> None:
        self.rule, self.sides, self.before, self.found = rule, sides, before, found
        self.instance = sides.instance
        # Not the same numbers at every instance: of a pool, small operands hold few.
        self.seed = _DRAWS * seed + digest(repr(self.instance.case)) % _DRAWS
        self.after: Any = None
        self.uses = uses(self.instance.before, self.instance.after)
        self._factors = factors(self.instance.before, self.instance.after)
        self._masked = masked(self.instance.before, self.instance.after)
        self._limit = limits(self.instance.before, self.instance.after)
        self.checked = False
        self._typical: dict[str, float] = {}
        self.narrowed = widened(self.instance.before)
        graphs = (self.instance.before, self.instance.after)
        self._cast = cast_operands(self.instance.before)
        self._floats = self.sides.floats([*self._cast]) if self._cast else None
        self.careful = any(divides_by_computed(graph) or counts(graph) for graph in graphs)

    def close(self) -> None:
        """Release the sessions; the pattern's is the caller's."""
        for session in (self.after, self._floats):
            if session is not None:
                session.close()

    def run(self, bind: Mapping[str, int], fill: Fill) -> None:
        """Compare both sides on contents of one class, where symbols have the given sizes; what is found is noted."""
        feeds = self.feeds(bind, fill)
        named = self.sides.named(feeds)
        if self.careful and not self._safe(bind, feeds):
            return
        try:
            left = [np.asarray(a) for a in self.before.run(named)]
            if not self._fits(named):
                return
        except SessionError:
            return
        try:
            if self.after is None:
                self.after = self.sides.after()
            right = [np.asarray(a) for a in self.after.run(named)]
        except SessionError as error:
            self._wrong(bind, feeds, f"the pattern runs, the replacement does not: {error}")
            return
        self.found.runs += 1
        if fill.name == ORDINARY.name:
            for (name, _), array in zip(self.instance.before.outputs, left, strict=True):
                self._typical.setdefault(name, size(array))
        apart = self.rule.claim == "real" and (self.narrowed or not all(map(near, left, right)))
        reference = self._reference(feeds, fill, left, _MOVES) if apart or not self.checked else None
        message = self._differences(left, right, reference, fill, feeds)
        if message and self.rule.claim == "real" and not self.narrowed:
            # What few moves leave in place by chance, more of them will not: the pattern itself has no more digits there.
            known = reference is not None
            reference = self._reference(feeds, fill, left, _MORE_MOVES) if known else self._shaken(feeds, left)
            message = self._differences(left, right, reference, fill, feeds)
        if message:
            self._wrong(bind, feeds, message)

    def _fits(self, named: Mapping[str, Array]) -> bool:
        """Whether all floats that the pattern casts to integers are in the range of these: what becomes of others is undefined."""
        if self._floats is None:
            return True
        for dtype, operand in zip(self._cast.values(), self._floats.run(named), strict=True):
            info, values = np.iinfo(NUMPY_NAMES[dtype]), np.asarray(operand).astype(np.float64)
            if not ((np.trunc(values) >= info.min) & (values < 2.0 ** (info.bits - (info.min < 0)))).all():
                return False
        return True

    def _differences(
        self,
        left: Sequence[Array],
        right: Sequence[Array],
        reference: tuple[list[Array], list[Array]] | None,
        fill: Fill,
        feeds: Mapping[int, Array],
    ) -> str:
        """What differs first; empty for nothing."""
        for i, (name, _) in enumerate(self.instance.before.outputs):
            exact = None if reference is None else (reference[0][i], reference[1][i])
            message = self._difference(name, left[i], right[i], exact, fill, feeds)
            if message:
                return message
        return ""

    def _safe(self, bind: Mapping[str, int], feeds: Mapping[int, Array]) -> bool:
        """Whether no integer is divided by zero and no Range goes on for ever, which would end the process."""
        try:
            at_contents(self.instance.before, self.instance.symbolic, feeds)
        except (UnsupportedError, ContradictionError):
            return False
        try:
            at_contents(self.instance.after, self.instance.symbolic, feeds)
        except UnsupportedError:
            return False
        except ContradictionError as error:
            self._wrong(bind, feeds, f"the pattern is defined, the replacement is not: {error}")
            return False
        return True

    def feeds(self, bind: Mapping[str, int], fill: Fill) -> dict[int, Array]:
        """Contents of one class for all inputs where symbols have the given sizes."""
        feeds = {}
        for key in self.sides.inputs:
            # Weights keep their size where the inputs are large, or nothing would be left of most products.
            name, use = self.instance.before.values[key].name, self.uses.get(key, "")
            large = fill.magnitude > 100 or (fill.own and fill.largest > 100)
            weighs = key in self.instance.symbolic and (large or fill.alike)
            own = ORDINARY if weighs or (key in self._factors and fill.largest > MOST_TIMES) else fill
            if fill is MASKED and key not in self._masked:
                own = ORDINARY
            dtype, shape = self.sides.dtype(key), self.sides.shape(key, bind)
            limit = self._limit(dtype, shape) if self.rule.claim == "real" and own is not MASKED else np.inf
            feeds[key] = content(own, name, self.seed, dtype, shape, use, limit)
        return feeds

    def _reference(
        self, feeds: Mapping[int, Array], fill: Fill, left: Sequence[Array], moves: int
    ) -> tuple[list[Array], list[Array]] | None:
        """The pattern in float64, and what it gives on inputs moved by their last place, so often; ``None`` if unknown."""
        try:
            made = at_contents(self.instance.before, self.instance.symbolic, feeds)
            # More than once: what moves one way by chance may cancel.
            # Weights that are given move as well: of equal ones the pattern makes equal results, which no other kernel need do.
            known, symbolic = {**feeds, **self._weights}, self.instance.symbolic | self._weights.keys()
            others = [
                at_contents(self.instance.before, symbolic, {**known, **self._moved(known, draw)}, draw)
                for draw in range(1, moves + 1)
            ]
        except (UnsupportedError, ContradictionError):
            return None
        for (name, _), a, b in zip(self.instance.before.outputs, made, left, strict=True):
            if a.shape != b.shape:
                if fill.name == ORDINARY.name:
                    self.found.doubt = f"{name} has shape {b.shape} in the runtime, {a.shape} in the prover"
                return None
        moved = furthest_of(made, others)
        if fill.name == ORDINARY.name and not self.checked:
            self.checked = True
            self._doubt(made, moved, left)
        return made, moved

    def _shaken(self, feeds: Mapping[int, Array], left: Sequence[Array]) -> tuple[list[Array], list[Array]] | None:
        """As :meth:`_reference`, where operators have no semantics: the pattern in the runtime stands for the exact one."""
        others = []
        for draw in range(1, _MORE_MOVES + 1):
            moved = {key: array.astype(feeds[key].dtype) for key, array in self._moved(feeds, draw).items()}
            try:
                others.append([np.asarray(a) for a in self.before.run(self.sides.named({**feeds, **moved}))])
            except SessionError:
                return None
        if any(a.shape != b.shape for other in others for a, b in zip(left, other, strict=True)):
            return None
        return list(left), furthest_of(left, others)

    @cached_property
    def _weights(self) -> dict[int, Array]:
        """Constant matrices and the like whose content is given."""
        found = {
            k: v for k, v in self.instance.before.values.items() if v.tensor is not None and v.type.dtype in FLOATS
        }
        arrays = {
            k: np.asarray(v.tensor.numpy()) for k, v in found.items() if v.tensor and k not in self.instance.symbolic
        }
        return {k: array for k, array in arrays.items() if array.ndim > 1 and array.dtype.kind == "f"}

    def _moved(self, feeds: Mapping[int, Array], draw: int) -> dict[int, Array]:
        """The floats among the inputs, moved by their last place."""
        moved = {}
        for key, array in feeds.items():
            if array.dtype.kind == "f":
                signs = rng_of(self.instance.before.values[key].name, self.seed, draw).choice([-1.0, 1.0], array.shape)
                moved[key] = array.astype(np.float64) * (1 + unit(array.dtype) * signs)
        return moved

    def _doubt(self, made: Sequence[Array], moved: Sequence[Array], left: Sequence[Array]) -> None:
        """Whether what the prover takes the operators to mean is what the runtime does, but for rounding."""
        for (name, _), true, other, given in zip(self.instance.before.outputs, made, moved, left, strict=True):
            a, b, c = (x.astype(np.float64) for x in (true, given, other))
            tolerance = 2e-2 if given.dtype.itemsize <= 2 else 1e-3
            # What cancels in one of several sums has the roundings of what is in all of them.
            rounded = _roundings(given.dtype) * size(a) if given.dtype.kind == "f" else 0.0
            with np.errstate(all="ignore"):
                near = np.isclose(a, b, tolerance, tolerance, equal_nan=True)
                near |= np.abs(a - b) <= np.maximum(_MOVED * np.abs(a - c), rounded)
            near |= ~np.isfinite(a) & np.isfinite(b)  # an exponential that the prover takes plainly
            if given.dtype.kind == "f":
                near |= np.isinf(b) & (np.abs(a) > 0.9 * float(np.finfo(given.dtype).max))
            if not near.all():
                self.found.doubt = f"{name} is something else in the runtime than in the prover"

    def _difference(
        self, name: str, a: Array, b: Array, exact: tuple[Array, Array] | None, fill: Fill, feeds: Mapping[int, Array]
    ) -> str:
        if a.shape != b.shape:
            return f"{name} has shape {list(a.shape)}, the replacement's {list(b.shape)}"
        if a.dtype != b.dtype:
            return f"{name} holds {a.dtype}, the replacement's {b.dtype}"
        if a.size == 0:
            return ""
        if a.dtype.kind != "f":
            different = a != b
            if a.dtype == bfloat16:  # no float to numpy
                different &= ~(np.isnan(a) & np.isnan(b))
            if exact is not None and self.rule.claim != "exact":
                different &= exact[0] == exact[1]  # what a last place tips over
        elif self.rule.claim == "exact":
            different = ~(
                (a.view(f"u{a.dtype.itemsize}") == b.view(f"u{b.dtype.itemsize}")) | (np.isnan(a) & np.isnan(b))
            )
        elif self.rule.claim == "real" and exact is None and near(a, b):
            return ""
        elif self.rule.claim == "approx":
            different = self._beyond(a, b, fill, feeds)
        else:
            # The reference of a float64 has no more digits than what it is a reference for.
            small = fill.magnitude < 1 and not fill.pool and a.dtype.itemsize < 8
            typical = 0.0 if small else _TYPICAL * self._typical.get(name, 0.0)
            if fill.magnitude > 1e9:  # what is left of a difference of such numbers is nothing that anyone computes
                typical = max(typical, *(size(feeds[k]) for k in self.instance.before.inputs), 0.0)
            different = self._rounded(a, b, exact, typical)
        if not different.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(different)[0])
        where = f"{name}{list(at)}" if at else name
        sign = "" if (a != b)[different].any() else " (signs of zero: a claim 'real' does not count them)"
        return (
            f"on {fill.name}, onnxruntime gives {where} = {_number(a[at])}, for the replacement {_number(b[at])}{sign}"
        )

    def _rounded(self, a: Array, b: Array, exact: tuple[Array, Array] | None, typical: float) -> Array:
        """Where the replacement is further from the exact result than rounding explains.

        ``typical`` is a size below which a function has run out, as a sigmoid of -30 has: digits there are of no account.
        """
        x, y = a.astype(np.float64), b.astype(np.float64)
        true, moved = (x, x) if exact is None else (exact[0].astype(np.float64), exact[1].astype(np.float64))
        with np.errstate(all="ignore"):
            asked = np.isfinite(x) & np.isfinite(true)
            if not asked.any():
                return np.zeros(a.shape, bool)
            tiny = float(np.finfo(a.dtype).tiny)
            if self.narrowed:  # digits that the pattern takes care to keep: each element by itself
                shift: Any = np.where(np.isfinite(moved), np.abs(moved - true), 0.0)
                own: Any = np.abs(x - true)
                scale: Any = np.maximum(np.abs(true), tiny)
            else:
                shift = np.abs(moved - true)[asked & np.isfinite(moved)].max(initial=0.0)
                own = np.abs(x - true)[asked].max()
                scale = max(np.abs(true[asked]).max(), tiny, typical)
            allowed = _OWN * own + _MOVED * shift
            allowed += _roundings(a.dtype) * scale
            error = np.where(asked, np.abs(y - true), 0.0)
            self.found.worst = max(self.found.worst, float(np.nan_to_num(np.max(error / scale), nan=np.inf)))
            return np.asarray(~(error <= allowed) & asked)

    def _beyond(self, a: Array, b: Array, fill: Fill, feeds: Mapping[int, Array]) -> Array:
        """Where an approximation exceeds its bound."""
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            if fill.name == "extreme numbers":  # element by element
                scale: Any = np.maximum(np.abs(x), 1.0)
            else:
                inputs = [feeds[k] for k in self.instance.before.inputs if feeds[k].dtype.kind == "f"]
                sizes = [float(np.abs(i[np.isfinite(i)]).max(initial=0.0)) for i in inputs]
                scale = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)), *sizes, 1e-30)
                error = np.abs(x - y)[np.isfinite(x)].max(initial=0.0)
                self.found.worst = max(self.found.worst, float(error / scale))
            close = np.abs(x - y) <= max(self.rule.bound, NEAR * float(np.finfo(a.dtype).eps)) * scale
        return np.asarray(~(close | (x == y) | (np.isnan(x) & np.isnan(y))))

    def _wrong(self, bind: Mapping[str, int], feeds: Mapping[int, Array], message: str) -> None:
        named = self.sides.named(feeds)
        # The runtime is less strict than ONNX: a Concat takes an empty tensor of any other sizes.
        joins = joins_empty(self.instance.before)
        empty = any(0 in array.shape for array in named.values())
        if bind and (not fits(self.rule, self.instance.case, bind) or (joins and empty)):
            return
        if overhangs(self.instance.before, self.instance.symbolic, feeds):
            return
        case = (*self.instance.shapes, *self.instance.attributes, *(f"{k} = {v}" for k, v in bind.items()))
        self.found.wrong = Counterexample(case, named, message, self.instance.case)


def _number(value: Any) -> str:
    return f"{value:.9g}" if getattr(value, "dtype", np.dtype(bool)).kind == "f" else str(value)


def _shown(array: Array) -> str:
    text = np.array2string(array, precision=4, threshold=24, edgeitems=2, separator=", ", max_line_width=200)
    return " ".join(text.split())
