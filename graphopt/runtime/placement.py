"""Where the nodes of a model run.

A provider takes the nodes that it has kernels for and leaves the rest to others, in the end to the CPU. A model of which
it takes only a part pays for copies at every border; one of which it takes nothing runs on the CPU as a whole, which the
runtime does not mention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphopt.config import provider_name
from graphopt.errors import UsageError
from graphopt.runtime import providers


@dataclass(frozen=True)
class Placement:
    """Which provider runs how many nodes.

    Attributes:
        nodes: Nodes by short name of the provider, most first. They are counted when the runtime hands them out: after
            its basic optimisations, before providers fuse them.
        elsewhere: Those that the provider asked for left to others, by operator.
        device: The memory that inputs and outputs stay in while the model is timed, such as ``cuda:0``, or ``cpu``.
        copies: Whether copies from and to another device are part of every timed run.
    """

    nodes: Mapping[str, int]
    elsewhere: Mapping[str, int]
    device: str
    copies: bool


def assigned(session: Any, provider: str) -> tuple[dict[str, int], dict[str, int]]:
    """The nodes of a session by provider, and the operators of those outside of the one that it was opened for.

    Args:
        session: The runtime's own session, opened with ``session.record_ep_graph_assignment_info``.
        provider: Full name of the provider.

    Raises:
        UsageError: The runtime is too old to tell.
    """
    short = provider_name(provider)
    if not hasattr(session, "get_provider_graph_assignment_info"):
        package = providers.traits(provider).package or "onnxruntime"
        raise UsageError("this onnxruntime does not tell where nodes run", f"install {package} 1.24 or newer")
    nodes: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        owner = provider_name(part.ep_name)
        for node in part.get_nodes():
            nodes[owner] += 1
            if owner != short:
                elsewhere[f"{node.domain}:{node.op_type}" if node.domain else node.op_type] += 1
    return dict(nodes.most_common()), dict(elsewhere.most_common())
