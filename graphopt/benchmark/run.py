"""The benchmark itself: make the variants of each model, check them, measure them against each other, put down what was found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from graphopt import scratch
from graphopt.benchmark import rivals, variants
from graphopt.benchmark.plan import ORIGINAL, Plan
from graphopt.benchmark.results import SAMPLES, Bench, Case, Check, Latency, Placed, Tuning, Variant, finite
from graphopt.benchmark.rivals import RIVALS, Opened
from graphopt.benchmark.tune import Tuner
from graphopt.benchmark.variants import Made
from graphopt.benchmark.worker import Worker, save_feeds
from graphopt.config import check_arguments
from graphopt.errors import GraphoptError, SessionError, UsageError, expect, expect_path
from graphopt.files import existing
from graphopt.ir.types import Array
from graphopt.onnxio.load import Model, load
from graphopt.pipeline.context import Progress
from graphopt.pipeline.opening import first_run, given_inputs, open_sizes, shaped_sizes
from graphopt.pipeline.write import Result
from graphopt.runtime import guard
from graphopt.runtime.environment import fingerprint, free_memory, threads_used
from graphopt.runtime.feeds import Range
from graphopt.runtime.given import Given
from graphopt.runtime.rounds import Contender, Measured, Timed, in_process, measure, processor_clock
from graphopt.runtime.session import Session, SessionConfig
from graphopt.runtime.timing import Turn, Turns
from graphopt.verification.compare import Difference, Tolerance, compare
from graphopt.verification.numeric import Verifier
from graphopt.verification.ranges import input_ranges
from graphopt.version import __version__

INTERRUPTED = "interrupted"
OnResult = Callable[[str, SessionConfig, str, Result], None]


def bench(
    models: Sequence[str | Path],
    plan: Plan | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    on_case: Callable[[Bench], None] | None = None,
    on_result: OnResult | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Bench:
    """Measure what graphopt and others make of models against the originals under ``ORT_ENABLE_ALL``.

    Args:
        models: Files, or names of the zoo.
        plan: What to measure; the installed peers, the strategy auto and all levels of the runtime, on all cores, by default.
        progress: Hears what is being done.
        on_case: Hears the results so far, the last case being the new one, whenever a case is done.
        on_result: Hears what graphopt makes of each model: the model, the provider and threads, the variant, the result.
        interrupted: Asked now and then; true ends the benchmark with what was measured until then.

    Raises:
        UsageError: The plan makes no sense, or a model does not exist. What goes wrong with one model or variant is in
            the results instead.
    """
    expect("plan", plan, (Plan, type(None)), "a graphopt.Plan")
    expect("models", models, (list, tuple), "a list of paths and names of the zoo")
    for model in models:
        expect_path("each of models", model, "a path or a name of the zoo")
    check_arguments(progress=progress, on_case=on_case, on_result=on_result, interrupted=interrupted)
    if not models:
        raise UsageError("models must name one at least")
    plan, begin = plan or Plan(), time.monotonic()
    stop = interrupted or (lambda: False)
    plan.check()
    if plan.inputs is not None and len(models) > 1:
        raise UsageError("inputs can be given for one model only")
    sources = [find_model(model) for model in models]
    total = len(sources) * len(plan.configs)
    cases: list[Case] = []

    def so_far(ended_early: bool) -> Bench:
        return Bench(tuple(cases), plan.precision, ended_early, time.monotonic() - begin, __version__)

    def tell(model: str, text: str, used: float | None = None) -> None:
        if progress is not None:
            place = f"{len(cases) + 1}/{total} " if total > 1 else ""
            progress(Progress("bench", f"{place}{model}: {text}", used))

    for name, path in sources:
        with scratch.folder("bench") as folder:
            told = partial(tell, name)
            # Made once for all cases, but not before the model is known to run.
            opponents = cache(partial(variants.opponents, path, plan, folder, told, stop))
            for config in plan.configs:
                if stop():
                    break
                run = _Run(name, path, config, plan, folder, told, stop, on_result)
                try:
                    case = run.case(opponents)
                except GraphoptError as error:
                    if isinstance(error, UsageError) and not cases:
                        raise  # nothing is lost by that
                    case = run.failed(error)
                if stop() and not any(v.status == "measured" for v in case.variants):
                    break
                cases.append(case)
                if on_case is not None:
                    on_case(so_far(True))
    return so_far(stop())


def find_model(model: str | Path) -> tuple[str, Path]:
    """Name and file of a model, built if it is one of the zoo.

    Raises:
        UsageError: There is no such file and no such model of the zoo, or building it needs what is not installed.
    """
    path = Path(model)
    if path.is_file() or path.suffix or len(path.parts) > 1:
        return str(model), existing(path)
    from graphopt import zoo

    return str(model), zoo.build(str(model))


RIVAL_RTOL = 1e-3
"""How much another runtime may differ, relative to the largest result: it adds up in another order."""
FAR_BEHIND = 10.0
"""How many times as long as the original another runtime may take and still have its turns: where it is this far behind, single runs say so, and in
turn with it all others would take hours."""


@dataclass(frozen=True)
class _Run:
    """One case: a model with a provider and a number of threads."""

    name: str
    path: Path
    config: SessionConfig
    plan: Plan
    folder: Path
    tell: Callable[..., None]
    stop: Callable[[], bool]
    on_result: OnResult | None = None

    @property
    def feeds_file(self) -> Path:
        """Where the inputs lie for other processes."""
        return self.folder / "feeds.npz"

    def failed(self, error: GraphoptError) -> Case:
        """The case when the original can't be measured."""
        message = str(error).removeprefix(f"{self.path}: ") + (f" ({error.hint})" if error.hint else "")
        return self._case((Variant(ORIGINAL, "level", status="failed", message=message),))

    def case(self, opponents: Callable[[], Sequence[Made]]) -> Case:
        """Measure the case; ``opponents`` makes the peers' variants and the other files.

        Raises:
            GraphoptError: The original can't be measured.
        """
        plan = self.plan
        self.tell("loading")
        model = load(self.path)
        ranges = input_ranges(model.graph)
        given = given_inputs(plan.inputs, model)
        _, feeds = first_run(model, self.config, ranges, given, plan.dims, plan.seed, plan.input_shapes)
        sizes = open_sizes(model, feeds)
        chosen = {*plan.dims, *shaped_sizes(model, feeds, plan.input_shapes)}
        assumed = () if any(given) else tuple(name for name in sizes if name not in chosen)
        here = fingerprint(self.config)
        made = [*variants.originals(self.path, plan.levels), *(m.beside(here) for m in opponents())]
        for strategy in plan.strategies:
            target = self.folder / f"{self.config.provider}-{self.config.threads}-{strategy}.onnx"
            one, result = variants.optimised(self.path, strategy, self.config, plan, target, self.tell, self.stop)
            made.append(one)
            if self.on_result is not None and result is not None:
                self.on_result(self.name, self.config, one.variant.name, result)
        made = self._weighed(self._checked(made, ranges, given), feeds)
        if made[0].path is None:  # the runtime's optimiser changes what the original computes, or it was interrupted
            return self._case(m.variant for m in made)
        with ExitStack() as stack:
            rivals = self._rivals(model, feeds, ranges, given, stack)
            made += [one for one, _ in rivals]
            ready = [i for i, m in enumerate(made) if m.path is not None]
            opened = {one.variant.name: there for one, there in rivals if there is not None}
            measured = self._timed([made[i] for i in ready], feeds, opened)
        if measured is None:
            return self._case(_skipped(m).variant for m in made)
        best = self._enter(made, ready, measured)
        made = self._profiled(made, feeds)
        return replace(
            self._case(m.variant for m in made),
            best_level=best,
            sessions=len(measured.cycles),
            rounds=measured.rounds,
            measured_s=measured.seconds,
            noisy=tuple(made[ready[column]].variant.name for column in measured.noisy),
            tuning=self._tuned(made, feeds) if plan.tune_session else None,
            sizes=sizes,
            assumed=assumed,
        )

    def _case(self, found: Iterable[Variant]) -> Case:
        """A case without a measurement."""
        environment = fingerprint(self.config)
        return Case(
            self.name,
            str(self.path),
            environment.provider,
            environment.threads,
            tuple(found),
            all_cores=not self.config.threads,
            environment=json.loads(environment.to_json()),
        )

    def _config(self, made: Made) -> SessionConfig:
        return replace(self.config, level=made.variant.level)

    def _checked(self, made: Sequence[Made], ranges: Mapping[str, Range], given: Given) -> list[Made]:
        """Compare what can be run with the original."""
        verifier = Verifier(
            self.path,
            ranges=ranges,
            overrides=given,
            dims=self.plan.dims,
            shapes=self.plan.input_shapes,
            rtol=self.plan.optimize.get("rtol"),
            atol=self.plan.optimize.get("atol"),
            seed=self.plan.seed,
        )
        result = []
        for m in made:
            if m.path is not None and self.stop():
                m = _skipped(m)
            elif m.path is not None:
                self.tell(f"checking {m.variant.name}")
                m = variants.checked(m, verifier.verify(m.path, self._config(m)))
            result.append(m)
        return result

    def _weighed(self, made: Sequence[Made], feeds: Mapping[str, Any]) -> list[Made]:
        """Measure the peak memory of each and see where its nodes run, and whether all fit into memory at once.

        Raises:
            SessionError: They do not.
        """
        result = list(made)
        with suppress(SessionError):  # some inputs can't be handed to another process: then memory stays unknown
            save_feeds(feeds, self.feeds_file)
            for i, m in enumerate(made):
                if m.path is not None and not self.stop():
                    self.tell(f"memory of {m.variant.name}")
                    with Worker(m.path, self._config(m), self.feeds_file) as worker:
                        placed = Placed(**asdict(worker.placement)) if worker.placement.nodes else None
                        result[i] = replace(m, variant=replace(m.variant, peak=worker.peak, placed=placed))
        needed, free = sum(m.variant.peak or 0 for m in result if m.path is not None), free_memory()
        if free is not None and needed > free:
            raise SessionError(
                f"all variants at once take {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
                "leave some out with --level and --against",
            )
        return result

    def _rivals(
        self,
        model: Model,
        feeds: Mapping[str, Any],
        ranges: Mapping[str, Range],
        given: Given,
        stack: ExitStack,
    ) -> list[tuple[Made, Opened | None]]:
        """Open the model in other runtimes, for as long as the stack lives, and compare what they compute."""
        names = [name for name in self.plan.opponents if name in RIVALS]
        if not names:
            return []
        plan, shapes = self.plan, {name: np.shape(value) for name, value in feeds.items()}
        _, others = first_run(model, self.config, ranges, given, plan.dims, plan.seed + 1, plan.input_shapes)
        trials = [feeds] + ([others] if {name: np.shape(value) for name, value in others.items()} == shapes else [])
        with guard.open_guarded(self.path, replace(self.config, level="disabled")) as session:
            expected = [session.run(each) for each in trials]
        with Session(self.path, self.config) as session:
            ours = min(Turn(session.prepare(feeds), processor_clock(self.config)).take())
        found = list[tuple[Made, Opened | None]]()
        for name in names:
            folder = self.folder / f"{name}-{self.config.threads}"
            folder.mkdir()
            self.tell(f"opening in {name}")
            made = Made(Variant(name, "rival", level=""), self.path)
            if self.stop():
                found.append((_skipped(made), None))
            elif self.config.provider != "cpu":
                found.append((made.failed("skipped", "runs on the CPU only"), None))
            else:
                found.append(self._rival(made, trials, expected, ours, folder, stack))
        return found

    def _rival(
        self,
        made: Made,
        trials: Sequence[Mapping[str, Any]],
        expected: Sequence[Sequence[Any]],
        ours: float,
        folder: Path,
        stack: ExitStack,
    ) -> tuple[Made, Opened | None]:
        """Open the model in another runtime, compare what it computes, and see whether it takes turns: ``ours`` is what the original takes, in seconds."""
        name = made.variant.name
        if rivals.python_of(name) is None:
            return made.failed("missing", f"not installed: pip install {RIVALS[name].install}"), None
        given = self.plan.optimize
        tolerance = Tolerance(given.get("rtol") or RIVAL_RTOL, given.get("atol"))
        try:
            save_feeds(trials[0], self.feeds_file)
            opened = stack.enter_context(Opened(name, self.path, threads_used(self.config), self.feeds_file, folder))
            made = replace(
                made, variant=replace(made.variant, version=opened.version, peak=opened.peak, optimise_s=opened.opened)
            )
            checks = [compare(list(e), opened.outputs(t), tolerance) for t, e in zip(trials, expected, strict=True)]
            theirs = opened.soonest(FAR_BEHIND * ours)
        except SessionError as error:
            return made.failed("failed", str(error)), None
        verdict = reduce(Difference.worse, checks)
        check = Check(verdict.passed, len(checks), finite(verdict.max_abs), finite(verdict.max_rel), verdict.message)
        made = replace(made, variant=replace(made.variant, check=check))
        if not verdict.passed:
            opened.close()
            return made.failed("differs", verdict.message), None
        if theirs > FAR_BEHIND * ours:
            opened.close()
            return made.failed(
                "skipped", f"{ours / theirs:.2g} times as fast by a single run, too slow to take turns"
            ), None
        return made, opened

    def _timed(self, ready: Sequence[Made], feeds: Mapping[str, Any], opened: Mapping[str, Opened]) -> Measured | None:
        turns = Turns()
        sessions = in_process(feeds, turns)

        def opener(contender: Contender, stack: ExitStack) -> tuple[float, Timed]:
            there = opened.get(contender.name)
            if there is None:
                return sessions(contender, stack)
            return there.opened, turns.of(contender.name, there.turn).take

        contenders = [
            Contender(m.variant.name, m.path, self._config(m), foreign=m.variant.name in opened)
            for m in ready
            if m.path is not None
        ]

        def on_round(used: float) -> None:
            going_on = ", noisy: going on" if used > 1 else ""
            self.tell(f"measuring {len(contenders)} variants{going_on}", used)

        for each in contenders:
            if (processors := each.distance) is not None:
                processors.wait_for(self.plan.sampling.seconds, self.stop)
        return measure(contenders, opener, self.plan.sampling, on_round=on_round, interrupted=self.stop)

    def _enter(self, made: list[Made], ready: Sequence[int], measured: Measured) -> str:
        """Put what was measured down in the variants.

        Returns:
            The runtime's best level.
        """
        for column, i in enumerate(ready):
            variant = replace(
                made[i].variant,
                status="measured",
                ratio=measured.ratios[column - 1] if column else None,
                latency=_latency(measured.runs(column) * 1e3),
                open_ms=measured.opened(column) * 1e3,
            )
            made[i] = replace(made[i], variant=variant)
        best = _best_level([m.variant for m in made])
        if best is made[0].variant:
            return best.level
        base = next(column for column, i in enumerate(ready) if made[i].variant is best)
        for column, i in enumerate(ready):
            if column != base:
                over = measured.over(base, column, self.plan.precision)
                made[i] = replace(made[i], variant=replace(made[i].variant, over_best=over))
        return best.level

    def _profiled(self, made: Sequence[Made], feeds: Mapping[str, Any]) -> list[Made]:
        """Look into the original and graphopt's variants."""
        result = list(made)
        for i, m in enumerate(made):
            if m.path is not None and (i == 0 or m.variant.kind == "graphopt") and not self.stop():
                self.tell(f"profiling {m.variant.name}")
                found = variants.operators(m.path, feeds, self._config(m))
                result[i] = replace(m, variant=replace(m.variant, operators=found))
        return result

    def _tuned(self, made: Sequence[Made], feeds: Mapping[str, Any]) -> Tuning | None:
        """Try settings of the session on the fastest model of graphopt's, or on the original."""
        final = max((m for m in made if m.variant.kind == "graphopt"), key=_speed, default=made[0])
        if _speed(final) <= 1.0:
            final = made[0]
        assert final.path is not None
        tuner = Tuner(final.path, feeds, self.feeds_file, self.plan.sampling, self.tell, self.stop)
        return tuner.tune(final.variant.name, self.config)


def _speed(made: Made) -> float:
    """The ratio of a variant that is faster with certainty, else 1."""
    ratio = made.variant.ratio
    return ratio.value if ratio is not None and ratio.verdict == "faster" else 1.0


def _skipped(made: Made) -> Made:
    return made.failed("skipped", INTERRUPTED) if made.path is not None else made


def _best_level(found: Sequence[Variant]) -> Variant:
    """The runtime's level that is fastest on the original: ``all`` unless the interval of another lies above 1."""
    faster = [v for v in found if v.kind == "level" and v.ratio is not None and v.ratio.verdict == "faster"]
    return max(faster, key=lambda v: v.ratio.value if v.ratio else 0.0, default=found[0])


def _latency(times: Array) -> Latency:
    """Percentiles and thinned samples of times in milliseconds."""
    count = min(len(times), SAMPLES)
    samples = np.quantile(times, np.linspace(0, 1, count))
    p50, p90, p95, p99 = (float(q) for q in np.quantile(times, (0.5, 0.9, 0.95, 0.99)))
    return Latency(p50, p90, p95, p99, tuple(float(f"{sample:.6g}") for sample in samples))
