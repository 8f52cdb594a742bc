"""What this machine has of each execution provider: a small model is opened on it, since nothing else tells.

The runtime calls a provider available when its library was shipped; whether the driver, the libraries that it needs and a
device are there comes out when a session starts, or quietly goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.config import PROVIDERS
from graphopt.errors import GraphoptError, RuntimePackageError, SessionError, UsageError
from graphopt.runtime import providers

_REMOTE = "AzureExecutionProvider"  # calls a service elsewhere: nothing to run a model on here


@dataclass(frozen=True)
class Entry:
    """An execution provider on this machine.

    Attributes:
        name: Short name; the full one for a provider that has none.
        full_name: What the runtime calls it.
        state: ``works``, ``fails`` (its package is installed, it does not start) or ``absent``.
        package: Name and version of the package that brings it; empty if there is none.
        device: The device, where known.
        note: What to install for it, or why it does not start.
    """

    name: str
    full_name: str
    state: str
    package: str
    device: str
    note: str


def survey() -> list[Entry]:
    """Every provider that has a short name, and whatever else the runtime holds; all absent where there is no runtime."""
    try:
        others = [name for name in providers.available() if name not in PROVIDERS and name != _REMOTE]
    except RuntimePackageError:
        others = []
    return [_entry(name) for name in [*PROVIDERS, *others]]


def _entry(name: str) -> Entry:
    full = PROVIDERS.get(name, name)
    try:
        providers.require(name)
        trouble = _trouble(name)
    except UsageError:
        return Entry(name, full, "absent", "", "", providers.how_to_get(name))
    except SessionError as error:  # a plug-in that the runtime does not load
        trouble = str(error)
    from graphopt.runtime.environment import device_name, package_of

    device = "" if trouble else device_name(name, {})
    return Entry(name, full, "fails" if trouble else "works", package_of(name), device, trouble)


def _trouble(provider: str) -> str:
    """Why a session does not start on a provider; empty if one does."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from graphopt.runtime.session import LoadableModel, Session, SessionConfig

    # A convolution: if a provider has one kernel, it is this.
    weight = numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, n, n]) for name, n in (("x", 10), ("y", 8))]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "survey", values[:1], values[1:], [weight])
    try:
        with Session(LoadableModel.probe(graph), SessionConfig(provider)) as session:
            session.run({"x": np.ones((1, 8, 10, 10), np.float32)})
    except GraphoptError as error:
        return f"{error} ({error.hint})" if error.hint else str(error)
    return ""
