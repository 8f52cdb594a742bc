"""The same model, rules, seed and stored prices give the same bytes in another process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import graphopt
from graphopt.config import cache_dir

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "demo_regnet.onnx"
STRATEGIES = ("greedy", "backtracking", "ils", "mcts", "auto", "beam", "random") + (
    ("egraph",) if find_spec("scipy") else ()
)
USUAL = ("greedy", "backtracking", "ils", "mcts", "auto")
RUN = """
import sys, graphopt
model, *strategies = sys.argv[1:]
for name in strategies:
    graphopt.optimize(model, output=f"{name}.onnx", trace=f"{name}.json", strategy=name, measure=False, threads=1)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A cache with measured prices of kernels."""
    folder = tmp_path_factory.mktemp("warm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_CACHE_DIR", str(folder))
        graphopt.optimize(MODEL, strategy="greedy", budget=4.0)
        assert cache_dir() == folder
    return folder


def written(folder: Path, store: Path | None, hash_seed: int, strategies: Sequence[str]) -> dict[str, str]:
    """What another process writes, in a folder and with a cache of its own: the hash of each file, by name."""
    folder.mkdir()
    if store is not None:
        shutil.copytree(store, folder / "cache", ignore=shutil.ignore_patterns("rules"))
    env = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "GRAPHOPT_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    shutil.copy(MODEL, folder / "model.onnx")
    command = [sys.executable, "-c", RUN, "model.onnx", *strategies]
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=500)
    return {f"{name}.{kind}": _hash(folder / f"{name}.{kind}") for name in strategies for kind in ("onnx", "json")}


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("prices", "strategies"),
    [
        ("measured", USUAL),
        pytest.param("none", USUAL, marks=pytest.mark.thorough),
        *(pytest.param(prices, STRATEGIES, marks=pytest.mark.thorough) for prices in ("measured", "none")),
    ],
    ids=["measured", "none", "measured-all", "none-all"],
)
def test_two_processes_write_the_same_bytes(store, tmp_path, prices, strategies):
    warm = store if prices == "measured" else None
    found = [written(tmp_path / f"{seed}", warm, seed, strategies) for seed in (1, 2)]
    assert found[0] == found[1]
    rewritten = {name for name in strategies if json.loads((tmp_path / "1" / f"{name}.json").read_text())["steps"]}
    assert rewritten >= set(USUAL)  # else equal bytes would say nothing
