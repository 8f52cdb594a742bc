"""graphopt's files against those of onnxsim, onnxslim and the onnxscript optimizer, on every model of the zoo.

    python -m tests.bench.peers --ours DIR [NAME ...] [--exporter dynamo legacy] [--threads 1] [--seconds 5] [--json FILE] [--markdown FILE]

``DIR`` holds what ``python -m tests.bench.zoo --keep DIR`` wrote. Each peer runs as in ``graphopt bench``, and its file is
timed against ours under ``ORT_ENABLE_ALL`` (on one thread, unless it says otherwise), in interleaved rounds over several sessions. Above 1 ours is faster. Models that the JSON file holds already are not run again;
``NAME@batch=0`` is one with symbolic batch.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from graphopt.benchmark.peers import PEERS, installed, run_peer
from graphopt.errors import SessionError
from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.rounds import Sampling, measure_pair
from graphopt.runtime.session import Session, SessionConfig
from graphopt.zoo import build, describe, names


def run(name: str, exporter: str, ours: Path, threads: int, seconds: float) -> dict[str, Any]:
    """One model against every peer."""
    source = build(name, exporter)  # type: ignore[arg-type]
    mine = ours / f"{name}.{exporter}.onnx"
    found: dict[str, Any]
    entry: dict[str, Any] = {"model": name, "exporter": exporter, "peers": {}}
    config = SessionConfig(threads=threads)
    with Session(source, config) as session:
        feeds = make_feeds(session.input_specs, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        for peer in PEERS:
            theirs = run_peer(peer, source, Path(folder) / peer)
            if theirs.path is None:
                entry["peers"][peer] = {"error": theirs.error}
                continue
            try:
                paired = measure_pair(theirs.path, mine, feeds, config, Sampling(seconds, patience=1))
                found = {"speedup": paired.speedup, "ci95": list(paired.ci95), "seconds": theirs.seconds}
            except SessionError as error:  # a peer may write what the runtime does not open
                found = {"error": str(error)}
            entry["peers"][peer] = found
            theirs.path.unlink()
    return entry


def markdown(entries: list[dict[str, Any]]) -> str:
    """The table, and the geometric means."""
    lines = ["| model | exporter | " + " | ".join(f"over {p}" for p in PEERS) + " |", "|---|---|" + "---|" * len(PEERS)]
    for e in entries:
        cells = []
        for peer in PEERS:
            found = e["peers"][peer]
            cells.append(
                f"failed: {found['error'][:60]}" if "error" in found
                else f"{found['speedup']:.3f} [{found['ci95'][0]:.3f}, {found['ci95'][1]:.3f}]"
            )  # fmt: skip
        lines.append(f"| {e['model']} | {e['exporter']} | " + " | ".join(cells) + " |")
    means = []
    for peer in PEERS:
        logs = [math.log(e["peers"][peer]["speedup"]) for e in entries if "speedup" in e["peers"][peer]]
        means.append(f"**{math.exp(sum(logs) / len(logs)):.3f}**" if logs else "")
    lines.append("| geometric mean | | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is missing and print the table; 1 when a peer's file is faster beyond the interval, or one of ours is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ours", type=Path, required=True)
    parser.add_argument("--exporter", nargs="+", default=["dynamo", "legacy"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    if missing := set(PEERS) - set(installed()):
        parser.error(f"not installed: {', '.join(sorted(missing))}")
    entries: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    absent = 0
    done = {(e["model"], e["exporter"]) for e in entries}
    for name in given.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]:
        for exporter in given.exporter:
            if (name, exporter) in done:
                continue
            if not (given.ours / f"{name}.{exporter}.onnx").exists():
                print(f"{name} {exporter}: nothing of ours in {given.ours}", flush=True)
                absent += 1
                continue
            entries.append(run(name, exporter, given.ours, given.threads, given.seconds))
            print(markdown(entries[-1:]).splitlines()[2], flush=True)
            if given.json:
                given.json.write_text(json.dumps(entries, indent=1) + "\n")
    text = markdown(entries)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)
    behind = [
        f"{e['model']} {e['exporter']}: {p}"
        for e in entries
        for p, r in e["peers"].items()
        if r.get("ci95", (1, 1))[1] < 1
    ]
    for line in behind:
        print("behind:", line)
    return 1 if behind or absent else 0


if __name__ == "__main__":
    raise SystemExit(main())
