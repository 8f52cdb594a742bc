"""The model zoo: real architectures with random weights, built on demand, for tests, training and benchmarks.

In the order a build flows through them:

- ``spec``, ``table``: what models exist, their inputs and numeric parameters; no model library needed.
- ``vision``, ``detection``, ``text``, ``audio``, ``generators``, ``deployed``, ``papers``, ``diffusion``: the builders, from parameters to a ``torch.nn.Module``.
- ``modules``: makes torchvision importable, and random values wherever initialisation leaves a constant, so that no rewrite is trivially right.
- ``reduced``: brings what was exported to float16 or to 8 bits, with ONNX Runtime's tools.
- ``export``: seeds, builds, exports with one of torch's two exporters, and caches the file.

Importing this package imports no torch. Building needs the ``zoo`` extra.
"""

from graphopt.zoo.export import Exporter, build, cache_dir, file_name
from graphopt.zoo.spec import TensorSpec, ZooModel
from graphopt.zoo.table import describe, example_inputs, names

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
