"""graphopt on ONNX Runtime against other runtimes and the runtime's own optimiser of transformers: the table of docs/results.md.

    GRAPHOPT_RIVALS=DIR python -m tests.bench.rivals [NAME ...] [--threads 1 2] [--against NAME ...] [--seconds 20]
        [--budget SECONDS] --json FILE [--markdown FILE]

``DIR`` holds the rivals' virtual environments (docs/how-to/bench.md). Each model with each number of threads is one ``graphopt bench``; its result
is written to the JSON file when it is there, and what the file holds is not run again (but for what failed as a whole). A cell is how many times
as fast as ONNX Runtime under ``ORT_ENABLE_ALL``, with its interval and the seconds that opening took; without them by a single run, where it is
less than a tenth; or why there is none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from graphopt.benchmark.rivals import RIVALS

MODELS = (
    "squeezenet1_1", "resnet18", "resnet50", "mobilenet_v3", "efficientnet_b0", "regnet_y_400mf",
    "shufflenet_v2", "tcn", "minilm", "bert_base", "vit_b_16", "whisper_encoder",
)  # fmt: skip
AGAINST = ("ort-transformers", *(name for name in RIVALS if name != "tensorrt"))


def run(name: str, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """One model with one number of threads."""
    entry: dict[str, Any] = {"model": name, "threads": threads, "against": given.against}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "graphopt", "bench", name, "--against", ",".join(given.against), "--level", "all",
                   "--threads", str(threads), "--seconds", str(given.seconds), "--json", str(target), "-q"]  # fmt: skip
        if given.budget is not None:
            command += ["--budget", str(given.budget)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not target.exists():
            return {**entry, "error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
        (case,) = json.loads(target.read_text())["cases"]
        return {**entry, "case": case}


def key(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What was measured, and against what."""
    return entry["model"], entry["threads"], tuple(entry["against"])


def cell(variant: dict[str, Any] | None) -> str:
    """What a table says of a variant."""
    if variant is None:
        return ""
    if variant["status"] == "skipped":
        return str(variant["message"].removesuffix(" times as fast by a single run, too slow to take turns"))
    if variant["status"] != "measured":
        return f"{variant['status']}: {variant['message'][:60].replace('|', '/')}"
    ratio = variant["ratio"]
    opened = f", {variant['optimise_s']:.0f} s" if variant["kind"] == "rival" else ""
    return f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]{opened}"


def markdown(entries: list[dict[str, Any]], against: list[str]) -> str:
    """The table: a row for each model and number of threads, in the head the rivals with their versions."""
    variants = [{v["name"]: v for v in e.get("case", {}).get("variants", [])} for e in entries]
    versions = {
        name: next((v[name]["version"] for v in variants if v.get(name, {}).get("version")), "") for name in against
    }
    head = ["model", "threads", "ms as it is", "graphopt", *(f"{name} {versions[name]}".strip() for name in against)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for e, found in zip(entries, variants, strict=True):
        original = found.get("original")
        if original is None or original["status"] != "measured":
            why = e.get("error") or (original or {}).get("message", "")
            lines.append(f"| {e['model']} | {e['threads']} | failed: {why} |" + " |" * (len(head) - 3))
            continue
        ours = next((v for v in found.values() if v["kind"] == "graphopt"), None)
        cells = [cell(ours), *(cell(found.get(name)) for name in against)]
        lines.append(f"| {e['model']} | {e['threads']} | {original['latency']['p50_ms']:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is missing and print the table; 1 when a model could not be measured at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--against", nargs="+", default=list(AGAINST))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    entries: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json.exists() else []
    for name in given.names:
        for threads in given.threads:
            wanted = (name, threads, tuple(given.against))
            if any(key(e) == wanted and "error" not in e for e in entries):
                continue
            entry = run(name, threads, given)
            entries = [*(e for e in entries if key(e) != wanted), entry]
            given.json.write_text(json.dumps(entries, indent=1) + "\n")
            print(markdown([entry], given.against).splitlines()[2], flush=True)
    text = markdown([e for e in entries if key(e)[2:] == (tuple(given.against),)], given.against)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)
    return 1 if any("error" in e for e in entries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
