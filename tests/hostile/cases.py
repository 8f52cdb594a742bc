"""All hostile inputs."""

from __future__ import annotations

from tests.hostile import binaries, texts
from tests.hostile.texts import Case

CASES: tuple[Case, ...] = (
    *texts.rule_files(), *texts.traces(), *texts.manifests(), *texts.others(),
    *binaries.models(), *binaries.deadly(), *binaries.heavy(), *binaries.inputs(), *binaries.stores(),
)  # fmt: skip
