"""torch's two exporters, on modules whose inputs are tensors."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Axes = Mapping[str, Mapping[int, str]]


def export(
    module: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    path: Path,
    *,
    dynamo: bool,
    axes: Axes | None = None,
    opset: int | None = None,
) -> dict[str, Any]:
    """Write a module as a single file.

    Args:
        module: Its ``forward`` takes the tensors in this order.
        inputs: Tensors by the names that the model gives them.
        outputs: Names of the outputs.
        path: The file.
        dynamo: Whether by the exporter that goes by ``torch.export``; the other one traces.
        axes: Names of those dimensions that vary, by tensor and axis.
        opset: The operator set, if not the exporter's own choice.

    Returns:
        The inputs as arrays.
    """
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.backends.mha.set_fastpath_enabled(False)
    module = module.eval()
    if not isinstance(module, torch.jit.ScriptModule):
        module.requires_grad_(False)
    axes = axes or {}
    with torch.no_grad():
        if dynamo:
            _current(torch, module, inputs, outputs, path, axes, opset)
        else:
            torch.onnx.export(
                module, tuple(inputs.values()), str(path), dynamo=False, input_names=list(inputs), output_names=list(outputs),
                dynamic_axes={n: dict(a) for n, a in axes.items()} or None, opset_version=opset or 17,
            )  # fmt: skip
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _current(
    torch: Any,
    module: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    path: Path,
    axes: Axes,
    opset: int | None,
) -> None:
    """By ``torch.export``, which finds out itself which dimensions depend on each other; their names are given afterwards."""
    auto = torch.export.Dim.DYNAMIC
    shapes: list[Any] = [dict.fromkeys(axes[name], auto) if name in axes else None for name in inputs]
    given: Any = tuple(shapes)
    parameters = list(torch_signature(module))
    if parameters and parameters[-1].startswith("*"):
        fixed = len(parameters) - 1
        given = (*shapes[:fixed], tuple(shapes[fixed:]))
    program = torch.onnx.export(
        module, tuple(inputs.values()), dynamo=True, input_names=list(inputs), output_names=list(outputs),
        dynamic_shapes=given if axes else None, opset_version=opset, verbose=False,
    )  # fmt: skip
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    program.save(str(path), external_data=False)


def torch_signature(module: Any) -> list[str]:
    """Names of what a module's ``forward`` takes, with the star of the last."""
    import inspect

    return [str(p).split(":")[0] for p in inspect.signature(module.forward).parameters.values()]
