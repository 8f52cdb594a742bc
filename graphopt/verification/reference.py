"""What the original does: the outputs that another model has to have, and how far it may be off.

Made on the CPU and without the runtime's own optimiser where that runs, at several sizes; the inputs are moved a little to see what rounding
may do (see :mod:`graphopt.verification.numeric`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from ml_dtypes import finfo

from graphopt.config import provider_name
from graphopt.errors import InputsNeededError, SessionError
from graphopt.ir.types import Array
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.feeds import Fill, Range, flag_ways, make_feeds, named, shaped
from graphopt.runtime.given import Given
from graphopt.runtime.guard import Guarded, open_guarded, revive
from graphopt.runtime.precision import coarsest
from graphopt.runtime.session import Model, Session, SessionConfig
from graphopt.runtime.sizes import Hints, Sizes, Symbols, filled, others
from graphopt.verification.compare import SAME, Difference, Tolerance, compare, default_rtol

_PATIENCE_S, _PATIENCE = 60.0, 10  # seconds, and multiples of the original's, for the other model to be opened or run
_GAIN = 30.0  # tolerated multiple of what moving the inputs by two units in the last place does
MOST = 0.05
"""But no model is so ill-conditioned that more than this would pass."""
LEVEL = 0.01
"""Tolerated in a quantised model that is steady: a level of 8 bits in its largest output. Twice what moving the inputs by a part of a level
does is tolerated where that is more, up to the default of quantised arithmetic, which stands alone where no input is a float."""
_STIRRED = 2.0
_STEP = 1 / 4096
"""How far inputs are moved, as a fraction of their range: a sixteenth of a level of 8 bits."""
_FLOATS = ("float", "bfloat", "complex")
_FLIPS = 2  # and no output so chaotic that more elements than in the original, times this, or than that share may flip
_REACH = 8  # in the last trial: among zeros and ones a number is its square, its sign, and whether it is there
_SCALE = 4.0  # of the last trial: saturates what saturates, so that errors in the tails show


Safe = Sequence[Callable[[], dict[str, Any]]]
"""Make inputs in place of others that may not run, the likelier the later; the last is known to."""


@dataclass(frozen=True)
class Inputs:
    """How to make inputs."""

    ranges: Mapping[str, Range]
    given: Given
    dims: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    hints: Hints
    trials: int
    seed: int

    def make(self, session: Guarded | Session) -> tuple[list[dict[str, Any]], list[Safe], list[Sizes]]:
        """Inputs for each trial, others of the same sizes that are known to run, and the sizes that were chosen for it.

        There is one trial for each set in which the caller has given all of them, and nothing in its place.

        Raises:
            SessionError: The model runs at no size that was tried; what it says at the likeliest.
        """
        found, dims = shaped(session.input_specs, self.shapes, self.dims)
        specs, feeds, sizes = named(self.hints.completed(found)), list[dict[str, Any]](), list[Sizes]()
        safe = list[Safe]()
        for overrides in self.given:
            more, in_place, their_sizes = self._of(overrides, session, specs, dims)
            feeds, safe = [*feeds, *more], [*safe, *in_place]
            sizes += their_sizes
        return feeds, safe, sizes

    def _of(
        self, overrides: Mapping[str, Any], session: Guarded | Session, specs: Sequence[TensorSpec], dims: Sizes
    ) -> tuple[list[dict[str, Any]], list[Safe], list[Sizes]]:
        """Inputs for each trial with some that were given."""
        fill: Fill = None

        def made(sizes: Sizes, trial: int, scale: float = 1.0, flags: int = 0, **more: int) -> dict[str, Any]:
            return make_feeds(
                specs,
                seed=self.seed + trial,
                ranges=self.ranges,
                dims=sizes,
                overrides=overrides,
                scale=scale,
                flags=flags,
                fill=fill,
                **more,
            )

        if all(spec.name in overrides for spec in specs):
            return [made(dims, 0)], [()], [{}]
        choices = Symbols.choices(specs, dims, overrides, self.hints)
        error: SessionError | None = None

        ways = flag_ways(specs)

        def accepts(sizes: Sizes, flags: int) -> bool:
            nonlocal error
            try:
                session.run(made(sizes, 0, flags=flags))
            except SessionError as found:
                error = error or found
                revive(session)
                return False
            return True

        def runs(sizes: Sizes, filled_with: Fill) -> bool:
            nonlocal fill
            fill = filled_with
            return any(accepts(sizes, flags) for flags in ways)

        found = filled([spec for spec in specs if spec.name not in overrides], choices, runs)
        if found is None:
            assert error is not None
            raise inputs_needed(error, specs, self, choices[-1].free) from error
        symbols, base, fill = found
        sizes = [base, *others(symbols, base, lambda each: runs(each, fill))]
        # Each size with each setting of flags that runs; the larger inputs of the last trial come on top of one trial at each size.
        plan = [(each, f) for each in sizes for f in ways if len(ways) == 1 or accepts(each, f)]
        trials = max(self.trials, len(plan) + 1 if len(plan) > 2 else len(plan))
        feeds, safe = list[dict[str, Any]](), list[Safe]()
        for n in range(trials):
            each, f = plan[n % len(plan)]
            in_place = [partial(made, each, 0, flags=f)]
            if 0 < n == trials - 1:
                feeds.append(made(each, n, _SCALE, f, reach=_REACH))
                in_place.insert(0, partial(made, each, n, _SCALE, f))
            else:
                feeds.append(made(each, n, flags=f))
            safe.append(in_place)
        return feeds, safe, [{s: plan[n % len(plan)][0][s] for s in symbols.free} for n in range(trials)]


@dataclass(frozen=True)
class Reference:
    """What the original does.

    Attributes:
        config: How it was run.
        names: Names of its outputs.
        feeds: Inputs of each trial.
        outputs: Outputs of each trial.
        tolerances: What to tolerate, for each trial and output.
        sizes: Sizes of the symbols that were chosen, of each trial; none where nothing is left to choose.
        patience: Seconds that the other model may take to be opened or run.
        stirred: How far each output of a quantised model is moved by a part of a level in the inputs, if they hold floats.
    """

    config: SessionConfig
    names: Sequence[str]
    feeds: Sequence[Mapping[str, Any]]
    outputs: Sequence[Sequence[Any]]
    tolerances: Sequence[Sequence[Tolerance]]
    sizes: Sequence[Mapping[str, int]]
    patience: float
    stirred: Sequence[Difference] | None = None

    def only(self, trials: Sequence[int]) -> Reference:
        """The same of some trials."""
        return replace(
            self,
            feeds=[self.feeds[n] for n in trials],
            outputs=[self.outputs[n] for n in trials],
            tolerances=[self.tolerances[n] for n in trials],
            sizes=[self.sizes[n] for n in trials],
        )


def run_original(original: Model, config: SessionConfig, inputs: Inputs, tolerance: Tolerance) -> Reference:
    """Run the original on the CPU and unoptimised; optimised, or on the provider, where that is the only way to run it."""
    on_cpu = config if provider_name(config.provider) == "cpu" else replace(config, provider="cpu", provider_options={})
    for each in (replace(on_cpu, level="disabled"), on_cpu):
        if each != config:
            try:
                return _run_as(each, original, inputs, tolerance)
            except SessionError:
                pass
    return _run_as(config, original, inputs, tolerance)


def _run_as(config: SessionConfig, original: Model, inputs: Inputs, tolerance: Tolerance) -> Reference:
    began = time.monotonic()
    with open_guarded(original, config) as session:
        kind = coarsest(original)
        feeds, safe, sizes = inputs.make(session)
        outputs = list[list[Any]]()
        try:
            for n, in_place in enumerate(safe):
                for make in (*in_place, None):
                    try:
                        outputs.append(session.run(feeds[n]))
                        break
                    except SessionError:
                        if make is None:
                            raise
                        revive(session)
                        feeds[n] = make()
            again = session.run(feeds[0])
            moved, stirred = outputs, list[list[Any]]()
            if tolerance.rtol is None and any(_is_float(value) for value in feeds[0].values()):
                moved = [session.run(_moved(each, _by_rounding)) for each in feeds]
                stirred = [session.run(_moved(each, _by_levels)) for each in feeds] if kind == "quantized" else []
        except SessionError as error:
            raise inputs_needed(error, session.input_specs, inputs, ()) from error
        names = session.output_names
    patience = max(_PATIENCE_S, _PATIENCE * (time.monotonic() - began))
    random = [not compare(a, b, tolerance).passed for a, b in zip(outputs[0], again, strict=True)]
    changes = [
        [SAME if a is b else compare(a, b, Tolerance(rtol=0.0)) for a, b in zip(before, after, strict=True)]
        for before, after in zip(outputs, moved, strict=True)
    ]
    wild = (change.max_rel > MOST for value, change in zip(outputs[-1], changes[-1], strict=True) if _is_float(value))
    if len(feeds) > 2 and safe[-1] and any(wild):
        # The larger inputs drive it where rounding alone changes everything; its sizes are those of another trial.
        feeds, outputs, changes, stirred, sizes = feeds[:-1], outputs[:-1], changes[:-1], stirred[:-1], sizes[:-1]
    unrest = joined(outputs, stirred) if stirred else None
    least, gain = [default_rtol(kind)] * len(names), _GAIN
    if unrest is not None:  # a level tips over or it does not: thirty times that is nothing that could happen
        least, gain = [min(default_rtol(kind), max(LEVEL, _STIRRED * each.max_rel)) for each in unrest], 1.0
    tolerances = [
        [
            replace(tolerance, structure_only=True) if unstable else _calibrated(tolerance, floor, gain, value, change)
            for unstable, floor, value, change in zip(random, least, values, found, strict=True)
        ]
        for values, found in zip(outputs, changes, strict=True)
    ]
    return Reference(config, names, feeds, outputs, tolerances, sizes, patience, unrest)


def joined(outputs: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> list[Difference]:
    """How far each output is from others in all trials together: whether a tie falls in one is chance."""
    return [
        reduce(Difference.worse, (compare(a, b, Tolerance(rtol=0.0)) for a, b in zip(one, other, strict=True)))
        for one, other in zip(zip(*outputs, strict=True), zip(*others, strict=True), strict=True)
    ]


def _moved(feeds: Mapping[str, Any], by: Callable[[Array, Array], Array]) -> dict[str, Any]:
    """Inputs with each float moved up or down, as the signs say that ``by`` is given."""
    rng = np.random.default_rng(0)
    result = dict(feeds)
    for name, value in feeds.items():
        if _is_float(value) and value.size:
            result[name] = by(value, rng.choice((-1.0, 1.0), value.shape)).astype(value.dtype)
    return result


def _by_rounding(value: Array, signs: Array) -> Array:
    """Two units in the last place. Whole numbers stay: masks, counts and flags that happen to be floats are read for what they are."""
    wide = value.astype(np.float64)
    step = 2.0 * signs * float(finfo(value.dtype).eps)  # type: ignore[no-untyped-call]
    return np.where(wide == np.rint(wide), wide, wide * (1.0 + step))


def _by_levels(value: Array, signs: Array) -> Array:
    """A little of the range of the array."""
    wide = value.astype(np.float64)
    return np.asarray(wide + np.ptp(wide) * _STEP * signs)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name.startswith(("float", "bfloat"))


def _calibrated(tolerance: Tolerance, least: float, gain: float, value: Any, change: Difference) -> Tolerance:
    """The tolerance for an output, by what moving the inputs a little does to it."""
    if tolerance.rtol is not None:
        return tolerance
    dtype = value.dtype.name if isinstance(value, np.ndarray) else "float32"
    least = max(least, default_rtol(dtype)) if dtype.startswith(_FLOATS) else least
    size = value.size if isinstance(value, np.ndarray) else 0
    return replace(
        tolerance,
        rtol=max(least, min(gain * change.known_rel, MOST)),
        flips=min(math.ceil(_GAIN * change.flips), max(_FLIPS * change.flips, math.ceil(MOST * size))),
        jump=_GAIN * change.max_abs,
    )


def inputs_needed(
    error: SessionError, specs: Sequence[TensorSpec], inputs: Inputs, symbols: Sequence[str]
) -> InputsNeededError:
    """Say which made-up input the runtime's message points at, if it points at one."""
    if isinstance(error, InputsNeededError):
        return error
    made_up = [spec.name for spec in specs if not any(spec.name in each for each in inputs.given)]
    text = str(error)
    blamed = [name for name in made_up if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./])", text)]
    if not blamed and re.search(r"out of (data )?bounds|out of range|indices|index", text):
        blamed = [spec.name for spec in specs if spec.name in made_up and spec.dtype in ("int32", "int64")]
    if not made_up:
        return InputsNeededError(
            f"the original model fails on the inputs given: {text}", "check --inputs, a file .npz or a folder"
        )
    which = " input " + " or ".join(repr(name) for name in blamed) if len(blamed) in (1, 2) else " inputs"
    real = "give real ones: --inputs, a file .npz or a folder"
    # Of one without a shape the runtime says the same as of a number.
    shapeless = [spec.name for spec in specs if spec.name in made_up and spec.kind == "tensor" and not spec.shape]
    wanted = sizes_wanted(symbols, [name for name in shapeless if name not in inputs.shapes])
    if wanted:
        real = f"say which sizes it takes: {wanted}, or {real}"
    return InputsNeededError(f"the original model fails on made-up{which}: {text}", real)


def sizes_wanted(symbols: Sequence[str], shapeless: Sequence[str] = ()) -> str:
    """The options that would choose sizes, and shapes of inputs that declare none: ``--dim batch=N --input-shape x:AxB``."""
    wanted = [*(f"--dim {symbol}=N" for symbol in symbols), *(f"--input-shape {name}:AxB" for name in shapeless)]
    return " ".join(wanted[:4]) + (" ..." if len(wanted) > 4 else "")
