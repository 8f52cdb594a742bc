"""The pages of the gallery: reports of three models, made anew wherever the site is built, since they are too large to be kept.

    python docs/gallery.py DIR [SECONDS]   # from the root of the repository; needs pip install '.[cpu,zoo]'

``mkdocs`` calls :func:`on_files` (``hooks`` in ``mkdocs.yml``). Pages that lie in ``build/gallery`` already are used as they are.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

MODELS = ("demo_regnet", "tiny_bert", "shufflenet_v2_x0_5")
"""Of the zoo; the first is committed as well."""
BUILD = "graphopt zoo build"
OPTIMISE = "graphopt optimize -q"
SECONDS = 6


def make(folder: Path, seconds: int = SECONDS) -> None:
    """Write the pages that are not there.

    Args:
        folder: Where to.
        seconds: Budget of the search in each model.

    Raises:
        RuntimeError: One of the commands failed; the message holds what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if (folder / f"{name}.html").is_file():
            continue
        committed = Path(__file__).parents[1] / f"models/{name}.onnx"
        model = str(committed) if committed.is_file() else _run(f"{BUILD} {name}").splitlines()[-1]
        with tempfile.TemporaryDirectory() as place:
            page = Path(place) / f"{name}.html"
            output = f"{place}/{name}.opt.onnx"
            _run(f"{OPTIMISE} --budget {seconds} {shlex.join([model, '-o', output, '--report', str(page)])}")
            shutil.move(page, folder / page.name)


def _run(command: str) -> str:
    """What a command prints."""
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gallery: {command}: {done.stderr.strip()}")
    return done.stdout


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the pages beside ``gallery/index.md``."""
    from mkdocs.exceptions import PluginError
    from mkdocs.structure.files import File

    folder = Path(config.config_file_path).parent / "build/gallery"
    try:
        make(folder)
    except RuntimeError as error:
        raise PluginError(str(error)) from error
    for name in MODELS:
        files.append(File.generated(config, f"gallery/{name}.html", abs_src_path=str(folder / f"{name}.html")))
    return files


if __name__ == "__main__":
    make(Path(sys.argv[1]), *map(int, sys.argv[2:]))
