"""Random traces over the zoo: does each replay to the same bytes?

    python -m tests.bench.replays [NAME ...] [--traces 10] [--steps 15]

Each trace is a random walk over the rewrites of a model, written to disk, read back and carried out on the model loaded
afresh. Weights are compared too: the whole serialised model.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

import graphopt
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import load_library
from graphopt.zoo import build
from tests.search.test_trace import walk

MODELS = ("squeezenet1_1", "resnet18", "regnet_y_400mf", "shufflenet_v2", "mobilenet_v3", "efficientnet_b0", "nasrnn",
          "llama_small", "t5_encoder", "resnext50")  # fmt: skip


def main() -> int:
    """Print a line for each model; 1 if a trace leads elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--traces", type=int, default=10)
    parser.add_argument("--steps", type=int, default=15)
    given = parser.parse_args()
    library = load_library()
    bad = 0
    for name in given.names:
        source, begin, equal = build(name), time.monotonic(), 0
        for seed in range(given.traces):
            expected, told = walk(source, library, given.steps, seed)
            with tempfile.TemporaryDirectory() as folder:
                told.write(Path(folder) / "t.json")
                again = graphopt.replay(Path(folder) / "t.json", source)
            found = to_proto(again.emitted).SerializeToString(deterministic=True)
            equal += hashlib.sha256(found).digest() == hashlib.sha256(expected).digest()
        bad += given.traces - equal
        print(f"{name:20} {equal} of {given.traces} traces the same, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
