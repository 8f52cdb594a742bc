"""Which of the runtime's packages are installed.

onnxruntime, onnxruntime-gpu, onnxruntime-openvino and the like are one program built in different ways: each writes the
same folder ``onnxruntime``, and pip does not know that they exclude each other. Whoever was installed last has overwritten
some files of the others, so that providers vanish without a word, and uninstalling one of them leaves a ruin. Plug-ins such
as onnxruntime-qnn have a folder of their own and go beside any of them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import PurePosixPath

from graphopt.errors import RuntimePackageError

_FOLDER = "onnxruntime"
_PREFIXES = ("onnxruntime", "ort-", "ort_")  # nightly builds are called ort-nightly


@dataclass(frozen=True)
class Package:
    """An installed package of the runtime.

    Attributes:
        name: What pip calls it.
        version: Its version.
        folder: The folder of Python packages that it is installed in.
        whole: Whether it holds the runtime itself; a plug-in does not.
    """

    name: str
    version: str
    folder: str
    whole: bool


def installed() -> list[Package]:
    """The runtime's packages on the path, in its order."""
    found: dict[tuple[str, str], Package] = {}
    for distribution in distributions():
        # Where a folder holds the metadata it bears the package's name, and looking into each of hundreds takes a tenth of a second.
        folder_name = str(getattr(getattr(distribution, "_path", None), "name", "")).lower()
        if folder_name and not folder_name.startswith(_PREFIXES):
            continue
        name = (distribution.metadata["Name"] or "").lower()
        if name.startswith(_PREFIXES):
            folder = os.path.realpath(str(distribution.locate_file("")))
            package = Package(name, distribution.version, folder, _holds_the_runtime(distribution, name))
            found.setdefault((name, folder), package)
    return list(found.values())


def owner(packages: Sequence[Package]) -> Package | None:
    """The package that ``import onnxruntime`` finds first; None where there is none, or a build that pip does not know."""
    return next((package for package in packages if package.whole), None)


def conflict(packages: Sequence[Package]) -> RuntimePackageError | None:
    """The error that two packages in one place make, if there are two."""
    for package in packages:
        rivals = sorted(p.name for p in packages if p.whole and package.whole and p.folder == package.folder)
        if len(rivals) > 1:
            names = " ".join(rivals)
            return RuntimePackageError(
                f"{' and '.join(rivals)} are installed together, but they overwrite each other's files",
                f"pip uninstall -y {names}, then install the one you want, such as pip install {rivals[-1]}",
            )
    return None


def _holds_the_runtime(distribution: Distribution, name: str) -> bool:
    # From Python 3.12 on `distribution.files` leaves out what is missing, which is what a ruin is known by.
    record = distribution.read_text("RECORD")
    if record is None:  # not installed by pip: no list of files
        return name == _FOLDER
    files = [PurePosixPath(row[0]) for row in csv.reader(record.splitlines()) if row]
    return any(file.parts[:2] == (_FOLDER, "__init__.py") for file in files)
