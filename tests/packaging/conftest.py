"""The wheel and an environment that has it, made once for all tests that want them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.installed import Installed, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.of(wheel, tmp_path_factory.mktemp("installed") / "env")
