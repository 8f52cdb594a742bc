"""Put a trained agent where `graphopt optimize` finds it: the manifest and its ONNX models, made faster by graphopt itself.

    python -m tests.bench.ship AGENT

AGENT is a folder of `graphopt train-agent`. Prints what each of the models gained; what does not gain is taken as it is.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

import graphopt
from graphopt.rl.agent import CONTROLLER, ENCODER, MEMORY, RULES, STRATEGY
from graphopt.rl.checkpoint import read_manifest

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", type=Path)
    given = parser.parse_args()
    manifest = read_manifest(given.agent)
    out = ROOT / "models" / "agents" / STRATEGY[manifest.algorithm]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in (ENCODER, RULES, CONTROLLER, MEMORY):
        path = given.agent / name
        if not path.is_file():
            continue
        result = graphopt.optimize(path, output=out / name, strategy="greedy", budget=20)
        latency = result.report["latency"]
        print(f"{name}: {latency['speedup']:.3f} {latency['ci95']}" + (", kept" if result.report["kept_original"] else ""))
    replace(manifest, weights="").write(out)


if __name__ == "__main__":
    main()
