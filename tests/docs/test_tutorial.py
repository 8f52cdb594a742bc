"""What the tutorial shows is what its commands print: the same lines, with other numbers."""

from __future__ import annotations

import re

import pytest

from tests.docs.tutorial import BLOCK, TUTORIAL, outputs, prepare

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
# How fast it becomes, and with which rules, is a matter of the machine and of the second.
VARIES = (
    "warning", "(# to read it", "with more", "opening", "peak memory", "session", "see what changed", "settings may gain", "which rule made",
    "rule ", "none of the",
)  # fmt: skip
RULE = re.compile(r"[a-z0-9]+(-[a-z0-9]+){2,}")


def lines(text: str) -> set[str]:
    """What begins the lines of an output; in full, but for the numbers, where a line has no columns."""
    found = set()
    for line in text.splitlines():
        columns = re.split(r"\s{2,}", line.strip())
        if columns[0] in ("faster", "kept", "simpler"):
            found.add(columns[1].partition(":")[0])
            continue
        first = re.sub(r"\b(True|False)\b", "?", columns[0])
        first = re.sub(r"[\d.]+(e[-+]\d+)?( (ms|s|kB|MB|x|%))?", "#", first)
        if first.strip("#─ ") and not line.startswith(" ") and not RULE.match(first):
            found.add(first)
    return found


def test_the_tutorial_is_real(tmp_path):
    written = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    shown = [*outputs(prepare(tmp_path))]
    assert [command for command, _ in shown] == [command for command, _ in written] and len(written) > 8
    for (command, now), (_, then) in zip(shown, written, strict=True):
        differs = {label for label in lines(now) ^ lines(then) if not label.startswith(VARIES)}
        if "--check" in command and not now:
            continue  # on a busy machine no gain is certain
        assert not differs, f"{command}\n{now}\n\npython -m tests.docs.tutorial writes the tutorial anew"
