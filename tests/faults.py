"""Faults on purpose: what they cost, what is lost, and what is left behind.

    python -m tests.faults [--repeat 20] [--seconds 3600] [--only kill-9-in-search] [--out faults.jsonl]

Every kind of fault is done to a real ``graphopt optimize`` in a folder of its own, again and again at moments that differ. Then a
plain run follows, as the next thing a user would do. Nothing may be lost (the input is what it was; the output is the old model, or a whole new
one that computes the same; the store is sound) and after the plain run nothing may be left behind (files, temporary folders, processes).

Results are appended to a file, one a line, and what stands there is not done again: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
LIMIT_S = 90.0

# Where Python can be told something before the command begins.
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
# Root writes wherever it likes, unless it gives its capabilities away.
POWERLESS = (
    "import ctypes; ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()); "
    if sys.platform == "linux"
    else ""
)
BACKWARDS = (
    "import threading, time; now, ns, shift = time.time, time.time_ns, [0]; "
    "time.time = lambda: now() - shift[0]; time.time_ns = lambda: ns() - shift[0] * 10**9; "
    "t = threading.Timer({0}, lambda: shift.__setitem__(0, 86400)); t.daemon = True; t.start(); "
)


def small() -> onnx.ModelProto:
    """A convolution with its normalisation apart: something to search for and to measure."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.uniform(0.2, 1, shape).astype(np.float32), name)

    names = ("scale", "shift", "mean", "var")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("BatchNormalization", ["c", *names], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("ReduceMean", ["r"], ["y"], axes=[2, 3], keepdims=1, name="mean"),
    ]
    info = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 4, 12, 12]), ("y", [1, 8, 1, 1]))
    ]
    weights = [weight("w", 8, 4, 3, 3), *(weight(name, 8) for name in names)]
    return _model(nodes, info, weights)


def large() -> onnx.ModelProto:
    """Products with an Identity after each, which a rule removes: 40 MB to write."""
    rng = np.random.default_rng(0)
    nodes, weights, last, width = [], [], "x", 1000
    for i in range(10):
        weights.append(
            numpy_helper.from_array((rng.standard_normal((width, width)) / width**0.5).astype(np.float32), f"w{i}")
        )
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]),
            helper.make_node("Relu", [f"m{i}"], [f"r{i}"]),
            helper.make_node("Identity", [f"r{i}"], [f"i{i}"]),
        ]
        last = f"i{i}"
    nodes.append(helper.make_node("Neg", [last], ["y"]))
    return _model(nodes, [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width]) for n in "xy"], weights)


def _model(nodes, info, weights) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "faulty", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass
class Outcome:
    """What became of one repetition.

    Attributes:
        kind: The fault.
        number: Which repetition.
        code: Exit code of the command that it was done to.
        expected: Whether that is as it should be.
        seconds: From its start to its end.
        after: From the fault to its end.
        peak: Largest resident memory of it and of its children, in MB.
        lost: What was lost.
        left: What was left behind after the next run.
        said: The last line of its complaints.
    """

    kind: str
    number: int
    code: int = 0
    expected: bool = True
    seconds: float = 0.0
    after: float = 0.0
    peak: float = 0.0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    said: str = ""


class Place:
    """A folder with an input, the output of an earlier run, a store and a place for temporary files.

    Args:
        folder: Empty.
        external: Keep weights in files of their own, and enough of them that writing takes a while.
    """

    def __init__(self, folder: Path, external: bool) -> None:
        self.folder, self.damaged = folder, False
        self.work, self.temporary, self.cache = (folder / name for name in ("work", "tmp", "cache"))
        for each in (self.work, self.temporary, self.cache):
            each.mkdir()
        self.input, self.output = self.work / "net.onnx", self.work / "out.onnx"
        model = large() if external else small()
        if external:
            onnx.save(model, self.input, save_as_external_data=True, location="net.bin", size_threshold=0)
        else:
            onnx.save(model, self.input)
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        self.feeds = {"x": np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)}
        self.right = self._run(self.input)
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), "GRAPHOPT_CACHE_DIR": str(self.cache),
            "OMP_NUM_THREADS": "1", "COLUMNS": "200",
        }  # fmt: skip
        self.before = self._digests(self.input.name[:4])

    def start(self, *arguments: object, prelude: str = "") -> subprocess.Popen[str]:
        """The command on this place's model."""
        code = prelude + "import sys; from graphopt.__main__ import main; main()"
        command = [sys.executable, "-c", code, "optimize", self.input, "-o", self.output, "-v", *arguments]
        return subprocess.Popen(
            [str(c) for c in command], cwd=self.work, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )  # fmt: skip

    def plain(self) -> int:
        """What a user would do next."""
        with self.start("--no-measure") as process:
            process.communicate(timeout=LIMIT_S)
            return process.returncode

    def lost(self) -> Iterator[str]:
        """What is not as it was, or not whole."""
        if self._digests(self.input.name[:4]) != self.before:
            yield "the input changed"
        if self.output.exists():
            try:
                if not np.allclose(self._run(self.output), self.right, rtol=1e-4, atol=1e-5):
                    yield "the output computes something else"
            except Exception as error:
                yield f"the output is broken: {str(error)[:80]}"
        for store in [] if self.damaged else self.cache.glob("*.sqlite"):
            try:
                connection = sqlite3.connect(store)
                if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                    yield "the store is damaged"
                connection.close()
            except sqlite3.OperationalError:
                pass  # another run is writing
            except sqlite3.DatabaseError as error:
                yield f"the store is damaged: {error}"

    def left(self) -> Iterator[str]:
        """What should not be there."""
        yield from (f"temporary {path.name}" for path in self.temporary.iterdir())
        allowed = {"net.onnx", "net.bin", "out.onnx"}
        if self.output.exists():
            proto = onnx.load(self.output, load_external_data=False)
            allowed |= {e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"}
        yield from (path.name for path in self.work.iterdir() if path.name not in allowed)
        yield from (f"process {pid}" for pid in self.processes())

    def processes(self) -> list[int]:
        """Processes that belong here, by their environment."""
        found, mark = [], f"TMPDIR={self.temporary}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def _run(self, path: Path) -> np.ndarray:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, self.feeds)[0])

    def _digests(self, start: str) -> dict[str, str]:
        files = [path for path in self.work.iterdir() if path.name.startswith(start)]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        codes: Exit codes that it may end with; 0 too where the command may be done before the moment comes.
        signals: What is sent, one after the other, half a second apart.
        until: A line of the command's ``-v`` that is waited for, or ``draft`` for the first file being written.
        arguments: More arguments.
        external: Whether weights are in files of their own.
        prelude: Python that runs before the command.
        does: Something else that is done to the place, with a random number, when the line has come.
    """

    codes: Sequence[int]
    signals: Sequence[int] = ()
    until: str = "pricing the model"
    arguments: Sequence[str] = ("--budget", "3")
    external: bool = False
    prelude: str = ""
    does: Callable[[Place, random.Random], None] | None = None


def _vanish(place: Place, rng: random.Random) -> None:
    """The output's folder goes, the input with it; it comes back for the next run."""
    shutil.move(place.work, place.folder / "gone")


def _protect(place: Place, rng: random.Random) -> None:
    place.work.chmod(0o555)


def _rival(place: Place, rng: random.Random) -> None:
    """A second run, whose output and store are the same."""
    rival = place.start("--budget", "2")
    threading.Thread(target=rival.communicate, daemon=True).start()
    place.rival = rival  # type: ignore[attr-defined]


def _forget(place: Place, rng: random.Random) -> None:
    shutil.rmtree(place.cache)


def _damage(place: Place, rng: random.Random) -> None:
    place.damaged = True  # it stays as it is, for its owner to look at
    for store in place.cache.glob("*.sqlite"):
        store.write_bytes(bytes(rng.randrange(256) for _ in range(5000)))


def _kill_child(place: Place, rng: random.Random) -> None:
    for pid in place.processes():
        with suppress(OSError):
            if b"guarded" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, rng.choice((signal.SIGSEGV, signal.SIGFPE, KILL)))


_MEASURING, _WRITING = "measuring against the original", "draft"
_BIG = ("--no-measure",)
FAULTS: dict[str, Fault] = {
    "kill-9-in-search": Fault([-9, 0], [KILL]),
    "sigterm-in-search": Fault([143, 0], [TERM]),
    "ctrl-c-once": Fault([0], [INT]),
    "ctrl-c-twice": Fault([130, 0], [INT, INT]),
    "kill-9-while-measuring": Fault([-9, 0], [KILL], _MEASURING),
    "sigterm-while-measuring": Fault([143, 0], [TERM], _MEASURING),
    "kill-9-while-writing": Fault([-9, 0], [KILL], _WRITING, _BIG, external=True),
    "sigterm-while-writing": Fault([143, 0], [TERM], _WRITING, _BIG, external=True),
    "disk-full-for-the-model": Fault([1], arguments=_BIG, external=True, prelude=LIMITED.format(5_000_000)),
    "disk-full-for-everything": Fault([0, 1], arguments=_BIG, prelude=LIMITED.format(2_000)),
    "folder-read-only": Fault([0, 1, 2], does=_protect, prelude=POWERLESS),
    "folder-vanishes": Fault([0, 1], does=_vanish),
    "two-runs-one-output-one-store": Fault([0], does=_rival),
    "store-vanishes": Fault([0], does=_forget),
    "store-damaged": Fault([0], does=_damage),
    "child-crashes": Fault([0, 1], does=_kill_child, until="loading the model"),
    "clock-set-back": Fault([0], prelude=BACKWARDS),
}


def repetition(kind: str, number: int) -> Outcome:
    """Do it once."""
    fault, rng, outcome = FAULTS[kind], random.Random(f"{kind} {number}"), Outcome(kind, number)
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), fault.external)
        if number % 2:
            place.plain()  # an output and a store of an earlier run, in every second repetition
        prelude = fault.prelude.format(rng.uniform(0.5, 3)) if "{0}" in fault.prelude else fault.prelude
        began = time.monotonic()
        process = place.start(*fault.arguments, prelude=prelude)
        lines: list[str] = []
        reader = threading.Thread(target=_read, args=(process, lines))
        reader.start()
        happened = _inflict(process, place, fault, lines, rng)
        code, peak = _wait(process, began)
        ended = time.monotonic()
        reader.join(5)
        rival = getattr(place, "rival", None)
        if rival is not None:
            rival.wait(LIMIT_S)
        outcome.code, outcome.peak = code, peak
        outcome.seconds, outcome.after = ended - began, ended - (happened or began)
        outcome.said = next(
            (line for line in reversed(lines) if line.startswith(("error", "internal", "warning"))), ""
        )[:160]
        text = "\n".join(lines)
        outcome.expected = code in fault.codes and "Traceback" not in text and "internal error" not in text
        _restore(place)
        outcome.lost = list(place.lost())
        if place.plain() != 0:
            outcome.lost.append("the next run fails")
        time.sleep(0.2)  # a child that was told to end needs a moment
        outcome.lost += [f"after the next run: {each}" for each in place.lost()]
        outcome.left = list(place.left())
    return outcome


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line.rstrip())


def _inflict(
    process: subprocess.Popen[str], place: Place, fault: Fault, lines: list[str], rng: random.Random
) -> float | None:
    """Wait for the moment, and do it. Returns when."""
    if not fault.signals and fault.does is None:
        return None

    def come() -> bool:
        if fault.until == _WRITING:
            return any(place.work.glob(".out.onnx.*.graphopt"))
        return any(fault.until in line for line in lines)

    limit = time.monotonic() + LIMIT_S
    while not come() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.4 if fault.until == _WRITING else 1.0))
    if fault.does is not None:
        fault.does(place, rng)
    for index, number in enumerate(fault.signals):
        if index:
            time.sleep(0.5)
        with suppress(ProcessLookupError):
            if process.poll() is None:
                process.send_signal(number)
    return time.monotonic()


def _wait(process: subprocess.Popen[str], began: float) -> tuple[int, float]:
    """Exit code and peak memory in MB; what does not end in time is killed."""
    peak = 0.0
    while process.poll() is None:
        with suppress(OSError, StopIteration, IndexError):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024)
        if time.monotonic() - began > LIMIT_S:
            process.kill()
        time.sleep(0.02)
    return process.returncode, peak


def _restore(place: Place) -> None:
    """Undo what was done to the folders."""
    if (place.folder / "gone").exists():
        shutil.rmtree(place.work, ignore_errors=True)
        shutil.move(place.folder / "gone", place.work)
    place.work.chmod(0o755)
    place.cache.mkdir(exist_ok=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """A row for each kind."""
    rows = [
        "| fault | times | as expected | exit codes | s | s after | peak MB | lost | left behind |",
        "|---|--:|--:|---|--:|--:|--:|---|---|",
    ]
    for kind in FAULTS:
        found = [o for o in outcomes if o.kind == kind]
        if not found:
            continue
        codes = ", ".join(str(code) for code in sorted({o.code for o in found}))
        lost, left = (
            sorted({text for o in found for text in each(o)}) for each in (lambda o: o.lost, lambda o: o.left)
        )
        rows.append(
            f"| {kind} | {len(found)} | {sum(o.expected for o in found)} | {codes} | {np.median([o.seconds for o in found]):.1f} "
            f"| {max(o.after for o in found):.1f} | {max(o.peak for o in found):.0f} | {'; '.join(lost) or 'nothing'} | {'; '.join(left) or 'nothing'} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing after so long")
    parser.add_argument("--only", action="append", choices=list(FAULTS))
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    arguments = parser.parse_args()
    # A shell starts what runs in the background deaf to Ctrl-C, and so would be what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    outcomes = (
        [Outcome(**json.loads(line)) for line in arguments.out.read_text().splitlines()]
        if arguments.out.exists()
        else []
    )
    done = {(o.kind, o.number) for o in outcomes}
    kinds = arguments.only or list(FAULTS)
    for number in range(arguments.repeat):
        for kind in kinds:
            if (kind, number) in done:
                continue
            if time.monotonic() - began > arguments.seconds:
                break
            outcome = repetition(kind, number)
            outcomes.append(outcome)
            with arguments.out.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            good = outcome.expected and not outcome.lost and not outcome.left
            print(f"{'ok ' if good else 'BAD'} {outcome}", flush=True)
    print(table(outcomes))
    sys.exit(any(not o.expected or o.lost or o.left for o in outcomes))


if __name__ == "__main__":
    main()
