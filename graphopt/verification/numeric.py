"""Whether two models compute the same: run both on the same inputs and compare what comes out.

The reference is the original without the runtime's own optimiser, because that is what the model says, and because
the optimiser itself changes the results of some models. A difference that the runtime makes is not held against the
optimised model: an output also passes if it agrees with the original as the runtime optimises it.

Of a quantised model an exact rewrite may agree with neither (:mod:`graphopt.verification.quantised`). An output passes, too, if without the
runtime's optimiser the two models agree as closely as its type can, and with it the new one is about as near to the reference as the original.

How much rounding may move an output depends on the model: by 1e-6 of its scale for most, by 1e-3 for a deep network
driven far from where it was trained. So the original is also run on inputs that are moved by two units in the last
place, and thirty times what that does to an output is tolerated, where it is more than the default of the type. (Over
a zoo of 50 exports, what the runtime's optimiser does to the results is within a factor of two of that movement.) A level of
a quantised model tips over or it does not, so there inputs are moved by a part of a level, and twice what that does is tolerated.

Other providers than the CPU round in their own way, some in half precision. The reference is the original on the CPU all
the same, as that is what the model says; an output also passes if it is about as near to what the provider makes of the
original as that is to the reference.

A model with symbols is compared at two sizes of each of them at least, an even and an odd one, at 1, and without a past, where the original
runs at those: a rewrite may be right at one size alone. Where an inference is short, it is also compared above the numbers that its graph
holds sizes against (the width of a window, the end of a Slice), below which what is clipped and what is not are the same. Flags, inputs of
one truth value, are set both ways at each size, as far as that runs.

One session is open at a time, in a process that a model may take down (:mod:`graphopt.runtime.guard`); what is kept of the others
is their outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.config import provider_name
from graphopt.errors import SessionError, UsageError
from graphopt.ir.types import Array
from graphopt.runtime.feeds import Range
from graphopt.runtime.given import Given
from graphopt.runtime.guard import Guarded, open_guarded, revive
from graphopt.runtime.precision import coarsest
from graphopt.runtime.session import Model, Session, SessionConfig
from graphopt.runtime.sizes import Hints
from graphopt.verification.compare import SAME, Difference, Tolerance, compare
from graphopt.verification.quantised import exactly, unrest
from graphopt.verification.reference import MOST, Inputs, Reference, run_original

_NEAR = 2.0  # tolerated multiple of what another provider does to the original
_BOTH = "disabled, both"
_BROKEN = "compared without the runtime's own optimiser where that breaks the original"


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
            is not the CPU; ``disabled, both`` where neither model was optimised by the runtime.
        random: Whether the original disagrees with itself, so that only types and shapes were compared.
        message: What is wrong, empty if nothing is.
        failed: In which of the trials it is.
    """

    name: str
    passed: bool
    max_abs: float
    max_rel: float
    tolerance: float
    reference: str
    random: bool = False
    message: str = ""
    failed: tuple[int, ...] = ()


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
        failed: The trials in which an output differs.
    """

    passed: bool
    trials: int
    max_abs: float
    max_rel: float
    worst_output: str | None
    message: str
    outputs: tuple[OutputCheck, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()
    failed: tuple[int, ...] = ()


class Verifier:
    """Holds models against one original, which is run once; what is kept of it are inputs and outputs."""

    def __init__(
        self,
        original: Model,
        *,
        ranges: Mapping[str, Range] | None = None,
        overrides: Mapping[str, Array] | Given | None = None,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        hints: Hints | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        levels: int = 0,
        trials: int = 3,
        seed: int = 0,
    ) -> None:
        """Say what to compare with, and how.

        Args:
            original: The reference.
            ranges: Legal ranges of integer inputs, see :func:`graphopt.runtime.feeds.make_feeds`.
            overrides: Inputs to use as they are; or several sets of them.
            dims: Sizes of the original's symbolic dimensions; those left out are chosen, two of each at least.
            shapes: Shapes of whole inputs.
            hints: Sizes that the graph speaks of, see :func:`graphopt.verification.sizes.size_hints`.
            rtol: Tolerance relative to the largest element of an output; None is that of the type
                (:data:`graphopt.verification.compare.RTOL`), or more where the original itself is more sensitive.
            atol: Absolute tolerance, on top.
            levels: By how many levels 8-bit integer outputs may differ.
            trials: Sets of inputs, more where there are more sizes to try; with more than one, the floats of the last are larger.
            seed: Seed of the inputs.

        Raises:
            UsageError: There are no trials.
        """
        if trials < 1:
            raise UsageError(f"a comparison needs at least one trial, got {trials}")
        given = [overrides or {}] if overrides is None or isinstance(overrides, Mapping) else overrides
        self._original, self._tolerance = original, Tolerance(rtol, atol, levels=levels)
        self._inputs = Inputs(ranges or {}, given, dims or {}, shapes or {}, hints or Hints(), trials, seed)
        self._references: dict[str, Reference] = {}  # by provider
        # The original's outputs as it is asked to be run, by trial; None where it fails.
        self._as_run: tuple[SessionConfig, list[Sequence[Any] | None]] | None = None
        self._unrest: list[Tolerance] | None = None  # by output, of that run

    @cached_property
    def quantised(self) -> bool:
        """Whether the original computes with quantised numbers."""
        return coarsest(self._original) == "quantized"

    def verify(
        self, optimised: Model, config: SessionConfig | None = None, *, trials: Sequence[int] | None = None
    ) -> Verification:
        """Compare a model with the original.

        Args:
            optimised: The model that should compute the same; it may lack inputs of the original, not have more.
            config: How it will be run.
            trials: Those to make; all by default.

        Returns:
            The outcome. A model that can't be opened or run where the original can is an outcome, not an error.

        Raises:
            SessionError: The runtime can't open the original, or its own optimiser breaks both models.
            InputsNeededError: The original fails on the inputs made up for it.
            UsageError: An input, range or dimension given is wrong.
        """
        config = config or SessionConfig()
        provider = provider_name(config.provider)
        if provider not in self._references:
            self._references[provider] = run_original(self._original, config, self._inputs, self._tolerance)
        whole = self._references[provider]
        trials = range(len(whole.feeds)) if trials is None else trials
        before, note = whole.only(trials), ""
        try:
            with open_guarded(optimised, config, seconds=before.patience) as session:
                complaint = _signature_change(before, session)
                if complaint:
                    return Verification(False, 0, math.inf, math.inf, None, complaint)
                after: Sequence[Sequence[Any]] = [_run(session, feeds) for feeds in before.feeds]
        except SessionError as error:
            around = self._around(optimised, config, whole, trials)
            if around is None:
                message = f"the model that is compared fails where the original does not: {error}"
                return Verification(False, 0, math.inf, math.inf, None, message)
            after, note = around, _BROKEN
        checks = _check(before, after)
        if before.config != config and not all(check.passed for check in checks):
            checks = self._second_chance(config, whole, trials, after, checks)
            checks = self._third_chance(optimised, whole, trials, after, checks)
        failed = sorted({trials[n] for check in checks if not check.passed for n in check.failed})
        summary = _summary(checks, before)
        message = "; ".join(each for each in (summary.message, note) if each)
        return replace(summary, message=message, failed=tuple(failed))

    def _around(
        self, optimised: Model, config: SessionConfig, before: Reference, trials: Sequence[int]
    ) -> list[Sequence[Any]] | None:
        """Outputs of a model that fails, without the runtime's optimiser where that breaks the original; None if it fails elsewhere, too.

        The optimiser gives some nodes to kernels that take some sizes only, those of the original as well.

        Raises:
            SessionError: It breaks the original in every trial.
        """
        rows = self._asked(config, before)
        if all(row is None for row in rows):
            raise SessionError("the runtime's own optimiser breaks the original")
        lost = {n for n in trials if rows[n] is None}
        found = dict[int, Sequence[Any]]()
        for where, those in ((config, {*trials} - lost), (before.config, lost)):
            with suppress(SessionError), open_guarded(optimised, where, seconds=before.patience) as session:
                found |= {n: _run(session, before.feeds[n]) for n in sorted(those)}
        return [found[n] for n in trials] if lost and len(found) == len(trials) else None

    def _asked(self, config: SessionConfig, before: Reference) -> list[Sequence[Any] | None]:
        """Outputs of the original as it is asked to be run, by trial; None where it fails."""
        if self._as_run is None or self._as_run[0] != config:
            rows: list[Sequence[Any] | None] = [None] * len(before.feeds)
            with suppress(SessionError), open_guarded(self._original, config) as session:
                for n, feeds in enumerate(before.feeds):
                    try:
                        rows[n] = session.run(feeds)
                    except SessionError:
                        revive(session)
            self._as_run, self._unrest = (config, rows), None
        return self._as_run[1]

    def _second_chance(
        self,
        config: SessionConfig,
        before: Reference,
        trials: Sequence[int],
        after: Sequence[Sequence[Any]],
        checks: Sequence[OutputCheck],
    ) -> list[OutputCheck]:
        """Hold outputs that failed in some trials against the original as it is run."""
        outputs = _or_said(self._asked(config, before), before)
        as_run = replace(before, config=config, outputs=outputs)
        if config.provider != before.config.provider and self._tolerance.rtol is None:
            as_run = replace(
                as_run,
                tolerances=[
                    [_widened(*each) for each in zip(*trial, strict=True)]
                    for trial in zip(before.tolerances, before.outputs, outputs, strict=True)
                ],
            )
        second = _check(as_run.only(trials), after)
        return [b if b.passed and not a.passed else a for a, b in zip(checks, second, strict=True)]

    def _third_chance(
        self,
        optimised: Model,
        before: Reference,
        trials: Sequence[int],
        after: Sequence[Sequence[Any]],
        checks: Sequence[OutputCheck],
    ) -> list[OutputCheck]:
        """Pass outputs of quantised models that agree without the runtime's optimiser, and with it are off by what moves the original's."""
        assert self._as_run is not None  # by the second
        config, rows = self._as_run
        quiet = before.config.level == "disabled" and before.config.provider == config.provider
        chosen = self._tolerance.rtol is not None
        runs = any(row is not None for row in rows)
        if not runs or chosen or not quiet or all(check.passed for check in checks) or not self.quantised:
            return list(checks)
        if self._unrest is None:
            self._unrest = unrest(before, _or_said(rows, before))
        wide = _check(replace(before, tolerances=[self._unrest] * len(before.outputs)).only(trials), after)
        plain: Sequence[Sequence[Any]] = ()
        with suppress(SessionError), open_guarded(optimised, before.config, seconds=before.patience) as session:
            plain = [_run(session, before.feeds[n]) for n in trials]
        if not plain:
            return list(checks)
        exact = _check(exactly(before).only(trials), plain)
        return [
            replace(b, reference=_BOTH) if b.passed and c.passed and not a.passed else a
            for a, b, c in zip(checks, wide, exact, strict=True)
        ]


def verify_models(
    original: Model, optimised: Model, *, config: SessionConfig | None = None, **how: Any
) -> Verification:
    """Compare two models once; arguments, outcome and errors are those of :class:`Verifier`."""
    return Verifier(original, **how).verify(optimised, config)


def _run(session: Guarded | Session, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Outputs of a model, which may lack inputs of the original."""
    return session.run({spec.name: feeds[spec.name] for spec in session.input_specs})


def _or_said(rows: Sequence[Sequence[Any] | None], before: Reference) -> list[Sequence[Any]]:
    """The original's outputs as it is run: where the runtime's optimiser breaks it, what the model says stands alone."""
    return [said if row is None else row for row, said in zip(rows, before.outputs, strict=True)]


def _signature_change(before: Reference, session: Guarded | Session) -> str:
    if list(before.names) != session.output_names:
        return f"outputs {', '.join(before.names)} became {', '.join(session.output_names)}"
    added = [spec.name for spec in session.input_specs if spec.name not in before.feeds[0]]
    return f"the optimised model has inputs the original lacks: {', '.join(added)}" if added else ""


def _check(before: Reference, after: Sequence[Sequence[Any]]) -> list[OutputCheck]:
    """Compare every output over all trials."""
    checks = []
    for index, name in enumerate(before.names):
        total: Difference = SAME
        tolerances = [row[index] for row in before.tolerances]
        failed = list[int]()
        for trial, (reference, value) in enumerate(zip(before.outputs, after, strict=True)):
            found = compare(reference[index], value[index], tolerances[trial])
            total = total.worse(found)
            failed += [] if found.passed else [trial]
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
                failed=tuple(failed),
            )
        )
    return checks


def _described(config: SessionConfig) -> str:
    provider = provider_name(config.provider)
    return config.level if provider == "cpu" else f"{provider}, {config.level}"


def _widened(tolerance: Tolerance, reference: Any, as_run: Any) -> Tolerance:
    """The tolerance for an output of a provider that makes ``as_run`` of the reference."""
    found = compare(reference, as_run, Tolerance(rtol=0.0))
    return replace(
        tolerance,
        rtol=max(tolerance.rtol or 0.0, min(_NEAR * found.known_rel, MOST)),
        flips=max(tolerance.flips, math.ceil(_NEAR * found.flips)),
        jump=math.inf if found.flips else tolerance.jump,
    )


def _says_little(value: Any) -> bool:
    """Whether nothing in it is a number other than zero: what is not finite anywhere agrees with all that is not.

    An optional or a sequence in which nothing is says as little, whatever type it has.
    """
    if value is None or isinstance(value, list):
        return all(_says_little(each) for each in value or ())
    if not isinstance(value, np.ndarray) or value.dtype.kind == "O":
        return False
    return not value.any() or not np.isfinite(value.astype(np.complex128)).any()


def _summary(checks: Sequence[OutputCheck], before: Reference) -> Verification:
    failed = [check for check in checks if not check.passed]
    sizes = [each for n, each in enumerate(before.sizes) if each and each not in before.sizes[:n]]
    worst = max(failed or checks, key=lambda check: check.max_rel, default=None)
    message = ""
    if failed and worst is not None:
        message = f"output {worst.name!r}: {worst.message}"
        message += f" ({len(failed)} of {len(checks)} outputs differ)" if len(failed) > 1 else ""
    else:
        random = [check.name for check in checks if check.random]
        empty = [
            name for i, name in enumerate(before.names) if all(_says_little(outputs[i]) for outputs in before.outputs)
        ]
        notes = (
            [f"non-deterministic, so that only types and shapes were compared: {', '.join(random)}"] if random else []
        )
        both = [check.name for check in checks if check.reference == _BOTH]
        notes += (
            [f"the same but for what ONNX Runtime's own optimiser does, as in the original: {', '.join(both)}"]
            if both
            else []
        )
        once = [name for name in sizes[0] if len({s.get(name) for s in sizes}) < 2] if sizes else []
        notes += [f"runs at one size only: {', '.join(f'{n} {sizes[0][n]}' for n in once)}"] if once else []
        notes += (
            [f"empty, all zero or nowhere finite in every trial, which proves little: {', '.join(empty)}"]
            if empty
            else []
        )
        message = "; ".join(notes)
    return Verification(
        passed=not failed,
        trials=len(before.feeds),
        max_abs=max((check.max_abs for check in checks), default=0.0),
        max_rel=max((check.max_rel for check in checks), default=0.0),
        worst_output=worst.name if worst is not None else None,
        message=message,
        outputs=tuple(checks),
        sizes=tuple(sizes),
    )
