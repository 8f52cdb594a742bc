"""What graphopt makes of one model after the other: a worker that reads tasks and answers with outcomes, lines of JSON both.

A task names a model, inputs that it runs on (or none), and a folder to write to. The model is optimised without measuring, verified on made-up
inputs as always, and then compared once more on the inputs that came with it, which nobody here made up.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.api import optimize
from graphopt.errors import GraphoptError
from graphopt.pipeline.context import Progress
from graphopt.runtime.given import load_npz
from graphopt.runtime.guard import open_guarded
from graphopt.runtime.session import SessionConfig
from graphopt.verification.numeric import verify_models

BAD = ("changed", "died", "error")


@dataclass
class Outcome:
    """What came of a model.

    Attributes:
        producer: Who made it.
        name: Its name.
        status: ``same``, ``refused`` (it runs on its inputs), ``unrunnable`` (the runtime does not run it either), ``changed``, ``died``,
            ``error`` (of graphopt itself) or ``unbuilt``.
        note: Why.
        nodes: How many nodes it had and has.
        rules: Steps that were made.
        seconds: What it took.
        growth: Size of what was written over that of the model.
        peak: Largest size of graphopt's process while it worked, in bytes.
        sizes: At which sizes of its symbols it was compared.
        taken_back: Rules that changed the outputs, and were taken back for it.
    """

    producer: str
    name: str
    status: str
    note: str = ""
    nodes: tuple[int, int] = (0, 0)
    rules: int = 0
    seconds: float = 0.0
    growth: float = 1.0
    peak: int = 0
    sizes: list[dict[str, int]] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)


def attempt(producer: str, model: Path, inputs: Path | None, folder: Path) -> Outcome:
    """Take a model through graphopt."""
    outcome, written = Outcome(producer, model.stem, "same"), folder / "written.onnx"
    began = time.monotonic()
    written.unlink(missing_ok=True)

    def hear(told: Progress) -> None:
        if "changes the outputs" in told.message:
            outcome.taken_back.append(told.message)

    _forget_peak()
    try:
        result = optimize(
            model, output=written, strategy="greedy", cost_model="analytic", measure=False, upgrade=True, progress=hear
        )
        told = result.report
        outcome.nodes, outcome.rules = (told["nodes"]["before"], told["nodes"]["after"]), sum(told["rules"].values())
        outcome.sizes = (told["verified"] or {}).get("sizes", [])
        outcome.growth = written.stat().st_size / model.stat().st_size
    except GraphoptError as error:
        outcome.note = f"{error} ({error.hint})" if error.hint else str(error)
        outcome.status = "refused" if _runs(model, inputs) else "unrunnable"
    except Exception as error:
        outcome.status, outcome.note = "error", f"{type(error).__name__}: {error}"
    outcome.seconds, outcome.peak = time.monotonic() - began, _peak()
    if outcome.status == "same" and inputs is not None and _runs(model, inputs):
        verification = verify_models(model, written, overrides=load_npz(inputs, empty=True))
        if not verification.passed:
            outcome.status, outcome.note = "changed", verification.message
    return outcome


def _runs(model: Path, inputs: Path | None) -> bool:
    """Whether the runtime runs a model on its inputs; taken for granted where it has none, if it is opened at all."""
    try:
        with open_guarded(model, SessionConfig(level="disabled")) as session:
            if inputs is not None:
                session.run(load_npz(inputs, empty=True))
    except GraphoptError:
        return False
    return True


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main(memory: str) -> None:
    """Be the worker."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        task: dict[str, Any] = json.loads(line)
        inputs = Path(task["inputs"]) if task["inputs"] else None
        outcome = attempt(task["producer"], Path(task["model"]), inputs, Path(task["folder"]))
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
