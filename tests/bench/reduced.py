"""Models of reduced types through ``graphopt optimize``: a table of docs/results.md.

    python -m tests.bench.reduced NAME:WAY [...] [--threads 1] [--json FILE] [--folder DIR]

A name is one of the zoo, exported by torch's current exporter; a way is what ONNX Runtime's own tools do to it:

    static      8 bits between QuantizeLinear and DequantizeLinear, by the defaults of ``quantize_static`` (int8) and scales by channel
    unsigned    the same with activations of uint8
    qoperator   static, in the format QOperator
    dynamic     ``quantize_dynamic``
    weights4    weights of 4 bits (MatMulNBits)
    float16     float16 with inputs and outputs of float32

Every model runs in a process of its own; those that the JSON file holds already are not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization

from graphopt.zoo import build, reduced

WAYS = ("static", "unsigned", "qoperator", "dynamic", "weights4", "float16")


_SETS = 3  # of random inputs that ranges are taken from


def make(name: str, way: str, path: Path) -> None:
    """Write a model of the zoo with reduced types."""
    path.write_bytes(build(name, "dynamo").read_bytes())
    if way == "dynamic":
        reduced.dynamic(path, name)
    elif way == "float16":
        reduced.half(path, name)
    elif way == "weights4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(path), block_size=32, accuracy_level=4)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))
    else:
        form = quantization.QuantFormat.QOperator if way == "qoperator" else quantization.QuantFormat.QDQ
        kind = quantization.QuantType.QUInt8 if way == "unsigned" else quantization.QuantType.QInt8
        reduced.static(path, name, _SETS, quant_format=form, activation_type=kind)


def optimised(path: Path, threads: int) -> dict[str, Any]:
    """The report of the default command on a model, in a process of its own."""
    report = path.with_suffix(".json")
    command = [sys.executable, "-m", "graphopt", "optimize", str(path), "-o", str(path.with_suffix(".out.onnx")), "-q"]
    done = subprocess.run([*command, "--json", str(report), "--threads", str(threads)], check=False)
    found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return {**found, "code": done.returncode}


def row(name: str, way: str, found: Mapping[str, Any]) -> str:
    """A line of the table."""
    latency, took = found.get("latency"), f"{found.get('seconds', 0):.0f}"
    if found["code"] or not latency:
        return f"| {name} | {way} | {'failed' if found['code'] else 'kept'} | | | | {took} |"
    interval = "[{:.3f}, {:.3f}]".format(*latency["ci95"])
    ratio = "kept" if found["kept_original"] else f"**{latency['speedup']:.3f}**"
    memory = found["memory"]["after"] / found["memory"]["before"] if found["memory"] else 1.0
    rules = ", ".join(f"`{rule}` x{count}" for rule, count in sorted(found["rules"].items(), key=lambda r: -r[1])[:3])
    before = f"{latency['baseline_ms']:.2f}"
    return f"| {name} | {way} | {ratio} {interval} | {before} | {memory:.2f} | {rules} | {took} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME:WAY", help=f"of the zoo; {', '.join(WAYS)}")
    parser.add_argument("--threads", type=int, default=1, help="0: all cores (default: 1)")
    parser.add_argument("--json", type=Path, help="keep what was found here")
    parser.add_argument("--folder", type=Path, help="keep the models here")
    given = parser.parse_args()
    known = json.loads(given.json.read_text(encoding="utf-8")) if given.json and given.json.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models:
            name, _, way = model.rpartition(":")
            if way not in WAYS:
                parser.error(f"{model}: the way is one of {', '.join(WAYS)}")
            if model not in known:
                path = (given.folder or Path(folder)) / f"{name}-{way}.onnx"
                if not path.exists():
                    make(name, way, path)
                known[model] = optimised(path, given.threads)
                if given.json:
                    given.json.write_text(json.dumps(known), encoding="utf-8")
            print(row(name, way, known[model]), flush=True)


if __name__ == "__main__":
    main()
