"""Nodes of the normal form against those that plain cleaners leave: onnxsim, onnxslim and the onnxscript optimizer.

    python -m tests.bench.clean [NAME ...] [--exporter dynamo legacy] [--ops] [--peers FILE] [--markdown FILE]

A name is one of the zoo (``mobilebert@batch=0``: with a symbolic batch) or a file. What a peer leaves is kept in the file that
``--peers`` names and not made again. ``--ops`` prints for each model that is behind the operators of which there are more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

from graphopt.benchmark.peers import PEERS, run_peer
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library, load_library
from graphopt.search.cleaning import flat_form, normal_form
from graphopt.search.normal import simplified
from graphopt.zoo import build, describe, names

_SLACK = 1 << 20


def operators(proto: onnx.ModelProto) -> Counter[str]:
    """Nodes of a model by operator; Constant nodes are initializers under another name."""
    return Counter(node.op_type for node in proto.graph.node if node.op_type != "Constant")


def ours(path: Path, library: Library) -> tuple[Counter[str], float]:
    """Operators of the normal form as it is written, and the seconds from the loaded model to it."""
    model = load(path)
    begin = time.perf_counter()
    graph, _ = normal_form(simplified(model.graph), library)
    flat, _ = flat_form(graph, library)
    graph = flat if flat.live_nodes() < graph.live_nodes() else graph
    seconds = time.perf_counter() - begin
    return operators(emit(model, graph, max_bytes=int(1.1 * model.nbytes) + _SLACK).proto), seconds


def theirs(path: Path, known: dict[str, Any]) -> dict[str, Any]:
    """For each peer the operators that it leaves and its seconds, or why it failed."""
    for peer in PEERS:
        if peer in known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = run_peer(peer, path, Path(folder))
            known[peer] = (
                {"error": done.error} if done.path is None
                else {"ops": operators(onnx.load(done.path, load_external_data=False)), "seconds": done.seconds}
            )  # fmt: skip
    return known


def row(name: str, path: Path, library: Library, peers: dict[str, Any]) -> tuple[str, int, int | None, str]:
    """A line of the table, our nodes, the fewest of the peers, and of which operators there are more or fewer than there."""
    mine, seconds = ours(path, library)
    before = operators(onnx.load(path, load_external_data=False))
    cells, best = [], None
    for peer in PEERS:
        found = peers[peer]
        count = None if "error" in found else sum(found["ops"].values())
        cells.append("failed" if count is None else f"{count}")
        if count is not None and (best is None or count < sum(best.values())):
            best = Counter(found["ops"])
    ahead = None if best is None else sum(best.values())
    diff = {} if best is None else {op: mine[op] - best[op] for op in sorted({*mine, *best}) if mine[op] != best[op]}
    line = f"| {name} | {sum(before.values())} | {sum(mine.values())} | {seconds:.2f} | {' | '.join(cells)} |"
    return line, sum(mine.values()), ahead, ", ".join(f"{op} {n:+}" for op, n in diff.items())


def main() -> int:
    """Print the table; 1 when more than a twentieth of the models have more nodes than a peer leaves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporter", nargs="+", default=["dynamo", "legacy"])
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    kept: dict[str, Any] = json.loads(given.peers.read_text()) if given.peers and given.peers.exists() else {}
    chosen = given.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]
    models = [(n, Path(n)) for n in chosen if n.endswith(".onnx")]
    models += [(f"{n} {e}", build(n, e)) for n in chosen if not n.endswith(".onnx") for e in given.exporter]
    library = load_library()
    lines = [
        f"| model | nodes | normal form | seconds | {' | '.join(PEERS)} |", "|---|" + "---:|" * (3 + len(PEERS)),
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    behind = 0
    for name, path in models:
        found = theirs(path, kept.setdefault(name, {}))
        if given.peers:
            given.peers.write_text(json.dumps(kept) + "\n")
        line, nodes, best, diff = row(name, path, library, found)
        lines.append(line)
        print(line, flush=True)
        if best is not None and nodes > best:
            behind += 1
        if given.ops and best is not None and diff:
            print(f"    {nodes - best:+}: {diff}", flush=True)
    print(f"{len(models) - behind} of {len(models)} models have no more nodes than the best of the others leaves")
    if given.markdown:
        given.markdown.write_text("\n".join(lines) + "\n")
    return 1 if behind > 0.05 * len(models) else 0


if __name__ == "__main__":
    raise SystemExit(main())
