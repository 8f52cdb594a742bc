"""The zoo through ``graphopt optimize``: the table of measured results in the README.

    python -m tests.bench.zoo [NAME ...] [--exporter dynamo legacy] [--threads 1] [--provider cpu] [--strategy auto] [--budget SECONDS]
        [--json FILE] [--markdown FILE]
        [--families FILE] [--keep DIR]

Every model runs in a process of its own, so that its peak memory is its own. The ratio is the latency of the original
under the runtime's full optimisation (``ORT_ENABLE_ALL``) over that of the written file under the same, from interleaved
rounds; a model whose input was kept counts as 1. ``--families`` tabulates what the clock said of every family of rules on
every model (the model without the family over the model with it), ``--keep`` keeps the written files. Results are written after each model, and models that the JSON file
holds already are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx

from graphopt.zoo import build, describe, names


def run(name: str, exporter: str, given: argparse.Namespace) -> dict[str, Any]:
    """Optimise one model; what came of it."""
    keep: Path | None = given.keep
    source = build(name, exporter)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        out, report = Path(folder) / "out.onnx", Path(folder) / "report.json"
        command = [sys.executable, "-m", "graphopt", "optimize", str(source), "-o", str(out), "--json", str(report),
                   "--threads", str(given.threads), "--provider", given.provider, "--strategy", given.strategy, "-q"]  # fmt: skip
        if given.budget is not None:
            command += ["--budget", str(given.budget)]
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", _PEAK, *command], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begin
        entry: dict[str, Any] = {"model": name, "exporter": exporter, "threads": given.threads, "provider": given.provider,
                                 "strategy": given.strategy, "budget": given.budget, "seconds": seconds,
                                 "size_mb": source.stat().st_size / 1e6, "exit": done.returncode}  # fmt: skip
        lines = done.stderr.strip().splitlines()
        if lines and lines[-1].startswith("peak_kb "):
            entry["peak_mb"] = int(lines.pop().split()[1]) / 1e3
        if done.returncode != 0:
            return {**entry, "error": "\n".join(lines[-3:])}
        data = json.loads(report.read_text())
        onnx.checker.check_model(str(out))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(out, keep / f"{name}.{exporter}.onnx")
        for key in ("latency", "kept_original", "verified", "nodes", "size", "rules", "families", "search", "warnings"):
            entry[key] = data[key]
        return entry


# The child's child is measured alone: RUSAGE_CHILDREN of a fresh process.
_PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("peak_kb", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def key(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What was measured, where, and how it was searched."""
    how = entry.get("provider", "cpu"), entry.get("strategy", "greedy"), entry.get("budget")
    return entry["model"], entry["exporter"], entry["threads"], *how


def ratio(entry: dict[str, Any]) -> float | None:
    """Speed-up of the written file; 1 when it is the input."""
    if "error" in entry:
        return None
    return 1.0 if entry["kept_original"] else float(entry["latency"]["speedup"])


def forecast(entry: dict[str, Any]) -> bool:
    """Whether something is known of a model's gain besides what the clock says."""
    return "error" not in entry and entry["latency"] is not None and entry["search"].get("predicted") is not None


def markdown(entries: list[dict[str, Any]]) -> str:
    """The results as a table, best first, with the geometric mean."""
    lines = ["| model | exporter | over `ORT_ENABLE_ALL` | 95 % interval | predicted | ms before | ms after | nodes | rules that stayed | seconds |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for e in sorted(entries, key=lambda e: -(ratio(e) or 0)):
        if "error" in e:
            lines.append(
                f"| {e['model']} | {e['exporter']} | failed | {e['error'].splitlines()[-1] if e['error'] else ''} | | | | | | |"
            )
            continue
        latency, predicted = e["latency"], e["search"].get("predicted")
        expected = "" if predicted is None else f"{predicted:.3f}"
        if e["kept_original"]:
            measured = "" if latency is None else f"({latency['speedup']:.3f} measured)"
            lines.append(
                f"| {e['model']} | {e['exporter']} | 1 (kept) | {measured} | {expected} | | | {e['nodes']['before']} | | {e['seconds']:.0f} |"
            )
            continue
        rules = ", ".join(f"{r} x{n}" for r, n in list(e["rules"].items())[:4])
        low, high = latency["ci95"]
        lines.append(
            f"| {e['model']} | {e['exporter']} | **{latency['speedup']:.3f}** | {low:.3f} - {high:.3f} | {expected} | {latency['baseline_ms']:.2f} "
            f"| {latency['optimized_ms']:.2f} | {e['nodes']['before']} → {e['nodes']['after']} | {rules} | {e['seconds']:.0f} |"
        )
    found = [r for e in entries if (r := ratio(e)) is not None]
    if found:
        mean = math.exp(sum(math.log(r) for r in found) / len(found))
        lines.append(f"\nGeometric mean over {len(found)} models: **{mean:.3f}**")
        off = [abs(e["search"]["predicted"] - e["latency"]["speedup"]) for e in entries if forecast(e)]
        if off:
            lines.append(
                f"Predicted and measured gain differ by {100 * sum(off) / len(off):.1f} points on average, at most by {100 * max(off):.1f}"
            )
    return "\n".join(lines) + "\n"


def by_family(entries: list[dict[str, Any]]) -> str:
    """What each family of rules earns, model by model: the time without it over the time with it."""
    found: dict[str, list[tuple[float, str]]] = {}
    for e in entries:
        for f in e.get("families", []):
            if f["ratio"] is None or f["ci95"] is None:
                continue
            low, high = f["ci95"]
            text = f"{e['model']} {e['exporter']} {f['ratio']:.3f} [{low:.3f}, {high:.3f}]"
            found.setdefault(f["family"], []).append((f["ratio"], text if f["kept"] else f"{text} taken back"))
    lines = ["| family | models measured | best | worst |", "|---|---|---|---|"]
    for family in sorted(found, key=lambda name: -max(found[name])[0]):
        rows = sorted(found[family], reverse=True)
        best = "; ".join(text for _, text in rows[:3])
        lines.append(f"| {family} | {len(rows)} | {best} | {rows[-1][1] if len(rows) > 3 else ''} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the models that are not in the JSON file yet and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporter", nargs="+", default=["dynamo", "legacy"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--budget", type=float)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--families", type=Path)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    chosen = arguments.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]
    entries: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        entries = json.loads(arguments.json.read_text())
    here = (arguments.threads, arguments.provider, arguments.strategy, arguments.budget)
    done = {key(e) for e in entries if "error" not in e}
    for name in chosen:
        for exporter in arguments.exporter:
            if (name, exporter, *here) in done:
                continue
            entry = run(name, exporter, arguments)
            entries = [*(e for e in entries if key(e) != key(entry)), entry]
            latency = entry.get("latency") or {}
            print(f"{name:20} {exporter:7} {entry.get('error') or latency.get('speedup')} {latency.get('ci95', '')} "
                  f"kept={entry.get('kept_original')} {entry['seconds']:.0f}s peak {entry.get('peak_mb', 0):.0f} MB", flush=True)  # fmt: skip
            if arguments.json:
                arguments.json.write_text(json.dumps(entries, indent=1) + "\n")
    text = markdown([e for e in entries if key(e)[2:] == here])
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.families:
        arguments.families.write_text(by_family(entries))
    return 1 if any("error" in e for e in entries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
