"""The tutorial's commands and their output: ``python -m tests.docs.tutorial`` runs them and writes docs/tutorial.md anew."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.tour import show

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial.md"
BLOCK = re.compile(r"^```console\n\$ (.*)\n((?:.*\n)*?)```\n", re.MULTILINE)


def prepare(folder: Path) -> Path:
    """What the tutorial's reader has: a model, one of another function, a folder of models, and the Python that stands there."""
    import onnx

    shutil.copy(ROOT / "models/demo_regnet.onnx", folder / "regnet.onnx")
    other = onnx.load(folder / "regnet.onnx")
    tensor = next(t for t in other.graph.initializer if len(t.dims) == 4)
    tensor.raw_data = bytes(len(tensor.raw_data))
    onnx.save(other, folder / "other.onnx")
    (folder / "nets").mkdir()
    for name in ("a", "b"):
        shutil.copy(folder / "regnet.onnx", folder / f"nets/{name}.onnx")
    (folder / "nets/broken.onnx").write_bytes((folder / "regnet.onnx").read_bytes()[:5000])
    (snippet,) = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (folder / "fast.py").write_text(snippet)
    return folder


def outputs(folder: Path, tries: int = 1) -> Iterator[tuple[str, str]]:
    """Each command of the tutorial with what it shows now; again where the machine was too busy to tell whether a model is faster."""
    for command, _ in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        words = shlex.split(command)
        arguments = words[1:] if words[0] == "python" else ["-m", *words]
        for _ in range(tries):
            text = show([sys.executable, *arguments], folder).text.replace(f"{folder}/", "")
            if text and "too noisy to tell" not in text:
                break
        yield command, text


def main() -> None:
    """Write the tutorial anew."""
    with tempfile.TemporaryDirectory() as name:
        shown = iter([*outputs(prepare(Path(name)), tries=6)])
    text = BLOCK.sub(
        lambda found: "```console\n$ {}\n{}\n```\n".format(*next(shown)), TUTORIAL.read_text(encoding="utf-8")
    )
    TUTORIAL.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
