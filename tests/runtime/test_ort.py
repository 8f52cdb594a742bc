"""The runtime's own habits, before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = (
    "import os; from graphopt.runtime.ort import onnxruntime; import threading\n"
    "print(os.environ['ORT_DISABLE_TELEMETRY'], os.environ['ORT_TELEMETRY_DISABLED'])\n"
    "print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1)"
)


def told(folder: Path, **environment: str) -> list[str]:
    base = {k: v for k, v in os.environ.items() if "TELEMETRY" not in k}
    base |= {"PYTHONPATH": str(ROOT), "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", CODE], env=base | environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()


def test_telemetry_is_off_unless_the_user_says_otherwise(tmp_path):
    assert told(tmp_path) == ["1", "1", "1"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert told(tmp_path, ORT_DISABLE_TELEMETRY="0", ORT_TELEMETRY_DISABLED="0")[:2] == ["0", "0"]
