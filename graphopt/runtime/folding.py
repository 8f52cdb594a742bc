"""Constants, computed by the runtime on the CPU with its own optimiser off."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.errors import GraphoptError
from graphopt.ir.dtypes import Array
from graphopt.ir.kernels import KernelError
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

# Memory goes back as soon as a value has been read: a session lives for one run.
_CONFIG = SessionConfig(level="disabled", arena=False, pattern=False)


def fold(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a model once.

    Args:
        model: A serialised ``ModelProto``.
        feeds: Its inputs, which the runtime reads where they lie: large constants are passed so, and not copied.

    Raises:
        KernelError: The runtime has no kernel for a node, or refuses the model.
    """
    try:
        with Session(LoadableModel(model), _CONFIG) as session:
            return session.run(feeds)
    except GraphoptError as error:
        raise KernelError(str(error)) from error
