"""graphopt: rewrite an ONNX graph until ONNX Runtime runs it faster, and prove it.

The packages in the order in which a model flows through them: ``onnxio`` loads it into the ``ir``; ``rewrite`` holds the
rules; ``search`` applies them, priced by ``cost`` and measured through ``runtime``; ``verify`` compares the outputs; ``onnxio``
writes the result. ``api`` ties these together and ``cli`` is the command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphopt.ir.kernels import Kernels, provide

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graphopt.api import Progress, Result, optimize, verify
    from graphopt.benchmark.plan import Plan
    from graphopt.benchmark.run import bench
    from graphopt.onnxio.load import load
    from graphopt.onnxio.save import save
    from graphopt.retrace import bisect, replay

__all__ = [
    "Plan",
    "Progress",
    "Result",
    "__version__",
    "bench",
    "bisect",
    "load",
    "optimize",
    "replay",
    "save",
    "verify",
]

_HOME = {
    "Plan": "graphopt.benchmark.plan",
    "Progress": "graphopt.api",
    "Result": "graphopt.api",
    "bench": "graphopt.benchmark.run",
    "bisect": "graphopt.retrace",
    "replay": "graphopt.retrace",
    "load": "graphopt.onnxio.load",
    "optimize": "graphopt.api",
    "save": "graphopt.onnxio.save",
    "verify": "graphopt.api",
}


def __getattr__(name: str) -> Any:
    # Nothing heavy is imported until it is asked for: ``graphopt --help`` must answer at once.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'graphopt' has no attribute {name!r}")


def _kernels() -> Kernels:
    from graphopt.runtime.folding import fold

    return fold


provide(_kernels)  # constants are computed by the runtime, which the graph must not know
