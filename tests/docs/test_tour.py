"""What the tour shows is what its commands print: the same lines, with other numbers."""

from __future__ import annotations

import re
import shlex
import shutil
import sys

import pytest

from tests.bench.tour import PYTHON, ROOT, STEPS, show
from tests.docs.test_tutorial import VARIES, lines

TOUR = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```\n\$ (.*)\n((?:.*\n)*?)```\n", TOUR, re.MULTILINE)


def test_the_tour_has_all_steps():
    assert [command for command, _ in SHOWN] == [command for _, command in STEPS]
    assert all(f"{about}\n\n```\n$ {command}\n" in TOUR for about, command in STEPS)
    assert f"```python\n{PYTHON}```\n" in TOUR


@pytest.mark.slow
def test_the_tour_is_real(tmp_path):
    shutil.copy(ROOT / "models/demo_regnet.onnx", tmp_path / "regnet.onnx")
    for command, then in SHOWN:
        quick = command.replace("--budget 10", "--budget 2")  # what it finds is a matter of the second anyway
        now = show([sys.executable, "-m", *shlex.split(quick)], tmp_path).text.replace(f"{tmp_path}/", "")
        now = now.replace(f"{ROOT}/", "")
        if then.startswith("error"):
            assert now == then.strip()
        # The evidence of a rule changes with what the prover tries.
        parts = (text.partition("\nverdict ")[0] for text in (now, then))
        one, other = map(lines, parts)
        differs = {label for label in one ^ other if not label.startswith(VARIES)}
        assert not differs, f"{command}\n{now}\n\npython -m tests.bench.tour writes the tour anew"
