"""A few lines of Python in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def alone(code: str) -> subprocess.CompletedProcess[str]:
    """Run lines with the tests' modules at hand; what they print is text."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
