"""Which settings of a session are worth using for a model.

Threads come first, for the worth of the others depends on them. What remains is tried one by one against the setting of
the benchmark, in interleaved rounds like variants; what is faster with certainty and computes the same is then measured
together, because two gains need not add up. Flushing denormals is tried in processes of their own (see
:mod:`graphopt.benchmark.worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphopt.benchmark.results import Trial, Tuning
from graphopt.benchmark.worker import Worker, in_workers
from graphopt.errors import SessionError
from graphopt.runtime import providers
from graphopt.runtime.environment import threads_used, usable_cores
from graphopt.runtime.rounds import Contender, Measured, Sampling, in_process, measure
from graphopt.runtime.session import Session, SessionConfig, recorded
from graphopt.runtime.timing import Ratio
from graphopt.verification.compare import Tolerance, compare

DENORMALS = "session.set_denormal_as_zero"
SPINNING = "session.intra_op.allow_spinning"
_BLOCKS = "session.dynamic_block_base"
_LOOPS = "session.graph_optimizations_loop_level"
_OF_CUDA = {  # options of the provider that are off by default
    "recorded CUDA graph": "enable_cuda_graph",
    "channels last": "prefer_nhwc",
    "bias and activation within a convolution": "fuse_conv_bias",
}
_LEVELS = {"extended": "ORT_ENABLE_EXTENDED", "basic": "ORT_ENABLE_BASIC", "disabled": "ORT_DISABLE_ALL"}


@dataclass(frozen=True)
class Setting:
    """A change of the session.

    Attributes:
        name: What people call it.
        changes: Fields of :class:`SessionConfig`; ``entries`` and ``provider_options`` are added to those there are.
        group: At most one setting of a group is advised.
        apart: Whether it works only in a process of its own.
    """

    name: str
    changes: Mapping[str, Any]
    group: str
    apart: bool = False

    def applied(self, config: SessionConfig) -> SessionConfig:
        """A configuration with the change."""
        added = {
            name: {**getattr(config, name), **self.changes.get(name, {})} for name in ("entries", "provider_options")
        }
        return replace(config, **{**self.changes, **added})


def thread_settings(config: SessionConfig, cores: int) -> list[Setting]:
    """Numbers of threads to try on a machine with so many cores, and operators in parallel."""
    counts = sorted({cores, *(2**i for i in range(cores.bit_length()))} - {threads_used(config)})
    found = [Setting(f"{n} thread{'s' if n > 1 else ''}", {"threads": n}, "threads") for n in counts if n <= cores]
    if cores > 1:
        found.append(Setting(f"operators in parallel, up to {cores}", {"parallel": cores}, "threads"))
    return found


def other_settings(config: SessionConfig) -> list[Setting]:
    """What else the runtime documents for the provider."""
    levels = [Setting(f"level {level}", {"level": level}, "level") for level in _LEVELS if level != config.level]
    if config.provider == "cuda":
        levels += [Setting(name, {"provider_options": {key: "1"}}, key) for name, key in _OF_CUDA.items()]
    if config.provider != "cpu":
        return levels
    found = [
        *levels,
        Setting("denormals as zero", {"entries": {DENORMALS: "1"}}, "denormals", apart=True),
        Setting("no memory arena", {"arena": False}, "arena"),
        Setting("no memory pattern", {"pattern": False}, "pattern"),
        Setting("graph optimisation in a loop", {"entries": {_LOOPS: "2"}}, "loops"),
    ]
    if config.threads != 1 or config.parallel > 1:
        found.append(Setting("no spinning", {"entries": {SPINNING: "0"}}, "spinning"))
        found.append(Setting("dynamic block size", {"entries": {_BLOCKS: "4"}}, "blocks"))
    return found


def session_options(config: SessionConfig) -> dict[str, Any]:
    """A configuration as attributes of ``onnxruntime.SessionOptions``: the threads, and what differs from the default.

    Returns:
        ``intra_op_num_threads`` and, where they matter, ``execution_mode``, ``inter_op_num_threads``,
        ``graph_optimization_level``, ``enable_cpu_mem_arena``, ``enable_mem_pattern``, ``config_entries``, the libraries of
        ``custom_ops`` to register and, for the session itself, ``provider_options``.
    """
    options: dict[str, Any] = {"intra_op_num_threads": config.threads}
    if config.parallel > 1:
        options |= {"execution_mode": "ORT_PARALLEL", "inter_op_num_threads": config.parallel}
    if config.level != "all":
        options["graph_optimization_level"] = _LEVELS[config.level]
    if not config.arena:
        options["enable_cpu_mem_arena"] = False
    if not config.pattern:
        options["enable_mem_pattern"] = False
    if config.entries:
        options["config_entries"] = dict(config.entries)
    if config.provider_options:
        options["provider_options"] = dict(config.provider_options)
    if config.custom_ops:
        options["custom_ops"] = list(config.custom_ops)
    return options


def as_python(config: SessionConfig) -> str:
    """A configuration as the Python that opens a session with it."""
    enums = {"execution_mode": "ExecutionMode", "graph_optimization_level": "GraphOptimizationLevel"}
    lines = ["import onnxruntime as ort", "", "options = ort.SessionOptions()"]
    for name, value in session_options(config).items():
        if name == "config_entries":
            lines += [f'options.add_session_config_entry("{key}", "{entry}")' for key, entry in value.items()]
        elif name == "custom_ops":
            lines += [f"options.register_custom_ops_library({library!r})" for library in value]
        elif name != "provider_options":
            lines.append(f"options.{name} = " + (f"ort.{enums[name]}.{value}" if name in enums else repr(value)))
    provider = repr(providers.full_name(config.provider)).replace("'", '"')
    if config.provider_options:
        provider = f"({provider}, {dict(config.provider_options)!r})"
    lines.append(f'session = ort.InferenceSession("model.onnx", options, providers=[{provider}])')
    if recorded(config):
        lines.append(
            "# A recorded graph reads and writes where it was recorded: bind inputs and outputs (session.io_binding)."
        )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Tuner:
    """Tries settings on one model.

    Attributes:
        model: The file.
        feeds: Its inputs.
        file: The same in a file, see :func:`graphopt.benchmark.worker.save_feeds`.
        sampling: How long each of up to four measurements may take.
        tell: Hears what is being done.
        stop: Asked now and then; true ends the search for settings with what was found.
    """

    model: Path
    feeds: Mapping[str, Any]
    file: Path
    sampling: Sampling
    tell: Callable[..., None] = lambda text, used=None: None
    stop: Callable[[], bool] = lambda: False

    def tune(self, variant: str, config: SessionConfig, cores: int | None = None) -> Tuning | None:
        """Find the settings worth using.

        Args:
            variant: Name of the model, for the result.
            config: The setting to be better than.
            cores: How many threads to try at most; all processors by default.

        Returns:
            What was found, or None if it was interrupted before anything was measured.
        """
        threads, trials = self._try(config, thread_settings(config, cores or usable_cores()))
        chosen = _best(threads, trials)
        base = chosen[0].applied(config) if chosen else config
        tried = list(trials)
        for apart in (False, True):
            settings, trials = self._try(base, [s for s in other_settings(base) if s.apart is apart])
            chosen += _best(settings, trials)
            tried += trials
        if not tried:
            return None
        advised, ratio = self._together(config, chosen, {trial.name: trial.ratio for trial in tried})
        final = _all(advised, config)
        return Tuning(
            variant,
            tuple(tried),
            tuple(s.name for s in advised),
            session_options(final) if advised else {},
            ratio,
            as_python(final) if advised else "",
        )

    def _try(self, base: SessionConfig, settings: Sequence[Setting]) -> tuple[list[Setting], list[Trial]]:
        """Measure settings one by one against a base; what is faster but computes something else is not advised."""
        works = [s for s in settings if self._runs(s.applied(base), s.apart)]
        measured = self._measure([base, *(s.applied(base) for s in works)], any(s.apart for s in works))
        if measured is None:
            return [], []
        trials = []
        for setting, ratio in zip(works, measured.ratios, strict=True):
            config = setting.applied(base)
            message = self._difference(base, config, setting.apart) if ratio.verdict == "faster" else ""
            trials.append(Trial(setting.name, session_options(config), ratio, message))
        return works, trials

    def _together(
        self, config: SessionConfig, chosen: Sequence[Setting], alone: Mapping[str, Ratio]
    ) -> tuple[list[Setting], Ratio | None]:
        """Measure all chosen settings at once; where that does not beat the best one alone, that one is advised."""
        if len(chosen) < 2:
            return list(chosen), alone[chosen[0].name] if chosen else None
        apart = any(s.apart for s in chosen)
        measured = self._measure([config, _all(chosen, config), *(_all([s], config) for s in chosen)], apart)
        if measured is None:
            return [], None
        together, *single = measured.ratios
        best = max(range(len(single)), key=lambda i: single[i].value)
        if together.value >= single[best].value:
            advised, ratio = list(chosen), together
        else:
            advised, ratio = [chosen[best]], single[best]
        sound = ratio.verdict == "faster" and not self._difference(config, _all(advised, config), apart)
        return (advised, ratio) if sound else ([], None)

    def _measure(self, configs: Sequence[SessionConfig], apart: bool) -> Measured | None:
        if len(configs) < 2 or self.stop():
            return None
        contenders = [Contender(str(i), self.model, config) for i, config in enumerate(configs)]
        return measure(
            contenders,
            in_workers(self.file) if apart else in_process(self.feeds),
            self.sampling,
            interrupted=self.stop,
            on_round=lambda used: self.tell(f"trying {len(contenders) - 1} settings", used),
        )

    def _runs(self, config: SessionConfig, apart: bool) -> bool:
        try:
            self._outputs(config, apart)
        except SessionError:
            return False
        return True

    def _difference(self, base: SessionConfig, config: SessionConfig, apart: bool) -> str:
        """What a setting changes in the outputs, empty if nothing."""
        before, after = (self._outputs(each, apart) for each in (base, config))
        for name, reference in before.items():
            found = compare(reference, after[name], Tolerance())
            if not found.passed:
                return f"changes output {name!r}: {found.message}"
        return ""

    def _outputs(self, config: SessionConfig, apart: bool) -> Mapping[str, Any]:
        if apart:
            with Worker(self.model, config, self.file) as worker:
                return worker.outputs(self.file.with_name("outputs.npz"))
        with Session(self.model, config) as session:
            return dict(zip(session.output_names, session.run(self.feeds), strict=True))


def _best(settings: Sequence[Setting], trials: Sequence[Trial]) -> list[Setting]:
    """Of each group the fastest setting that is faster with certainty and changes nothing."""
    best: dict[str, tuple[float, Setting]] = {}
    for setting, trial in zip(settings, trials, strict=True):
        if trial.ratio.verdict != "faster" or trial.message:
            continue
        if trial.ratio.value > best.get(setting.group, (0.0, setting))[0]:
            best[setting.group] = (trial.ratio.value, setting)
    return [setting for _, setting in best.values()]


def _all(settings: Sequence[Setting], config: SessionConfig) -> SessionConfig:
    for setting in settings:
        config = setting.applied(config)
    return config
