"""The recipes: optimise, verify, inspect and explain a model.

Optimising brings in rules, prices and reports, which take longer to import than a small model takes to be looked at: it imports
them itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import GraphProto, ModelProto

from graphopt.config import Settings, changed_settings, check_arguments
from graphopt.errors import CrashError, SessionError
from graphopt.files import files_read
from graphopt.onnxio.bodies import all_nodes, graphs
from graphopt.onnxio.emit import emit, rule_of
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import (
    ThreadsWarning,
    as_given,
    check_model,
    first_run,
    given_inputs,
    open_sizes,
    session_config,
)
from graphopt.runtime import guard
from graphopt.runtime.placement import Placement
from graphopt.runtime.profile import by_op, profile
from graphopt.search.arena import loadable
from graphopt.verification.numeric import Verification, verify_models
from graphopt.verification.ranges import input_ranges
from graphopt.verification.sizes import size_hints

if TYPE_CHECKING:
    from graphopt.pipeline.context import Progress
    from graphopt.pipeline.write import Result

__all__ = ["ThreadsWarning", "explain_model", "first_run", "inspect_model", "optimize", "session_config", "verify"]


def optimize(
    model: str | Path | ModelProto,
    settings: Settings | None = None,
    *,
    output: str | Path | None = None,
    inputs: str | Path | Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
    report: str | Path | None = None,
    sharing: Sequence[str | Path] = (),
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    **changes: Any,
) -> Result:
    """Rewrite a model so that ONNX Runtime runs it faster, verify it and measure it against the original.

    Args:
        model: A file or a parsed model.
        settings: What to do, and how.
        output: Where to write the result; nowhere by default.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of such files or of ONNX test data: to verify with all and
            measure with the first.
        trace: Where to write the steps of the search, as JSON.
        report: Where to write what was found and measured, as an HTML page.
        sharing: Models in the output's folder: weights that lie in their external data are not written a second time.
        progress: Hears what is being done.
        interrupted: Asked now and then; true ends the search with the best so far.
        changes: Fields of :class:`graphopt.config.Settings` that differ from ``settings``: ``optimize(model, threads=4)``.

    Raises:
        UsageError: An argument is wrong; the message names it.
        GraphoptError: See :mod:`graphopt.errors`; nothing is written then.
        OutputsDifferError: The model differs without a step of any rule: a fault of graphopt itself. (A step that changes the
            outputs is found, and its family taken back.)
    """
    from graphopt.pipeline.judge import fall_back, judge
    from graphopt.pipeline.prepare import check_targets, prepare
    from graphopt.pipeline.search import search
    from graphopt.pipeline.verify import verify as verify_found
    from graphopt.pipeline.write import write

    check_model("model", model)
    check_arguments(inputs=inputs, sharing=sharing, progress=progress, interrupted=interrupted)
    chosen = changed_settings(settings, changes)
    given = Path(inputs) if isinstance(inputs, str | Path) else None
    reads = {"the model": model, **files_read(given, chosen.rules, chosen.agent)}
    targets = check_targets(reads, output=output, trace=trace, report=report)
    targets = replace(targets, sharing=tuple(map(Path, sharing or ())))
    context = prepare(model, chosen, targets, inputs, progress, interrupted)
    with context.drafts:
        searched = search(context)
        verified = verify_found(context, searched)
        judged = fall_back(context, judge(context, verified))
        return write(context, judged)


def verify(
    a: str | Path | ModelProto,
    b: str | Path | ModelProto,
    *,
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str] = (),
    threads: int = 0,
    inputs: str | Path | Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Verification:
    """Whether two models compute the same function, judged on several random inputs.

    Args:
        a: The model that is right: a file or a parsed model.
        b: The model that is held against it.
        provider: What both run on.
        provider_options: For ONNX Runtime.
        custom_ops: Shared libraries of custom operators, or packages that have one.
        threads: Within an operator; 0 for all cores.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of sets, in place of random ones.
        rtol: By how much an element may differ, relative to the largest of its output; by data type by default.
        atol: By how much it may differ besides; by data type by default.
        seed: Of the random inputs.
        dims: Sizes of symbolic dimensions by name.
        input_shapes: Shapes of inputs by name.

    Raises:
        UsageError: An argument is wrong; the message names it.
        GraphoptError: See :mod:`graphopt.errors`.
    """
    check_model("a", a)
    check_model("b", b)
    check_arguments(
        provider=provider,
        provider_options=provider_options,
        custom_ops=custom_ops,
        threads=threads,
        rtol=rtol,
        atol=atol,
        seed=seed,
        dims=dims,
        input_shapes=input_shapes,
        inputs=inputs,
    )
    first, second = load(a), load(b)
    hints = size_hints(first.graph)
    # It may be the other alone that tells sizes apart.
    hints = replace(hints, bounds=sorted({*hints.bounds, *size_hints(second.graph).bounds}, reverse=True))
    return verify_models(
        as_given(a, first),
        as_given(b, second),
        config=session_config(provider, provider_options, threads, custom_ops),
        ranges=input_ranges(first.graph),
        overrides=given_inputs(inputs, first),
        dims=dims or {},
        shapes=input_shapes,
        hints=hints,
        rtol=rtol,
        atol=atol,
        seed=seed,
    )


def inspect_model(
    path: str | Path | ModelProto,
    *,
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str] = (),
    threads: int = 0,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: str | Path | Mapping[str, Any] | None = None,
    runs: int = 5,
) -> dict[str, Any]:
    """What a model is made of and where its time goes.

    Args:
        path: A file or a parsed model.
        provider: What it runs on.
        provider_options: For ONNX Runtime.
        custom_ops: Shared libraries of custom operators, or packages that have one.
        threads: Within an operator; 0 for all cores.
        dims: Sizes of symbolic dimensions by name.
        input_shapes: Shapes of inputs by name.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of sets, in place of random ones.
        runs: Inferences to profile.

    Raises:
        UsageError: An argument is wrong; the message names it.
        GraphoptError: See :mod:`graphopt.errors`.

    Returns:
        ``path`` (``None`` of a parsed model), ``operators`` (count by type, in bodies too), ``opaque`` (count by reason), ``inputs``, ``defaults`` (which of them
        have a value that a caller may replace), ``outputs``, ``nodes`` (all of ``operators``), ``size``, ``opset``, ``ir_version``, ``sizes`` (those at which open
        dimensions were measured), ``sizes_assumed`` (which of them nobody chose), ``placement`` (``None`` on the CPU) and ``profile``
        (milliseconds by operator as the runtime runs it; ``None`` where it does not, ``unprofiled`` says why).
    """
    check_model("path", path)
    check_arguments(
        provider=provider,
        provider_options=provider_options,
        custom_ops=custom_ops,
        threads=threads,
        dims=dims,
        input_shapes=input_shapes,
        inputs=inputs,
        runs=runs,
    )
    model = load(path, dims=dims, input_shapes=input_shapes)
    graph = model.graph
    sizes: dict[str, int] = {}
    config = session_config(provider, provider_options, threads, custom_ops)
    given = given_inputs(inputs, model)
    unprofiled: str | None = None
    kernels: list[dict[str, Any]] | None = None
    placement: Placement | None = None
    if config.provider != "cpu":
        with guard.open_guarded(
            loadable(model, emit(model, graph)), config, name=_named(path) or "the model"
        ) as session:
            placement = session.placement
    try:
        _, feeds = first_run(model, config, input_ranges(graph), given, {}, 0)
        sizes = open_sizes(model, feeds)
        kernels = [asdict(k) for k in by_op(profile(loadable(model, emit(model, graph)), feeds, config, runs=runs))]
    except CrashError:
        raise
    except SessionError as error:
        unprofiled = f"{error} ({error.hint})" if error.hint else str(error)
    return {
        "schema": "graphopt.inspect/1",
        "path": _named(path),
        "nodes": all_nodes(model.proto.graph),
        "size": model.nbytes,
        "opset": graph.opset,
        "ir_version": model.proto.ir_version,
        "operators": _operators(model.proto.graph),
        "opaque": dict(Counter(n.opaque for n in graph.nodes.values() if n.opaque).most_common()),
        "inputs": {graph.values[k].name: str(graph.type(k)) for k in graph.inputs},
        "defaults": [graph.values[k].name for k in graph.inputs if graph.values[k].default],
        "outputs": {name: str(graph.type(k)) for name, k in graph.outputs},
        "sizes": sizes,
        "sizes_assumed": [] if any(given) else list(sizes),
        "provider": config.provider,
        "placement": None if placement is None else asdict(placement),
        "profile": kernels,
        "unprofiled": unprofiled,
    }


def explain_model(path: str | Path | ModelProto) -> dict[str, Any]:
    """Which rule made which node of an optimised model, and what was measured.

    Returns:
        ``path`` (``None`` of a parsed model), ``nodes`` (how many there are, in bodies too), ``metadata`` (what :func:`optimize` recorded),
        ``rules`` (for each rule its nodes: name, operator, outputs).
    """
    check_model("path", path)
    proto = load(path).proto
    made: dict[str, list[dict[str, Any]]] = {}
    for node in chain.from_iterable(graph.node for graph in graphs(proto.graph)):
        rule = rule_of(node)
        if rule is not None:
            made.setdefault(rule, []).append({"name": node.name, "op": node.op_type, "outputs": list(node.output)})
    # What is no UTF-8 comes out of protobuf as bytes: graphopt did not write it.
    entries = [(e.key, e.value) for e in proto.metadata_props if isinstance(e.key, str) and isinstance(e.value, str)]
    metadata = {key: value for key, value in entries if key.startswith("graphopt.")}
    return {
        "schema": "graphopt.explain/1",
        "path": _named(path),
        "nodes": all_nodes(proto.graph),
        "metadata": metadata,
        "rules": made,
    }


def _operators(graph: GraphProto) -> dict[str, int]:
    """How many nodes there are of each type in a graph and the bodies in it, the most frequent first."""
    nodes = chain.from_iterable(each.node for each in graphs(graph))
    names = (f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in nodes)
    return dict(Counter(names).most_common())


def _named(model: str | Path | ModelProto) -> str | None:
    return None if isinstance(model, ModelProto) else str(model)
