"""graphopt: rewrite an ONNX graph until ONNX Runtime runs it faster, and prove it.

The packages in the order in which a model flows through them: ``onnxio`` loads it into the ``ir``; ``rewrite`` holds the
rules; ``search`` applies them, priced by ``cost`` and measured through ``runtime``; ``verification`` compares the outputs;
``onnxio`` writes the result. ``pipeline`` ties these together, ``api`` is what Python sees of it and ``cli`` is the command.
"""

from __future__ import annotations

from importlib import import_module

from graphopt.ir.kernels import provide
from graphopt.version import __version__

TYPE_CHECKING = False  # as in typing, the import of which takes longest of all that happens before a Ctrl-C is heard
if TYPE_CHECKING:
    from typing import Any

    from graphopt.api import explain_model as explain
    from graphopt.api import inspect_model as inspect
    from graphopt.api import optimize, verify
    from graphopt.benchmark.plan import Plan
    from graphopt.benchmark.run import bench
    from graphopt.config import Settings
    from graphopt.errors import (
        CrashError,
        GraphoptError,
        InputsNeededError,
        MissingExtraError,
        ModelError,
        OutputsDifferError,
        RuleError,
        RuntimePackageError,
        SessionError,
        TooSlowError,
        UnfinishedError,
        UnknownNameError,
        UnsupportedModelError,
        UsageError,
    )
    from graphopt.ir.kernels import Kernels
    from graphopt.many.batch import optimize_many
    from graphopt.onnxio.load import load
    from graphopt.onnxio.save import save
    from graphopt.pipeline.context import Progress
    from graphopt.pipeline.write import Result
    from graphopt.retrace import bisect, replay

__all__ = [
    "CrashError",
    "GraphoptError",
    "InputsNeededError",
    "MissingExtraError",
    "ModelError",
    "OutputsDifferError",
    "Plan",
    "Progress",
    "Result",
    "RuleError",
    "RuntimePackageError",
    "SessionError",
    "Settings",
    "TooSlowError",
    "UnfinishedError",
    "UnknownNameError",
    "UnsupportedModelError",
    "UsageError",
    "__version__",
    "bench",
    "bisect",
    "explain",
    "inspect",
    "load",
    "optimize",
    "optimize_many",
    "replay",
    "save",
    "verify",
]

_HOME = {
    "Plan": "graphopt.benchmark.plan:Plan",
    "Progress": "graphopt.pipeline.context:Progress",
    "Result": "graphopt.pipeline.write:Result",
    "Settings": "graphopt.config:Settings",
    "bench": "graphopt.benchmark.run:bench",
    "bisect": "graphopt.retrace:bisect",
    "explain": "graphopt.api:explain_model",
    "inspect": "graphopt.api:inspect_model",
    "load": "graphopt.onnxio.load:load",
    "optimize": "graphopt.api:optimize",
    "optimize_many": "graphopt.many.batch:optimize_many",
    "replay": "graphopt.retrace:replay",
    "save": "graphopt.onnxio.save:save",
    "verify": "graphopt.api:verify",
}


def __getattr__(name: str) -> Any:
    # Nothing heavy is imported until it is asked for: ``graphopt --help`` must answer at once.
    if name in __all__:
        module, _, attribute = _HOME.get(name, f"graphopt.errors:{name}").partition(":")
        found = getattr(import_module(module), attribute)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'graphopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _kernels() -> Kernels:
    from graphopt.runtime.session import fold

    return fold


provide(_kernels)  # constants are computed by the runtime, which the graph must not know
