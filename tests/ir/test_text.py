"""The printed form of graphs against golden files; ``UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from tests.ir.text import to_text

GOLDEN = Path(__file__).parent / "golden"
DEMO = Path(__file__).parents[2] / "models" / "demo_regnet.onnx"


def merged() -> Graph:
    """The demo with the groups of its first grouped convolution merged."""
    graph = simplify(load(DEMO).graph)
    sites = Sites.of(graph, load_library(["merge-conv-groups-to-block"]))
    first = min(sites, key=lambda match: graph.order[match.nodes[0]])
    return apply(graph, first)[0]


@pytest.mark.parametrize(("name", "make"), [("demo", lambda: load(DEMO).graph), ("demo_merged", merged)])
def test_text(name, make):
    file = GOLDEN / f"{name}.txt"
    text = to_text(make())
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
