"""Other people's optimisers, run the way their users run them: as they are documented, with their defaults.

Each runs in a process of its own, because some of them crash, hang, print or change the process they run in. None is a
dependency: one that is not installed is said to be missing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphopt.benchmark import children
from graphopt.errors import UnknownNameError
from graphopt.runtime import guard
from graphopt.runtime.environment import runtime_version

LIMIT_S = 300.0
"""Time after which a peer is stopped."""

# What a user writes who follows the tool's readme; `source` is the path of the model.
PEERS = {
    "onnxsim": "import onnxsim; begin(); model, valid = onnxsim.simplify(source); assert valid",
    "onnxslim": "import onnxslim; begin(); model = onnxslim.slim(source)",
    "onnxscript": "import onnxscript.optimizer as tool; begin(); model = tool.optimize(onnx.load(source))",
    "ort-transformers": "from onnxruntime.transformers.optimizer import optimize_model; begin(); model = optimize_model(source).model",
}
_MODULES = {"ort-transformers": "onnxruntime"}
"""Where the module is not called like the peer."""
ASKED_FOR = frozenset({"ort-transformers"})
"""Peers that are made for some models only, so run where they are named."""

_CHILD = """
import json, sys, time
import onnx
source, target = sys.argv[1:]
def begin():
    global start
    start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
try:
    onnx.save(model, target)
except Exception:  # beyond 2 GB, which the tools themselves leave to their users
    onnx.save(model, target, save_as_external_data=True, location="weights.data")
print()
print(json.dumps(seconds))
"""


@dataclass(frozen=True)
class PeerRun:
    """What a peer did.

    Attributes:
        path: The file it wrote, None if it wrote none.
        seconds: How long it took, without its import.
        version: Its version.
        missing: Whether it, or what it imports, is not installed.
        error: What went wrong, empty if nothing did.
    """

    path: Path | None = None
    seconds: float | None = None
    version: str | None = None
    missing: bool = False
    error: str = ""


def installed() -> list[str]:
    """The peers that can be imported here."""
    return [peer for peer in PEERS if importlib.util.find_spec(install(peer)) is not None]


def install(peer: str) -> str:
    """What pip has to install for a peer, and Python to import."""
    return _MODULES.get(peer, peer)


def run_peer(
    peer: str,
    source: Path,
    folder: Path,
    *,
    limit: float = LIMIT_S,
    interrupted: Callable[[], bool] = lambda: False,
) -> PeerRun:
    """Have a peer optimise a model.

    Args:
        peer: One of :data:`PEERS`.
        source: The model.
        folder: Where to write, and where the process runs; made if need be.
        limit: Seconds after which it is stopped.
        interrupted: Asked now and then; true stops it.

    Raises:
        UnknownNameError: There is no such peer.
        UsageError: This process knows of no Python to run it with.
    """
    if peer not in PEERS:
        raise UnknownNameError("peer", peer, PEERS)
    if peer not in installed():
        return PeerRun(missing=True, error=f"not installed: pip install {install(peer)}")
    # The runtime comes in several distributions.
    version = runtime_version() if peer in _MODULES else importlib.metadata.version(peer)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "model.onnx"
    command = guard.command(_CHILD.format(code=PEERS[peer]), str(source.resolve()), str(target.resolve()))
    ended = children.call(command, seconds=limit, folder=folder, interrupted=interrupted)
    if ended.code is None:
        return PeerRun(version=version, error="interrupted" if interrupted() else f"no result after {limit:g} s")
    if ended.code != 0 or not target.exists():
        complaint = ended.complaint()
        lacking = re.search(r"No module named '(\w+)'", complaint)
        if lacking is not None:
            return PeerRun(
                version=version, missing=True, error=f"needs the Python module {lacking[1]}, which is not installed"
            )
        return PeerRun(version=version, error=complaint)
    return PeerRun(target, float(json.loads(ended.out.splitlines()[-1])), version)
