"""The package as its users have it: built, and installed into a clean environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = "Scripts" if os.name == "nt" else "bin"
BARE = ("graphopt rules list", "graphopt providers")
"""What is asked of an environment without a runtime."""


def environment(**more: str) -> dict[str, str]:
    """Variables in which nothing leads to the source tree, nor to settings of ours.

    pip compiles nothing: of thousands of files a few are imported, and those Python compiles then, once. (What pip is given is
    the value of what ``--no-compile`` sets, so that 1 would mean the contrary.)
    """
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    kept = {k: v for k, v in os.environ.items() if k not in hidden and not k.startswith("GRAPHOPT_")}
    return kept | {"PIP_NO_COMPILE": "0"} | more


def call(*command: object, cwd: Path, **more: str) -> str:
    """Run a command that must succeed; returns what it prints."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(folder: Path) -> None:
    """Make the wheel, through the source distribution, as a release is built: it must hold all that the wheel needs."""
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)


def gather(wheel: Path, folder: Path) -> None:
    """Download what building and installing the wheel takes: an index has a hundred thousand files to choose from."""
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    # Nothing may have to be compiled: users need no compiler.
    wanted = ("--quiet", "--only-binary", ":all:", "--dest", folder, f"{wheel}[cpu]", *builds)
    call(sys.executable, "-m", "pip", "download", *wanted, cwd=folder)


def source_tree(target: Path) -> Path:
    """A copy of the files that belong to the project, as a clone would have them."""
    names = call("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@dataclass(frozen=True)
class Installed:
    """A clean environment with nothing but the wheel and what it needs for the CPU.

    Attributes:
        folder: The environment.
    """

    folder: Path

    @staticmethod
    def of(wheel: Path, folder: Path, packages: Mapping[str, str]) -> Installed:
        """Make one, from a new environment by way of one that has no runtime; ``packages``: variables that say where pip finds them."""
        call(sys.executable, "-m", "venv", folder, cwd=folder.parent)
        made = Installed(folder)
        pip = (folder / BIN / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
        call(*pip, wheel, cwd=folder.parent, **packages)
        said = {}
        for line in BARE:
            done = made.shell(line, folder)
            said[line] = [done.returncode, done.stdout, done.stderr]
        made.bare.write_text(json.dumps(said), encoding="utf-8")
        call(*pip, f"{wheel}[cpu]", cwd=folder.parent, **packages)
        return made

    @property
    def bare(self) -> Path:
        """What the commands of ``BARE`` said before there was a runtime: exit code, stdout and stderr of each, as JSON."""
        return self.folder / "bare.json"

    def copy(self, folder: Path) -> Installed:
        """Another one, in which packages may come and go; of its commands only ``python`` is its own."""
        shutil.copytree(self.folder, folder, symlinks=True, copy_function=os.link)
        return Installed(folder)

    def shell(self, line: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line as a user types it, with the environment activated."""
        path = os.pathsep.join([str(self.folder / BIN), os.environ["PATH"]])
        places = {"GRAPHOPT_CACHE_DIR": str(self.folder / "prices"), "GRAPHOPT_ZOO_DIR": str(self.folder / "zoo")}
        variables = environment(PATH=path, VIRTUAL_ENV=str(self.folder), **places, **more)
        return subprocess.run(
            ["bash", "-c", line], cwd=cwd, env=variables, capture_output=True, text=True, timeout=900, check=False
        )
