"""Permissions, also where the tests run as root, who has them all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NOBODY = 65534


@contextmanager
def anyones_folder() -> Iterator[Path]:
    """A temporary folder that anybody may look into; those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@contextmanager
def permissions_apply() -> Iterator[None]:
    """For the while root is nobody. Import before what is needed: the interpreter's own files may be root's alone."""
    switched = False
    if os.geteuid() == 0:
        with suppress(PermissionError):  # without its powers, as in many containers, root obeys permissions as it is
            os.setresuid(_NOBODY, _NOBODY, 0)
            switched = True
    try:
        yield
    finally:
        if switched:
            os.setresuid(0, 0, 0)
