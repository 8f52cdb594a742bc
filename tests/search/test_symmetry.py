"""Classes of equal places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.search.symmetry import SiteClasses
from pathlib import Path
graph, classes = load(Path("models/demo_regnet.onnx")).graph, SiteClasses()
sites = Sites.of(graph, load_library(evidence=False))
print(sorted({classes.of(graph, match) for match in sites}))
"""


def test_classes_are_the_same_in_every_process() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].count(",") > 10
