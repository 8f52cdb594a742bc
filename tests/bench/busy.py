"""Does a busy machine change what `graphopt optimize` writes?

    python -m tests.bench.busy [MODEL ...] [--burners 2] [--threads 1] [--json FILE]

Each model (a file, or a name of the zoo) is optimised twice without a limit in seconds: on the machine as it is, and beside as many
programs that do nothing but compute. Kernels are priced once, before both, and each run has a store of its own: what is
compared is the search and the verdicts. Models that the JSON file holds already are not run again. Two plans that differ must differ by a measurement; the one that says so is named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import graphopt
from graphopt.benchmark.run import find_model

MODELS = (
    "demo_regnet", "tiny_regnet", "tiny_resnext", "tiny_convnext", "tiny_swin", "tiny_bert", "tiny_llama", "squeezenet1_1",
    "shufflenet_v2", "mobilenet_v3",
)  # fmt: skip
_BURN = "while True: sum(range(100_000))"


@contextmanager
def burning(programs: int) -> Iterator[None]:
    """A block beside which some programs compute."""
    started = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(programs)]
    try:
        yield
    finally:
        for program in started:
            program.kill()
            program.wait()


def optimised(path: Path, prices: Path, threads: int) -> dict[str, Any]:
    """What an optimisation ends with, by prices of its own."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(prices, Path(folder) / "cache")
        os.environ["GRAPHOPT_CACHE_DIR"] = str(Path(folder) / "cache")
        result = graphopt.optimize(path, threads=threads)
    told = result.report
    return {
        "graph": result.trace.result, "kept": told["kept_original"], "candidates": told["search"]["candidates"],
        "stop": told["search"]["stop_reason"], "rounds": told["search"]["rounds"], "seconds": told["seconds"],
        "latency": told["latency"], "families": {f["family"]: (f["kept"], f["ci95"]) for f in told["families"]},
    }  # fmt: skip


def compared(quiet: dict[str, Any], busy: dict[str, Any]) -> str:
    """``same``, or the first measurement by which two optimisations differ; ``DIFFERENT`` where there is none."""
    if (quiet["graph"], quiet["kept"]) == (busy["graph"], busy["kept"]):
        return "same"
    for family, (kept, _) in quiet["families"].items():
        if family in busy["families"] and busy["families"][family][0] != kept:
            return f"measured: {family} {'kept' if kept else 'taken back'} on the quiet machine"
    if quiet["rounds"] != busy["rounds"]:
        return f"measured: prices corrected in {quiet['rounds']} rounds, and in {busy['rounds']}"
    if quiet["kept"] != busy["kept"]:
        return "measured: the last pair"
    if "time" in quiet["stop"] or "time" in busy["stop"]:
        return "DIFFERENT: a search ran out of time"
    return "measured: an alternative" if quiet["candidates"] == busy["candidates"] else "DIFFERENT"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--burners", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    held = chosen.json is not None and chosen.json.exists()
    found = json.loads(chosen.json.read_text(encoding="utf-8")) if held else []
    for name in [name for name in chosen.models if name not in {entry["model"] for entry in found}]:
        _, path = find_model(name)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["GRAPHOPT_CACHE_DIR"] = folder
            graphopt.optimize(path, threads=chosen.threads)  # prices the kernels
            quiet = optimised(path, Path(folder), chosen.threads)
            with burning(chosen.burners):
                busy = optimised(path, Path(folder), chosen.threads)
        verdict = compared(quiet, busy)
        found.append({"model": name, "verdict": verdict, "quiet": quiet, "busy": busy})
        runs = " | ".join(f"{r['candidates']} candidates, {r['seconds']:.0f} s" for r in (quiet, busy))
        print(f"{name}: {runs} | {verdict}", flush=True)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
