"""Files and permissions are as the tests of them say, whoever runs the suite: root, root without its powers, or a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("tests/test_files.py", "tests/cli/test_paths.py")
OTHERS = ("tests/onnxio/test_rubbish.py::test_unreadable", "tests/cost/test_store.py::test_a_read_only_folder")


@pytest.mark.parametrize(
    "become",
    [
        pytest.param(("unshare", "-U", "--map-user=1000"), id="a user"),
        pytest.param(
            ("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
            id="root without its powers",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_for_anybody(tmp_path, become):
    if shutil.which(become[0]) is None or subprocess.run([*become, "true"], capture_output=True).returncode:
        pytest.skip("not everybody can become somebody else")
    done = subprocess.run(
        [*become, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "t", *PLACES, *OTHERS],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
