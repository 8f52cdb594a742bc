"""Build a model of the zoo, export it with torch, and cache the file.

Importing this module imports no torch; calling :func:`build` does, unless the file is in the cache already.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from graphopt import scratch
from graphopt.config import folder_named, users_cache_dir
from graphopt.errors import GraphoptError, MissingExtraError, ModelError, UnknownNameError, UsageError
from graphopt.files import write
from graphopt.zoo.spec import ZooModel
from graphopt.zoo.table import describe

if TYPE_CHECKING:
    from torch import Tensor, nn

Exporter = Literal["dynamo", "legacy"]
"""``dynamo`` is torch's current exporter, ``legacy`` the one that traces TorchScript."""

_PIECE = 1 << 20  # bytes of a file that are copied at a time
_EXTRA_MODULES = frozenset({"torch", "torchvision", "transformers", "PIL", "onnxscript"})


def cache_dir() -> Path:
    """Where built models are kept: ``GRAPHOPT_ZOO_DIR``, or the folder ``zoo`` of the user's cache."""
    return folder_named("GRAPHOPT_ZOO_DIR") or users_cache_dir() / "zoo"


def file_name(name: str, exporter: Exporter = "dynamo", seed: int = 0) -> str:
    """The file name of a build: ``NAME.EXPORTER.onnx``, with ``.seedN`` before the suffix for other seeds than 0."""
    tail = f".seed{seed}" if seed else ""
    return f"{describe(name).name}.{exporter}{tail}.onnx"


def build(
    name: str,
    exporter: Exporter = "dynamo",
    out: Path | None = None,
    seed: int = 0,
    *,
    force: bool = False,
) -> Path:
    """Export a model of the zoo to a single ONNX file, or return the one that is there.

    The same name, exporter and seed give the same bytes on the same machine and versions of torch. The file appears
    whole or not at all.

    Args:
        name: A name of the zoo, with overrides if any (``bert_base@layers=48``).
        exporter: Which of torch's exporters.
        out: Directory for the file, created if need be; :func:`cache_dir` by default.
        seed: Seed of the weights.
        force: Build even if the file exists.

    Returns:
        Path of the file.

    Raises:
        UnknownNameError: The model, one of its parameters or the exporter does not exist.
        UsageError: An override is malformed, or ``out`` is no folder.
        MissingExtraError: torch, torchvision or transformers is not installed.
        GraphoptError: Something else lies where the file belongs.
    """
    if exporter not in get_args(Exporter):
        raise UnknownNameError("exporter", exporter, get_args(Exporter))
    model = describe(name)
    folder = out if out is not None else cache_dir()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    target = folder / file_name(name, exporter, seed)
    if target.exists() and not force:
        if not _is_built(target, model):
            raise GraphoptError(f"{target} is not {model.name} as the zoo builds it", "--force builds it there")
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with scratch.folder("zoo") as temporary:
        built = temporary / "model.onnx"
        with _extra(model):
            from graphopt.zoo.modules import instantiate

            module, example = instantiate(model, seed)
            (_export_dynamo if exporter == "dynamo" else _export_legacy)(model, module, example, built)
        if model.reduced:
            # Sees to it that there is a runtime, and that it keeps quiet.
            importlib.import_module("graphopt.runtime.ort")
            getattr(importlib.import_module("graphopt.zoo.reduced"), model.reduced)(built, model.name)
        with built.open("rb") as made:
            write(target, iter(partial(made.read, _PIECE), b""))
    return target


def _is_built(file: Path, model: ZooModel) -> bool:
    """Whether a file is a model with the inputs and outputs of an entry; more is not known of a build before it is made."""
    from graphopt.onnxio.read import read_model

    try:
        graph = read_model(file, file).graph
    except ModelError:
        return False
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
    }
    symbols = model.symbolic_axes()
    wanted = {
        spec.name: [symbols[spec.name].get(axis, size) for axis, size in enumerate(spec.shape)]
        for spec in model.input_specs()
    }
    return shapes == wanted and tuple(value.name for value in graph.output) == model.output_names()


@contextlib.contextmanager
def _extra(model: ZooModel) -> Iterator[None]:
    """Turn a missing optional module into the error that says how to install it, and what parameters that don't fit lead to into one that names them."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA_MODULES:
            raise
        raise MissingExtraError("zoo", missing) from error
    except Exception as error:  # torch's, of any kind
        if isinstance(error, MemoryError) or "@" not in model.name:
            raise
        raise UsageError(f"{model.name} can't be built: {error}", "do its parameters go together?") from error


def _export_dynamo(model: ZooModel, module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    import torch

    shapes: Any = None
    if model.symbols:
        # Of the batch nothing depends; lengths are sums of each other, which torch finds out itself.
        dims = dict.fromkeys(model.symbols, torch.export.Dim.DYNAMIC) | {
            "batch": torch.export.Dim("batch", min=1, max=1024)
        }
        axes = model.symbolic_axes().values()
        shapes = _by_parameter(module, [{axis: dims[name] for axis, name in one.items()} for one in axes])
    with exporting():
        program = torch.onnx.export(
            module,
            example,
            dynamo=True,
            input_names=[spec.name for spec in model.input_specs()],
            output_names=list(model.output_names()),
            dynamic_shapes=shapes,
            verbose=False,
        )
    assert program is not None  # only the legacy exporter returns nothing
    # Stack traces in the metadata are larger than the graph, and name folders of the machine that exported it.
    for graph in (program.model.graph, *(function.graph for function in program.model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            for output in node.outputs:
                output.metadata_props.clear()
    program.save(path, external_data=False)


def _by_parameter(module: nn.Module, dims: list[Any]) -> tuple[Any, ...]:
    """The dimensions of the inputs as torch wants them: those taken by ``*rest`` in ``forward``, if any, as one tuple."""
    parameters = inspect.signature(module.forward).parameters.values()
    named = sum(p.kind is not inspect.Parameter.VAR_POSITIONAL for p in parameters)
    rest = dims[named:]
    return (*dims[:named], tuple(rest)) if rest else tuple(dims)


def _export_legacy(model: ZooModel, module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    import torch

    inputs = [spec.name for spec in model.input_specs()]
    outputs = list(model.output_names())
    axes = model.symbolic_axes()
    if "batch" in model.symbols:
        axes |= {name: {0: "batch"} for name in outputs}
    with exporting():
        torch.onnx.export(
            module,
            example,
            path,
            dynamo=False,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes if model.symbols else None,
            verbose=False,
        )


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Silence the exporters' warnings, and have them see attention as operators.

    They warn of their own deprecation and of traced Python values. The fused attention kernel that torch prefers in
    evaluation mode has no ONNX counterpart.
    """
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            logger.setLevel(level)
