"""Put a trained agent where `graphopt optimize` finds it: the manifest and its ONNX models, made faster by graphopt itself.

    python -m tests.bench.ship AGENT

AGENT is a folder of `graphopt train-agent`. Each model is optimised on what it sees when it is used, a round of states side by side;
prints what it gained. What does not gain is taken as it is.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt.cost.store import Store
from graphopt.registry import strategy_of
from graphopt.rl.agent import CONTROLLER, ENCODER, EPISODES_PER_ROUND, MEMORY, RULES
from graphopt.rl.features import Batch
from graphopt.rl.manifest import read_manifest
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.task import Source
from graphopt.rl.training.environments import library_of, open_environment
from graphopt.runtime.session import Session, SessionConfig

ROOT = Path(__file__).resolve().parents[2]
MODEL = "squeezenet1_1"


def inputs(agent: Path) -> Mapping[str, Mapping[str, Any]]:
    """What each model is given, by its file."""
    task = read_manifest(agent).task
    rules = RuleBatch.of(library_of(task).rules)
    with Store() as store:
        batch = Batch.of([open_environment(task, Source(MODEL), store).root.observation] * EPISODES_PER_ROUND)
    seen = {f.name: getattr(batch, f.name) for f in fields(batch)}
    found: dict[str, dict[str, Any]] = {
        ENCODER: {name: seen[name] for name in ("operators", "nodes", "links", "edges", "graphs", "node_graph")},
        RULES: {f.name: getattr(rules, f.name) for f in fields(rules)},
    }
    config = SessionConfig()
    with Session(agent / ENCODER, config) as encoder, Session(agent / RULES, config) as rule_encoder:
        embedded, whole = encoder.run(found[ENCODER])
        (table,) = rule_encoder.run(found[RULES])
    found[CONTROLLER] = {
        "embedded": embedded, "whole": whole, "table": table,
        **{name: seen[name] for name in ("rules", "sites", "actions", "action_graph")},
    }  # fmt: skip
    if (agent / MEMORY).is_file():
        with Session(agent / CONTROLLER, config) as controller, Session(agent / MEMORY, config) as memory:
            width = next(spec.shape[1] for spec in memory.input_specs if spec.name == "memory")
            found[CONTROLLER]["memory"] = np.zeros((EPISODES_PER_ROUND, int(str(width))), np.float32)
            *_, latent, look = controller.run(found[CONTROLLER])
        chosen = look[batch.first[:-1]]
        found[MEMORY] = {"latent": latent, "look": chosen, "memory": found[CONTROLLER]["memory"]}
    return found


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", type=Path)
    given = parser.parse_args()
    out = ROOT / "models" / "agents" / strategy_of(read_manifest(given.agent).algorithm)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, feeds in inputs(given.agent).items():
        result = graphopt.optimize(given.agent / name, output=out / name, inputs=feeds, budget=15, threads=1)
        latency = result.report["latency"]
        said = "kept as it was" if result.report["kept_original"] else f"{latency['speedup']:.3f} {latency['ci95']}"
        print(f"{name}: {(out / name).stat().st_size / 1e6:.2f} MB, {said}")
    shutil.copy(given.agent / "manifest.json", out)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
