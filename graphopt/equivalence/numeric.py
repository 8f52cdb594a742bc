"""Whether two models compute the same: run both on the same inputs and compare what comes out.

The reference is the original without the runtime's own optimiser, because that is what the model says, and because
the optimiser itself changes the results of some models. A difference that the runtime makes is not held against the
optimised model: an output also passes if it agrees with the original as the runtime optimises it.

How much rounding may move an output depends on the model: by 1e-6 of its scale for most, by 1e-3 for a deep network
driven far from where it was trained. So the original is also run on inputs that are moved by two units in the last
place, and ten times what that does to an output is tolerated, where it is more than the default of the type. (Over
a zoo of 50 exports, what the runtime's optimiser does to the results is within a factor of two of that movement.)

Other providers than the CPU round in their own way, some in half precision. The reference is the original on the CPU all
the same, as that is what the model says; an output also passes if it is about as near to what the provider makes of the
original as that is to the reference.

A model with symbols is compared at two sizes of each of them at least, at 1, and without a past, where the original runs at those: a
rewrite may be right at one size alone. Flags, inputs of one truth value, are set both ways at each size, as far as that runs.

One session is open at a time, in a process that a model may take down (:mod:`graphopt.runtime.guard`); what is kept of the others
is their outputs.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ml_dtypes import finfo

from graphopt.equivalence.compare import SAME, Difference, Tolerance, compare, default_rtol
from graphopt.errors import InputsNeededError, SessionError, UsageError
from graphopt.runtime.dtypes import Array
from graphopt.runtime.feeds import Range, flag_ways, make_feeds, named, shaped
from graphopt.runtime.guard import Guarded, open_guarded, revive
from graphopt.runtime.precision import coarsest
from graphopt.runtime.providers import short_name
from graphopt.runtime.session import Model, Session, SessionConfig, TensorSpec
from graphopt.runtime.sizes import Hints, Sizes, Symbols, fitting, others

_PATIENCE_S, _PATIENCE = 60.0, 10  # seconds, and multiples of the original's, for the other model to be opened or run
_GAIN = 30.0  # tolerated multiple of what moving the inputs by two units in the last place does
_NEAR = 2.0  # tolerated multiple of what another provider does to the original
_MOST = 0.05  # but no model is so ill-conditioned that more than this would pass
_FLOATS = ("float", "bfloat", "complex")
_SCALE = 4.0  # of the last trial: saturates what saturates, so that errors in the tails show


@dataclass(frozen=True)
class OutputCheck:
    """What was found about one output.

    Attributes:
        name: Its name.
        passed: Whether it agrees in all trials.
        max_abs: Largest difference of an element over the trials.
        max_rel: The same, relative to the largest element of the output.
        tolerance: The largest relative tolerance used.
        reference: How the original that it was judged by was run: the optimisation level, with the provider if that
            is not the CPU.
        random: Whether the original disagrees with itself, so that only types and shapes were compared.
        message: What is wrong, empty if nothing is.
    """

    name: str
    passed: bool
    max_abs: float
    max_rel: float
    tolerance: float
    reference: str
    random: bool = False
    message: str = ""


@dataclass(frozen=True)
class Verification:
    """The outcome of comparing two models.

    Attributes:
        passed: Whether all outputs agree.
        trials: How many sets of inputs were compared.
        max_abs: Largest difference of an element of any output.
        max_rel: Largest difference relative to the largest element of its output.
        worst_output: The failed output with the largest relative difference, or if none failed, of all; None where
            the models have no outputs to compare.
        message: What is wrong, or what to know about a pass; may be empty.
        outputs: What was found about each output.
        sizes: Sizes of the symbols that were tried, by name; none for a model without symbols.
    """

    passed: bool
    trials: int
    max_abs: float
    max_rel: float
    worst_output: str | None
    message: str
    outputs: tuple[OutputCheck, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()


def verify_models(
    original: Model,
    optimised: Model,
    *,
    config: SessionConfig | None = None,
    ranges: Mapping[str, Range] | None = None,
    overrides: Mapping[str, Array] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    hints: Hints | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    levels: int = 0,
    trials: int = 3,
    seed: int = 0,
) -> Verification:
    """Compare two models on made-up or given inputs.

    Args:
        original: The reference.
        optimised: The model that should compute the same; it may lack inputs of the original, not have more.
        config: How the optimised model will be run.
        ranges: Legal ranges of integer inputs, see :func:`graphopt.runtime.feeds.make_feeds`.
        overrides: Inputs to use as they are.
        dims: Sizes of the original's symbolic dimensions; those left out are chosen, two of each at least.
        shapes: Shapes of whole inputs.
        hints: Sizes that the graph speaks of, see :func:`graphopt.equivalence.sizes.size_hints`.
        rtol: Tolerance relative to the largest element of an output; None is that of the type
            (:data:`graphopt.equivalence.compare.RTOL`), or more where the original itself is more sensitive.
        atol: Absolute tolerance, on top.
        levels: By how many levels 8-bit integer outputs may differ.
        trials: Sets of inputs, more where there are more sizes to try; with more than one, the floats of the last are larger.
        seed: Seed of the inputs.

    Returns:
        The outcome. A model that can't be opened or run where the original can is an outcome, not an error.

    Raises:
        SessionError: The runtime can't open the original.
        InputsNeededError: The original fails on the inputs made up for it.
        UsageError: An input, range or dimension given is wrong, or there are no trials.
    """
    (verification,) = verify_many(
        original, [(optimised, config or SessionConfig())], ranges=ranges, overrides=overrides, dims=dims,
        shapes=shapes, hints=hints, rtol=rtol, atol=atol, levels=levels, trials=trials, seed=seed,
    )  # fmt: skip
    return verification


def verify_many(
    original: Model,
    optimised: Iterable[tuple[Model, SessionConfig]],
    *,
    ranges: Mapping[str, Range] | None = None,
    overrides: Mapping[str, Array] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    hints: Hints | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    levels: int = 0,
    trials: int = 3,
    seed: int = 0,
) -> Iterator[Verification]:
    """Compare several models with one reference, which is run once: as :func:`verify_models`, one after the other.

    Args:
        original: The reference.
        optimised: The models that should compute the same, and how each will be run; all on one provider.
        ranges: As for :func:`verify_models`, like all that follow.
        overrides: Inputs to use as they are.
        dims: Sizes of the original's symbolic dimensions.
        shapes: Shapes of whole inputs.
        hints: Sizes that the graph speaks of.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        levels: Tolerance of 8-bit integers.
        trials: Sets of inputs.
        seed: Seed of the inputs.

    Yields:
        The outcome for each model, as it is found.
    """
    if trials < 1:
        raise UsageError(f"a comparison needs at least one trial, got {trials}")
    tolerance = Tolerance(rtol, atol, levels=levels)
    inputs = _Inputs(ranges or {}, overrides or {}, dims or {}, shapes or {}, hints or Hints(), trials, seed)
    before: _Reference | None = None
    for model, config in optimised:
        before = before or _run_original(original, config, inputs, tolerance)
        yield _verify(original, before, model, config, strict=rtol is not None)


def _verify(
    original: Model, before: _Reference, optimised: Model, config: SessionConfig, *, strict: bool
) -> Verification:
    """Compare a model with the reference."""
    try:
        with open_guarded(optimised, config, seconds=before.patience) as session:
            complaint = _signature_change(before, session)
            if complaint:
                return Verification(False, 0, math.inf, math.inf, None, complaint)
            used = [spec.name for spec in session.input_specs]
            after = [session.run({name: feeds[name] for name in used}) for feeds in before.feeds]
    except SessionError as error:
        message = f"the optimised model fails where the original does not: {error}"
        return Verification(False, 0, math.inf, math.inf, None, message)
    checks = _check(before, after)
    if before.config != config and not all(check.passed for check in checks):
        checks = _check_as_run(original, config, before, after, checks, strict=strict)
    return _summary(checks, before)


@dataclass(frozen=True)
class _Inputs:
    """How to make inputs."""

    ranges: Mapping[str, Range]
    overrides: Mapping[str, Any]
    dims: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    hints: Hints
    trials: int
    seed: int

    def make(self, session: Guarded | Session) -> tuple[list[dict[str, Any]], list[Sizes]]:
        """Inputs for each trial, and the sizes that they have; one trial if the caller has given all of them.

        Raises:
            SessionError: The model runs at no size that was tried; what it says at the likeliest.
        """
        given, dims = shaped(session.input_specs, self.shapes, self.dims)
        specs = named(given)
        if all(spec.name in self.overrides for spec in specs):
            return [self.feeds(specs, dims, 0)], []
        choices = Symbols.choices(specs, dims, self.overrides, self.hints)
        error: SessionError | None = None

        ways = flag_ways(specs)

        def accepts(sizes: Sizes, flags: int) -> bool:
            nonlocal error
            try:
                session.run(self.feeds(specs, sizes, 0, flags=flags))
            except SessionError as found:
                error = error or found
                revive(session)
                return False
            return True

        def runs(sizes: Sizes) -> bool:
            return any(accepts(sizes, flags) for flags in ways)

        found = fitting(choices, runs)
        if found is None:
            assert error is not None
            raise _inputs_needed(error, specs, self, choices[-1].free) from error
        symbols, base = found
        sizes = [base, *others(symbols, base, runs)]
        # Each size with each setting of flags that runs; the larger inputs of the last trial come on top of one trial at each size.
        plan = [(each, f) for each in sizes for f in ways if len(ways) == 1 or accepts(each, f)]
        trials = max(self.trials, len(plan) + 1 if len(plan) > 2 else len(plan))
        feeds = [
            self.feeds(specs, plan[n % len(plan)][0], n, _SCALE if 0 < n == trials - 1 else 1.0, plan[n % len(plan)][1])
            for n in range(trials)
        ]
        return feeds, [{s: each[s] for s in symbols.free} for each in sizes] if symbols.free else []

    def feeds(
        self, specs: Sequence[TensorSpec], sizes: Mapping[str, int], trial: int, scale: float = 1.0, flags: int = 0
    ) -> dict[str, Any]:
        """Inputs of some sizes."""
        return make_feeds(
            specs, seed=self.seed + trial, ranges=self.ranges, dims=sizes, overrides=self.overrides, scale=scale,
            flags=flags,
        )  # fmt: skip


@dataclass(frozen=True)
class _Reference:
    """What the original does.

    Attributes:
        config: How it was run.
        names: Names of its outputs.
        feeds: Inputs of each trial.
        outputs: Outputs of each trial.
        tolerances: What to tolerate, for each trial and output.
        sizes: Sizes of the symbols that were chosen.
        patience: Seconds that the other model may take to be opened or run.
    """

    config: SessionConfig
    names: Sequence[str]
    feeds: Sequence[Mapping[str, Any]]
    outputs: Sequence[Sequence[Any]]
    tolerances: Sequence[Sequence[Tolerance]]
    sizes: Sequence[Mapping[str, int]]
    patience: float


def _run_original(original: Model, config: SessionConfig, inputs: _Inputs, tolerance: Tolerance) -> _Reference:
    """Run the original on the CPU and unoptimised; optimised, or on the provider, where that is the only way to run it."""
    on_cpu = config if short_name(config.provider) == "cpu" else replace(config, provider="cpu", provider_options={})
    for each in (replace(on_cpu, level="disabled"), on_cpu):
        if each != config:
            try:
                return _run_as(each, original, inputs, tolerance)
            except SessionError:
                pass
    return _run_as(config, original, inputs, tolerance)


def _run_as(config: SessionConfig, original: Model, inputs: _Inputs, tolerance: Tolerance) -> _Reference:
    began = time.monotonic()
    with open_guarded(original, config) as session:
        feeds, sizes = inputs.make(session)
        try:
            outputs = [session.run(each) for each in feeds]
            again = session.run(feeds[0])
            moved = outputs
            if tolerance.rtol is None and any(_is_float(value) for value in feeds[0].values()):
                moved = [session.run(_moved(each)) for each in feeds]
        except SessionError as error:
            raise _inputs_needed(error, session.input_specs, inputs, ()) from error
        names = session.output_names
    patience = max(_PATIENCE_S, _PATIENCE * (time.monotonic() - began))
    least = default_rtol(coarsest(original)) if tolerance.rtol is None else 0.0
    random = [not compare(a, b, tolerance).passed for a, b in zip(outputs[0], again, strict=True)]
    tolerances = [
        [
            replace(tolerance, structure_only=True) if unstable else _calibrated(tolerance, least, before, after)
            for unstable, before, after in zip(random, outputs[trial], moved[trial], strict=True)
        ]
        for trial in range(len(feeds))
    ]
    return _Reference(config, names, feeds, outputs, tolerances, sizes, patience)


def _moved(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with each float moved up or down by two units in the last place.

    Whole numbers stay: masks, counts and flags that happen to be floats are read for what they are.
    """
    rng = np.random.default_rng(0)
    result = dict(feeds)
    for name, value in feeds.items():
        if not _is_float(value):
            continue
        wide = value.astype(np.float64)
        step = rng.choice((-2.0, 2.0), value.shape) * float(finfo(value.dtype).eps)  # type: ignore[no-untyped-call]
        result[name] = np.where(wide == np.rint(wide), wide, wide * (1.0 + step)).astype(value.dtype)
    return result


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name.startswith(("float", "bfloat"))


def _calibrated(tolerance: Tolerance, least: float, before: Any, after: Any) -> Tolerance:
    """The tolerance for an output that changes from ``before`` to ``after`` when the inputs are moved a little."""
    if tolerance.rtol is not None:
        return tolerance
    found = compare(before, after, Tolerance(rtol=0.0))
    dtype = before.dtype.name if isinstance(before, np.ndarray) else "float32"
    sensitivity = found.max_rel if math.isfinite(found.max_rel) else 0.0
    least = max(least, default_rtol(dtype)) if dtype.startswith(_FLOATS) else least
    return replace(tolerance, rtol=max(least, min(_GAIN * sensitivity, _MOST)), flips=math.ceil(_GAIN * found.flips))


def _inputs_needed(
    error: SessionError, specs: Sequence[TensorSpec], inputs: _Inputs, symbols: Sequence[str]
) -> InputsNeededError:
    """Say which made-up input the runtime's message points at, if it points at one."""
    if isinstance(error, InputsNeededError):
        return error
    made_up = [spec.name for spec in specs if spec.name not in inputs.overrides]
    text = str(error)
    blamed = [name for name in made_up if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./])", text)]
    if not blamed and re.search(r"out of (data )?bounds|out of range|indices|index", text):
        blamed = [spec.name for spec in specs if spec.name in made_up and spec.dtype in ("int32", "int64")]
    if not made_up:
        return InputsNeededError(f"the original model fails on the inputs given: {text}", "check --inputs file.npz")
    which = " input " + " or ".join(repr(name) for name in blamed) if len(blamed) in (1, 2) else " inputs"
    real = "give real ones: --inputs file.npz"
    if symbols:
        real = f"say which sizes it takes: {sizes_wanted(symbols)}, or {real}"
    return InputsNeededError(f"the original model fails on made-up{which}: {text}", real)


def sizes_wanted(symbols: Sequence[str]) -> str:
    """The options that would choose sizes: ``--dim batch=N --dim seq=N``."""
    return " ".join(f"--dim {symbol}=N" for symbol in symbols[:4]) + (" ..." if len(symbols) > 4 else "")


def _signature_change(before: _Reference, session: Guarded | Session) -> str:
    if list(before.names) != session.output_names:
        return f"outputs {', '.join(before.names)} became {', '.join(session.output_names)}"
    added = [spec.name for spec in session.input_specs if spec.name not in before.feeds[0]]
    return f"the optimised model has inputs the original lacks: {', '.join(added)}" if added else ""


def _check(before: _Reference, after: Sequence[Sequence[Any]]) -> list[OutputCheck]:
    """Compare every output over all trials."""
    checks = []
    for index, name in enumerate(before.names):
        total: Difference = SAME
        tolerances = [row[index] for row in before.tolerances]
        for reference, value, tolerance in zip(before.outputs, after, tolerances, strict=True):
            total = total.worse(compare(reference[index], value[index], tolerance))
        checks.append(
            OutputCheck(
                name=name,
                passed=total.passed,
                max_abs=total.max_abs,
                max_rel=total.max_rel,
                tolerance=max(tolerance.rtol or 0.0 for tolerance in tolerances),
                reference=_described(before.config),
                random=tolerances[0].structure_only,
                message=total.message,
            )
        )
    return checks


def _described(config: SessionConfig) -> str:
    provider = short_name(config.provider)
    return config.level if provider == "cpu" else f"{provider}, {config.level}"


def _check_as_run(
    original: Model,
    config: SessionConfig,
    before: _Reference,
    after: Sequence[Sequence[Any]],
    checks: Sequence[OutputCheck],
    strict: bool,
) -> list[OutputCheck]:
    """Give outputs that failed a second chance, against the original as it is run; ``strict`` about the tolerance."""
    try:
        with open_guarded(original, config) as session:
            outputs = [session.run(feeds) for feeds in before.feeds]
    except SessionError:  # the runtime's optimiser breaks the original: then what the model says stands alone
        return list(checks)
    as_run = replace(before, config=config, outputs=outputs)
    if config.provider != before.config.provider and not strict:
        as_run = replace(as_run, tolerances=[
            [_widened(*each) for each in zip(*trial, strict=True)]
            for trial in zip(before.tolerances, before.outputs, outputs, strict=True)
        ])  # fmt: skip
    second = _check(as_run, after)
    return [b if b.passed and not a.passed else a for a, b in zip(checks, second, strict=True)]


def _widened(tolerance: Tolerance, reference: Any, as_run: Any) -> Tolerance:
    """The tolerance for an output of a provider that makes ``as_run`` of the reference."""
    found = compare(reference, as_run, Tolerance(rtol=0.0))
    error = found.max_rel if math.isfinite(found.max_rel) else 0.0
    rtol, flips = tolerance.rtol or 0.0, tolerance.flips
    return replace(
        tolerance, rtol=max(rtol, min(_NEAR * error, _MOST)), flips=max(flips, math.ceil(_NEAR * found.flips))
    )


def _is_zero(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O" and not value.any()


def _summary(checks: Sequence[OutputCheck], before: _Reference) -> Verification:
    failed = [check for check in checks if not check.passed]
    worst = max(failed or checks, key=lambda check: check.max_rel, default=None)
    message = ""
    if failed and worst is not None:
        message = f"output {worst.name!r}: {worst.message}"
        message += f" ({len(failed)} of {len(checks)} outputs differ)" if len(failed) > 1 else ""
    else:
        random = [check.name for check in checks if check.random]
        empty = [name for i, name in enumerate(before.names) if all(_is_zero(outputs[i]) for outputs in before.outputs)]
        notes = (
            [f"non-deterministic, so that only types and shapes were compared: {', '.join(random)}"] if random else []
        )
        once = [name for name in before.sizes[0] if len({s[name] for s in before.sizes}) < 2] if before.sizes else []
        notes += [f"runs at one size only: {', '.join(f'{n} {before.sizes[0][n]}' for n in once)}"] if once else []
        notes += [f"all zero in every trial, which proves little: {', '.join(empty)}"] if empty else []
        message = "; ".join(notes)
    return Verification(
        passed=not failed,
        trials=len(before.feeds),
        max_abs=max((check.max_abs for check in checks), default=0.0),
        max_rel=max((check.max_rel for check in checks), default=0.0),
        worst_output=worst.name if worst is not None else None,
        message=message,
        outputs=tuple(checks),
        sizes=tuple(before.sizes),
    )
