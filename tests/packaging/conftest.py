"""The wheel and an environment that has it, made once for all tests that want them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.once import once
from tests.packaging.installed import Installed, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = once(tmp_path_factory, "dist", build).glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """To be used, not to be changed: :meth:`Installed.copy` makes another."""
    return Installed(once(tmp_path_factory, "installed", lambda folder: Installed.of(wheel, folder)))
