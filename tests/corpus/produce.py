"""Build models of the corpus, in a process of its own, with whichever Python has the producer.

usage: python -m tests.corpus.produce PRODUCER FOLDER NAME...

Writes ``FOLDER/NAME.onnx`` and, where there are any, ``FOLDER/NAME.npz``, inputs that it runs on, and for each model a line of JSON: its name and, where it was
not built, why.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.corpus.recipes import Build, recipes

MISSING = "not installed: "


def main(producer: str, folder: str, *names: str) -> int:
    """Build models, one after the other."""
    with suppress(ModuleNotFoundError):
        from graphopt.zoo.modules import prepare_torchvision

        prepare_torchvision()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # producers are talkative
    known = recipes(producer)
    for name in names:
        why = ""
        try:
            _build(known[name], Path(folder), name)
        except ModuleNotFoundError as error:
            why = f"{MISSING}{error.name}" if error.name else str(error)
        except Exception as error:  # whatever a producer says
            why = f"{type(error).__name__}: {error}"
        print(json.dumps({"name": name, "why": why[:400]}), file=answers, flush=True)
    return 0


def _build(build: Build, folder: Path, name: str) -> None:
    path, partial = folder / f"{name}.onnx", folder / f".{name}.part"
    feeds = build(partial)
    if feeds:
        np.savez(path.with_suffix(".npz"), **feeds)
    partial.replace(path)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
