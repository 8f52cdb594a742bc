"""Variants whose speed is known by construction: does the benchmark call them what they are?

    python -m tests.bench.planted [--runs 20] [--seconds 5] [--kind conv gemm]

A chain of 20 equal layers is measured against the same with 21, which is 5 % more work and must be called slower, and
against the same graph with other names for its nodes and values, written in another order, which must be called equal.
Each run opens its own sessions and takes about ``--seconds``, more where the machine is noisy. Fails unless 19 of 20
verdicts are right.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.rounds import Contender, Sampling, in_process, measure
from graphopt.runtime.session import Session, SessionConfig
from graphopt.runtime.timing import Ratio

LAYERS = 20
"""One more is 5 % more work."""

SHAPES = {"conv": ((1, 32, 28, 28), (32, 32, 3, 3)), "gemm": ((64, 256), (256, 256))}
"""Of the activations and the weight of a layer."""


def chain(kind: str, layers: int, prefix: str = "") -> onnx.ModelProto:
    """Equal layers one after the other.

    Args:
        kind: Of the layers, one of :data:`SHAPES`.
        layers: How many.
        prefix: Of all names; with one, the weights are also listed in the opposite order.
    """
    data, weight = SHAPES[kind]
    rng = np.random.default_rng(0)
    names = ["x", *(f"{prefix}h{i}" for i in range(1, layers)), "y"]
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal(weight) / math.sqrt(math.prod(weight[1:]))).astype(np.float32), f"{prefix}w{i}"
        )
        for i in range(layers)
    ]
    attributes: dict[str, Any] = {"pads": [1, 1, 1, 1]} if kind == "conv" else {}
    nodes = [
        helper.make_node(
            kind.capitalize(), [names[i], f"{prefix}w{i}"], [names[i + 1]], name=f"{prefix}n{i}", **attributes
        )
        for i in range(layers)
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, data) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights[::-1] if prefix else weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(kind: str, sampling: Sampling, folder: Path) -> tuple[Ratio, Ratio]:
    """One measurement of both plants.

    Returns:
        The ratio of the slower and of the equal one.
    """
    contenders = []
    for name, proto in {
        "original": chain(kind, LAYERS),
        "slower": chain(kind, LAYERS + 1),
        "equal": chain(kind, LAYERS, "other_"),
    }.items():
        path = folder / f"{kind}.{name}.onnx"
        onnx.save(proto, path)
        contenders.append(Contender(name, path, SessionConfig()))
    with Session(contenders[0].model) as session:
        feeds = make_feeds(session.input_specs)
    measured = measure(contenders, in_process(feeds), sampling)
    assert measured is not None
    slower, equal = measured.ratios
    return slower, equal


def main() -> int:
    """Run them and count; 1 if too many verdicts are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kind", nargs="+", choices=SHAPES, default=["conv"])
    given = parser.parse_args()
    enough = True
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kind:
            counts: dict[str, Counter[str]] = {"slower": Counter(), "equal": Counter()}
            for number in range(given.runs):
                ratios = run(kind, Sampling(given.seconds), Path(folder))
                cells = []
                for plant, ratio in zip(counts, ratios, strict=True):
                    counts[plant][ratio.verdict] += 1
                    cells.append(f"{plant}: {ratio.value:.3f} ({ratio.low:.3f} - {ratio.high:.3f}) {ratio.verdict:8}")
                print(f"{kind} {number + 1:2}  " + "  ".join(cells), flush=True)
            for plant, found in counts.items():
                print(f"{kind}: planted {plant}, called {dict(found)}")
                enough = enough and found[plant] >= 0.95 * given.runs
    return 0 if enough else 1


if __name__ == "__main__":
    raise SystemExit(main())
