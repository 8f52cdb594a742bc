"""Failures as text: what the model is, at which sizes and by which rule it failed."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnx import parser, printer

from tests.fuzz.draft import Input
from tests.fuzz.trial import Case, Verdict

FOLDER = Path(__file__).parent / "regressions"
FALLEN = Path(__file__).parent / "fallen"
"""Failures by rules that are wrong, until they are mended: then the file moves to :data:`FOLDER`."""


def write(case: Case, verdict: Verdict, rule: str, name: str, folder: Path = FOLDER) -> Path:
    """Write a case as a text that :func:`read` reads; as a binary model beside its notes, where ONNX can't print it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "rule": rule,
        "found": f"{verdict.outcome}: {verdict.reason}",
        "bindings": [dict(b) for b in case.bindings],
        "inputs": [[i.name, i.dtype, list(i.dims)] for i in case.inputs],
    }
    path = folder / f"{name}.onnxtxt"
    text = printer.to_text(case.model)
    try:
        again = parser.parse_model(text)
        printable = [n.op_type for n in again.graph.node] == [n.op_type for n in case.model.graph.node]
    except Exception:  # the parser raises errors of its own, and printing loses some types
        printable = False
    if not printable:
        onnx.save(case.model, path.with_suffix(".onnx"))
        text = ""
    path.write_text(f"# {json.dumps(about)}\n{text}", encoding="utf-8")
    return path


def read(path: Path) -> tuple[Case, str]:
    """A case and the rule that it failed by."""
    head, _, text = path.read_text(encoding="utf-8").partition("\n")
    about = json.loads(head.removeprefix("# "))
    model = parser.parse_model(text) if text.strip() else onnx.load(path.with_suffix(".onnx"))
    inputs = tuple(Input(name, dtype, tuple(dims)) for name, dtype, dims in about["inputs"])
    return Case(model, inputs, tuple(about["bindings"])), about["rule"]
