"""The wheel and an environment that has it, made once for all tests that want them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.once import once
from tests.packaging.installed import Installed, build, gather


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = once(tmp_path_factory, "dist", build).glob("*.whl")
    return built


@pytest.fixture(scope="session")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which pip finds all that building and installing the wheel takes, and asks no index once more."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(once(tmp_path_factory, "packages", partial(gather, wheel)))}


@pytest.fixture(scope="session")
def installed(wheel: Path, packages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """To be used, not to be changed: :meth:`Installed.copy` makes another."""
    return Installed(once(tmp_path_factory, "installed", lambda folder: Installed.of(wheel, folder, packages)))
