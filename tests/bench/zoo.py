"""The zoo through ``graphopt optimize``: the first table of docs/results.md.

    python -m tests.bench.zoo [NAME ...] [--exporter dynamo legacy] [--threads 1 [0 ...]] [--provider cpu] [--strategy auto]
        [--budget SECONDS] [--json FILE] [--markdown FILE] [--families FILE] [--keep DIR]

Every model runs in a process of its own, so that its peak memory is its own. The ratio is the latency of the original
under the runtime's full optimisation (``ORT_ENABLE_ALL``) over that of the written file under the same, from interleaved
rounds; a model whose input was kept counts as 1. With several numbers of threads (0: all cores) each model is optimised
for each of them; the table is that of the first, with the ratios of the others beside it. *Opens* and *memory* are what opening a session
and the peak memory of a process that runs the model come to, times the original's. ``--families`` tabulates what the clock said of every family of rules on
every model (the model without the family over the model with it), ``--keep`` keeps the written files. Results are written after each model, and models that the JSON file
holds already are not run again.
"""

from __future__ import annotations

import argparse
import itertools
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


def run(name: str, exporter: str, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Optimise one model for a number of threads; what came of it."""
    keep: Path | None = given.keep
    source = build(name, exporter)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        out, report = Path(folder) / "out.onnx", Path(folder) / "report.json"
        command = [sys.executable, "-m", "graphopt", "optimize", str(source), "-o", str(out), "--json", str(report),
                   "--threads", str(threads), "--provider", given.provider, "--strategy", given.strategy, "-q"]  # fmt: skip
        if given.budget is not None:
            command += ["--budget", str(given.budget)]
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", _PEAK, *command], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begin
        entry: dict[str, Any] = {"model": name, "exporter": exporter, "threads": threads, "provider": given.provider,
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
            shutil.copy(out, keep / f"{name}.{exporter}{'' if threads == given.threads[0] else f'.{threads}'}.onnx")
        for key in TOLD:
            entry[key] = data[key]
        return entry


TOLD = (
    "latency",
    "opening",
    "memory",
    "tie",
    "kept_original",
    "verified",
    "nodes",
    "size",
    "rules",
    "families",
    "search",
    "warnings",
)
"""What is kept of a report."""

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


def geometric_mean(ratios: list[float]) -> float:
    """The geometric mean of some ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def measured(entry: dict[str, Any] | None) -> str:
    """The ratio of a model with its interval, as a cell."""
    if entry is None:
        return ""
    if "error" in entry:
        return f"failed: {(entry['error'].splitlines() or [''])[-1]}"
    latency = entry["latency"]
    if entry["kept_original"]:
        return "1 (kept)" if latency is None else f"1 (kept, {latency['speedup']:.3f} measured)"
    low, high = latency["ci95"]
    return f"**{latency['speedup']:.3f}** [{low:.3f}, {high:.3f}]"


def markdown(entries: list[dict[str, Any]], threads: list[int]) -> str:
    """The results as a table, best first, with the geometric mean for each number of threads."""
    titles = ["all cores" if n == 0 else f"{n} thread{'s' if n > 1 else ''}" for n in threads]
    heads = [
        "model",
        "exporter",
        *titles,
        "predicted",
        "ms before",
        "ms after",
        "opens",
        "memory",
        "nodes",
        "rules that stayed",
        "seconds",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    found = {(e["model"], e["exporter"], e["threads"]): e for e in entries}
    rows = [e for e in entries if e["threads"] == threads[0]]
    for e in sorted(rows, key=lambda e: -(ratio(e) or 0)):
        cells = [e["model"], e["exporter"], *(measured(found.get((e["model"], e["exporter"], n))) for n in threads)]
        if "error" not in e:
            predicted = e["search"].get("predicted")
            cells.append("" if predicted is None else f"{predicted:.3f}")
            written = not e["kept_original"]
            latency, nodes = e["latency"] or {}, e["nodes"]
            cells += [f"{latency[k]:.2f}" if k in latency else "" for k in ("baseline_ms", "optimized_ms")]
            cells.append(_grown(e.get("opening"), "before_ms", "after_ms") if written else "")
            cells.append(_grown(e.get("memory"), "before", "after") if written else "")
            cells.append(f"{nodes['before']} → {nodes['after']}" if written else str(nodes["before"]))
            cells.append(", ".join(f"{r} x{n}" for r, n in list(e["rules"].items())[:4]) if written else "")
        cells += [""] * (len(heads) - 1 - len(cells)) + [f"{e['seconds']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    for n, title in zip(threads, titles, strict=True):
        each = [e for e in entries if e["threads"] == n]
        ratios = [r for e in each if (r := ratio(e)) is not None]
        if ratios:
            lines.append(f"\nGeometric mean over {len(ratios)} models, {title}: **{geometric_mean(ratios):.3f}**")
        off = [abs(e["search"]["predicted"] - e["latency"]["speedup"]) for e in each if forecast(e)]
        if off:
            lines.append(
                f"Predicted and measured gain differ by {100 * sum(off) / len(off):.1f} points on average, at most by {100 * max(off):.1f}"
            )
    return "\n".join(lines) + "\n"


def _grown(told: dict[str, Any] | None, before: str, after: str) -> str:
    """What something comes to, times what it was."""
    return f"{told[after] / told[before]:.2f}" if told and told.get(before) and told.get(after) else ""


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
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--budget", type=float)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--families", type=Path)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    described = [
        (n, describe(n)) for n in arguments.names or names()
    ]  # a name that is none ends it here, not after an hour
    chosen = [n for n, model in described if arguments.names or model.family not in ("tiny", "demo")]
    entries: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        entries = json.loads(arguments.json.read_text())
    here = (arguments.provider, arguments.strategy, arguments.budget)
    done = {key(e) for e in entries if "error" not in e}
    for name, exporter in itertools.product(chosen, arguments.exporter):
        for threads in arguments.threads:
            if (name, exporter, threads, *here) in done:
                continue
            entry = run(name, exporter, threads, arguments)
            entries = [*(e for e in entries if key(e) != key(entry)), entry]
            latency = entry.get("latency") or {}
            print(f"{name:20} {exporter:7} {threads} {entry.get('error') or latency.get('speedup')} {latency.get('ci95', '')} "
                  f"kept={entry.get('kept_original')} {entry['seconds']:.0f}s peak {entry.get('peak_mb', 0):.0f} MB", flush=True)  # fmt: skip
            if arguments.json:
                arguments.json.write_text(json.dumps(entries, indent=1) + "\n")
    text = markdown([e for e in entries if key(e)[3:] == here], arguments.threads)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.families:
        arguments.families.write_text(by_family(entries))
    return 1 if any("error" in e for e in entries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
