"""``python -m tests.hostile.readers --count 100000 --journal FILE``: mutated files for each reader; resumable.

No input may make a reader raise anything but graphopt's own errors, take over five seconds of the processor, or end its process. Each block
of inputs is read in a process of its own with limits; what was done is appended to the journal. ``--show READER INDEX FILE`` writes one input.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx

from graphopt.errors import GraphoptError
from tests.hostile import mutate

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 5.0
BLOCK = 500
_BYTES = 4 << 30  # of a process
_SILENT = 120.0  # seconds by the clock at one input, after which its process is ended


@dataclass(frozen=True)
class Reader:
    """What reads files of one kind.

    Attributes:
        seeds: Makes the valid files.
        mutations: How they are changed, besides those of any bytes.
        file: What the file is called.
        read: Reads it, in its folder.
    """

    seeds: Callable[[], list[bytes]]
    mutations: tuple[mutate.Mutation, ...]
    file: str
    read: Callable[[Path], object]


@cache
def _models() -> list[bytes]:
    from tests.onnxio.models import INT, F, model, node, weight
    from tests.search.test_bodies import loop, nested, scan

    small = model(
        [node("MatMul", ["x", "w"], ["h"]), node("Shape", ["h"], ["s"]), node("Reshape", ["h", "s"], ["r"]), node("Relu", ["r"], ["y"])],
        [("x", F, ["n", 2])], [("y", F, ["n", 2])], [weight("w", [[1.0, 2.0], [3.0, 4.0]])],
    )  # fmt: skip
    ids = model(
        [node("Gather", ["t", "i"], ["y"], axis=0)],
        [("i", INT, ["n"])],
        [("y", F, None)],
        [weight("t", [[1.0], [2.0]])],
    )
    outside = onnx.ModelProto()
    outside.CopyFrom(small)
    for tensor in outside.graph.initializer:
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "m.data"), ("offset", "0"), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
    return [each.SerializeToString() for each in (small, ids, outside, loop(), nested(), scan())]


def _load(path: Path) -> object:
    from graphopt.ir.simplify import simplify
    from graphopt.onnxio.emit import emit
    from graphopt.onnxio.load import load

    (path.parent / "m.data").write_bytes(bytes(16))
    model = load(path)
    simplify(model.graph)
    return emit(model, model.graph)


@cache
def _rules() -> list[bytes]:
    """Files of a few rules each."""
    found: list[bytes] = []
    for file in sorted((ROOT / "rules").glob("*.yaml")):
        head, *rules = file.read_text(encoding="utf-8").split("\n  - id:")
        found += [
            "\n  - id:".join([head, *rules[at : at + 2]]).encode()
            for at in range(0, len(rules), max(2, len(rules) // 3))
        ]
    return found


def _rule_file(path: Path) -> object:
    from graphopt.rewrite.match import plans
    from graphopt.rewrite.schema import read_file

    good, wrong = read_file(path)
    return [plans(rule) for rule in good], [str(each) for each in wrong]


@cache
def _traces() -> list[bytes]:
    import graphopt

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, model in enumerate(_models()[3:5]):
            (folder / "m.onnx").write_bytes(model)
            graphopt.optimize(
                folder / "m.onnx", trace=folder / f"{number}.json", strategy="none", measure=False, dims={}, exclude=["drop-dropout"],
            )  # fmt: skip
        return [(folder / f"{number}.json").read_bytes() for number in range(2)]


def _trace(path: Path) -> object:
    from graphopt.search.trace import read_trace

    return read_trace(path).settings


@cache
def _stores() -> list[bytes]:
    from graphopt.cost.store import Store

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "kernels.sqlite"
        with Store(path) as store:
            store.put_many("e", {f"signature {i}": 0.5 * i + 0.1 for i in range(40)})
            store.put_corrections("e", {"signature 1": 1.5})
            store.count_uses({"rule": 3})
        return [path.read_bytes()]


def _store(path: Path) -> object:
    from graphopt.cost.store import Store

    with Store(path) as store:
        found = (
            store.all("e"),
            store.get_many("e", ["signature 1"]),
            store.corrections("e"),
            store.sizes(),
            store.uses(),
        )
        store.put_many("e", {"new": 1.0})
        return found


@cache
def _agents() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "models" / "agents").glob("*/manifest.json"))]


def _agent(path: Path) -> object:
    from graphopt.rl.manifest import read_manifest

    return read_manifest(path.parent)


READERS = {
    "model": Reader(_models, (mutate.fields, mutate.fields, mutate.fields), "m.onnx", _load),
    "rules": Reader(_rules, (mutate.words, mutate.words, mutate.lines, mutate.lines), "r.yaml", _rule_file),
    "trace": Reader(_traces, (mutate.records, mutate.records, mutate.words, mutate.lines), "t.json", _trace),
    "store": Reader(_stores, (), "kernels.sqlite", _store),
    "agent": Reader(_agents, (mutate.records, mutate.records, mutate.words, mutate.lines), "manifest.json", _agent),
}


def made(name: str, seed: int, index: int) -> bytes:
    """An input."""
    reader, rng = READERS[name], random.Random(f"{seed} {name} {index}")
    data = rng.choice(reader.seeds())
    aware = bool(reader.mutations) and rng.random() < 0.7
    data = rng.choice(reader.mutations if aware else mutate.BYTES)(data, rng)
    return rng.choice(mutate.BYTES)(data, rng) if rng.random() < 0.2 else data


def complaint(name: str, data: bytes, folder: Path) -> str:
    """What is wrong with how a reader takes an input; empty for nothing."""
    reader, began = READERS[name], time.process_time()
    for old in folder.iterdir():
        old.unlink()
    (folder / reader.file).write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder / reader.file)
    except GraphoptError as error:
        if "\n" in str(error):
            return f"more than a line: {error}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"[:300]
    taken = time.process_time() - began
    return f"{taken:.1f} s" if taken > SECONDS else ""


def block(name: str, seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """What is wrong with some inputs, read in a process of its own."""
    READERS[name].seeds()  # once, before the process is copied
    context = multiprocessing.get_context("fork")
    at, (ours, theirs) = context.Value("q", first), context.Pipe(duplex=False)

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        wrong: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory() as folder:
            for index in range(first, first + count):
                at.value = index
                why = complaint(name, made(name, seed, index), Path(folder))
                if why:
                    wrong.append({"index": index, "why": why})
        theirs.send(wrong)

    process = context.Process(target=child)
    process.start()
    theirs.close()
    last, since, found = first, time.monotonic(), None
    while found is None and (process.is_alive() or ours.poll()):
        try:
            found = ours.recv() if ours.poll(0.2) else None
        except EOFError:
            break
        if at.value != last:
            last, since = at.value, time.monotonic()
        elif time.monotonic() - since > _SILENT:
            process.kill()
    process.join()
    if found is not None:
        return list(found)
    ended = {"index": at.value, "why": f"the process ended with {process.exitcode}"}
    before = block(name, seed, first, at.value - first) if at.value > first else []
    rest = first + count - at.value - 1
    return [*before, ended, *(block(name, seed, at.value + 1, rest) if rest else [])]


def main() -> int:
    """Read what the journal does not hold yet, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=[*READERS], action="append")
    parser.add_argument("--journal", type=Path, help="goes on where an earlier run was stopped")
    parser.add_argument("--show", nargs=3, metavar=("READER", "INDEX", "FILE"))
    given = parser.parse_args()
    if given.show:
        Path(given.show[2]).write_bytes(made(given.show[0], given.seed, int(given.show[1])))
        return 0
    journal: Path | None = given.journal
    rows = [json.loads(row) for row in journal.read_text().splitlines()] if journal and journal.exists() else []
    done = {(row["reader"], row["seed"], row["first"], row["count"]): row["wrong"] for row in rows}
    bad = 0
    for name in given.reader or READERS:
        began, wrong = time.monotonic(), list[dict[str, Any]]()
        for first in range(0, given.count, BLOCK):
            key = name, given.seed, first, min(BLOCK, given.count - first)
            if key not in done:
                done[key] = block(*key)
                if journal:
                    with journal.open("a") as file:
                        file.write(
                            json.dumps(
                                {
                                    **dict(zip(("reader", "seed", "first", "count"), key, strict=True)),
                                    "wrong": done[key],
                                }
                            )
                            + "\n"
                        )
            wrong += done[key]
        bad += len(wrong)
        print(f"{name:<8} {given.count} inputs, {len(wrong)} wrong, {time.monotonic() - began:.0f} s", flush=True)
        for each in wrong[:20]:
            print(f"  {each['index']}: {each['why']}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
