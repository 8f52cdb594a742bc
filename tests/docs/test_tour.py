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
    # Two seconds are enough, but where the machine is very busy.
    wrong = differences(tmp_path / "quick", "--budget 2") and differences(tmp_path / "whole", "--budget 10")
    assert not wrong, f"{wrong}\n\npython -m tests.bench.tour writes the tour anew"


def differences(folder, budget):
    """The first command that prints other lines than the tour shows, with what it prints and what differs; empty for none."""
    folder.mkdir()
    shutil.copy(ROOT / "models/demo_regnet.onnx", folder / "regnet.onnx")
    for command, then in SHOWN:
        arguments = shlex.split(command.replace("--budget 10", budget))
        now = show([sys.executable, "-m", *arguments], folder).text.replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        # The evidence of a rule changes with what the prover tries.
        one, other = (lines(text.partition("\nverdict ")[0]) for text in (now, then))
        differs = {label for label in one ^ other if not label.startswith(VARIES)}
        if differs or (then.startswith("error") and now != then.strip()):
            return f"{command}\n{now}\n{differs}"
    return ""
