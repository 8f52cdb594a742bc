"""Where the time of a model goes, kernel by kernel, and the graph the runtime really runs."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphopt import scratch
from graphopt.config import provider_name
from graphopt.errors import SessionError, UsageError
from graphopt.runtime.session import Model, Session, SessionConfig


@dataclass(frozen=True)
class KernelTime:
    """The time of one kernel.

    Attributes:
        node_name: Name of the node in the graph that the runtime made; unnamed nodes get the runtime's own names.
        op_type: Its operator.
        provider: Short name of the execution provider that ran it.
        ms: Time of the kernel in a run, in milliseconds: the mean of the middle half of the runs.
    """

    node_name: str
    op_type: str
    provider: str
    ms: float


@dataclass(frozen=True)
class OpTime:
    """The time of all kernels of an operator.

    Attributes:
        op_type: The operator.
        count: How many kernels.
        ms: Their time in a run, in milliseconds.
        share: Their share of the time of all kernels, 0 to 1.
    """

    op_type: str
    count: int
    ms: float
    share: float


def profile(
    model: Model, feeds: Mapping[str, Any], config: SessionConfig | None = None, runs: int = 10
) -> list[KernelTime]:
    """Time every kernel of a model.

    Args:
        model: The model.
        feeds: Its inputs.
        config: How to run it.
        runs: Runs to average over; one more is run first and dropped.

    Returns:
        The kernels in order of first execution. A control-flow node's time includes that of the nodes in its body,
        which are listed too.

    Raises:
        SessionError: The runtime refuses the model or the inputs, or has no room for its profile.
        UsageError: ``runs`` is not positive.
    """
    if runs < 1:
        raise UsageError(f"a profile needs at least one run, got {runs}")
    return _kernels(_events(model, feeds, config or SessionConfig(), runs + 1), runs + 1)


def workers(model: Model, feeds: Mapping[str, Any]) -> int | None:
    """How many threads of a session wait beside the caller's where nobody tells the runtime a number.

    Args:
        model: A model of one kernel, of the CPU provider.
        feeds: Its inputs.

    Returns:
        Their number; ``None`` where the runtime does not tell it.

    Raises:
        SessionError: As for :func:`profile`.
    """
    # Pairs, not dictionaries: threads that have not begun yet are all listed under the same name.
    events = [dict(event) for event in _events(model, feeds, SessionConfig(threads=0), 1, list)]
    told = [dict(event["args"]) for event in events if event.get("cat") == "Node"]
    stats = [each["thread_scheduling_stats"] for each in told if "thread_scheduling_stats" in each]
    return len(dict(stats[-1]).get("sub_threads", ())) if stats else None


def _events(
    model: Model, feeds: Mapping[str, Any], config: SessionConfig, runs: int, pairs: Callable[..., Any] | None = None
) -> list[Any]:
    """What the runtime's profiler writes of some runs; what ``pairs`` makes of its objects, or dictionaries."""
    with scratch.folder("profile") as folder, Session(model, replace(config, profile=folder / "p")) as session:
        for _ in range(runs):
            session.run(feeds)
        try:
            text = session.end_profiling().read_text(encoding="utf-8")
            found: list[Any] = json.loads(text, object_pairs_hook=pairs)
        except (OSError, ValueError) as error:  # the runtime does not say when it can't write
            raise SessionError(
                "the runtime's profile is not whole", f"is there room in {folder.parent.parent}? see TMPDIR"
            ) from error
    return found


def by_op(kernels: Iterable[KernelTime]) -> list[OpTime]:
    """Sum kernels by operator, most expensive first."""
    groups: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.op_type].append(kernel.ms)
    total = sum(sum(times) for times in groups.values()) or 1.0
    rows = [OpTime(op, len(times), sum(times), sum(times) / total) for op, times in groups.items()]
    return sorted(rows, key=lambda row: -row.ms)


def optimised_ops(model: Model, config: SessionConfig | None = None) -> Counter[str]:
    """Count the operators of the graph that the runtime makes of a model at the configured level.

    Returns:
        Counts by operator; operators outside the standard domain as ``domain:Op``. Nodes of the main graph only.

    Raises:
        SessionError: The runtime refuses the model.
    """
    import onnx

    with scratch.folder("ops") as folder:
        target = folder / "optimised.onnx"
        try:
            Session(model, replace(config or SessionConfig(), save_optimized=target)).close()
            proto = onnx.load(target, load_external_data=False)
        except (SessionError, OSError) as error:
            hint = f"the runtime writes it to {folder.parent.parent}: is there room? see TMPDIR"
            raise SessionError(str(error), hint) from error
    return Counter(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in proto.graph.node)


def _kernels(events: list[dict[str, Any]], runs: int) -> list[KernelTime]:
    """Reduce the profiler's events to one row per node, in order of first appearance."""
    suffix = "_kernel_time"
    times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(suffix):
            args = event["args"]
            key = (event["name"].removesuffix(suffix), args["op_name"], provider_name(args["provider"]))
            times[key].append(event["dur"] / 1e3)
    kernels = []
    for (name, op_type, provider), values in times.items():
        # A node in a loop body has several events in each run; in a branch that not every run takes, any number.
        per_run, rest = divmod(len(values), runs)
        if rest:
            sums = [sum(values) / runs]
        else:
            sums = [sum(values[run * per_run : (run + 1) * per_run]) for run in range(1, runs)]
        kernels.append(KernelTime(name, op_type, provider, _midmean(sums)))
    return kernels


def _midmean(values: list[float]) -> float:
    """The mean of the middle half: robust like the median, but not stuck to the profiler's grain of a microsecond."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])
