"""The model zoo: real architectures with random weights, built on demand, for tests, training and benchmarks.

In the order a build flows through them:

- ``spec``, ``table``, ``registry``: what models exist, their inputs and numeric parameters; no model library needed.
- ``compat``, ``vision``, ``text``, ``classic``: the builders, from parameters to a ``torch.nn.Module``.
- ``weights``: random values wherever initialisation leaves a constant, so that no rewrite is trivially right.
- ``reduced``: brings what was exported to float16 or to 8 bits, with ONNX Runtime's tools.
- ``export``: seeds, builds, exports with one of torch's two exporters, and caches the file.

Importing this package imports no torch. Building needs the ``zoo`` extra.
"""

from graphopt.zoo.export import Exporter, build, cache_dir, file_name
from graphopt.zoo.registry import describe, example_inputs, names
from graphopt.zoo.spec import TensorSpec, ZooModel

__all__ = [
    "Exporter",
    "TensorSpec",
    "ZooModel",
    "build",
    "cache_dir",
    "describe",
    "example_inputs",
    "file_name",
    "names",
]
