"""The onnx package's backend test suite through graphopt: does a model that goes in come out computing the same?

    python -m tests.bench.backend [--kind node ...] [--limit N] [--only PATTERN] [--passes keep simplify rules ...]
                                  [--load-save | --optimise] [--upgrade] [--json FILE]

Every model that the suite has (generated single-operator tests, small graphs, exports, and full networks whose weights
are ConstantOfShape nodes) takes several passes, run in ONNX Runtime with its own optimiser switched off:

- ``keep``: load and save, from a file and from a protobuf. The bytes must be those of the original.
- ``simplify``: load, simplify, save.
- ``rules``: load, simplify, apply the shipped rules wherever they match, profitable or not, save. Rules take turns, so
  that every family gets a share of the limited number of steps.
- ``symbolic``: the same after every dimension of the inputs has become a symbol. Not for the full networks.
- ``weights``: the same after all inputs but the first have become weights. Only for the single-operator tests.
- ``fold``: all inputs become weights, so that the whole model is one computed constant, which is then made an array.
  Only for the single-operator tests.

A pass must reproduce the outputs that the suite expects. Where the runtime itself does not, for the original model, it
must reproduce what the runtime gives. No file may be larger than 1.1 times its original plus 1 MB, and a model that
onnx.checker accepts must be accepted after a pass too. The exit status is 1 when anything crashed, changed or grew.

Models run in child processes, a few dozen each: one that takes the process down is a line in the table.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test
from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, numpy_helper, version_converter

from graphopt.errors import GraphoptError, SessionError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.read import OLDEST_OPSET
from graphopt.onnxio.save import save
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import Session, SessionConfig
from tests.ir.check import problems

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
PASSES = ("keep", "simplify", "rules", "symbolic", "weights", "fold")
REWRITING = ("rules", "symbolic", "weights")
BAD = ("crashed", "changed", "grew", "invalid")
DATA = Path(onnx.backend.test.__file__).parent / "data"

_STEPS = 30
_UPGRADE = 13
_CHUNK = 40
_SECONDS = 240
# Rewrites round differently: besides the suite's tolerance they get this share of the largest element.
_ROUNDING = {2: 2e-2, 4: 1e-4, 8: 1e-6}


@dataclass(frozen=True)
class Case:
    """A test of the suite.

    Attributes:
        kind: One of :data:`KINDS`.
        name: Its name in the suite.
        model: The serialised model; empty when it lies in ``path``.
        path: The model's file, if it has one.
        data: Inputs and expected outputs, as the suite gives them; read from ``path``'s folder when empty.
        rtol: The suite's relative tolerance.
        atol: The suite's absolute tolerance.
        upgrade: Convert a model of an operator set that graphopt refuses as too old.
    """

    kind: str
    name: str
    model: bytes = b""
    path: Path | None = None
    data: tuple[tuple[list[Any], list[Any]], ...] = ()
    rtol: float = 1e-3
    atol: float = 1e-7
    upgrade: bool = False

    def proto(self) -> ModelProto:
        """The model."""
        model = ModelProto.FromString(self.model) if self.path is None else onnx.load(self.path)
        versions = {o.domain: o.version for o in model.opset_import}
        if not self.upgrade or versions.get("", OLDEST_OPSET) >= OLDEST_OPSET:
            return model
        return version_converter.convert_version(model, _UPGRADE)


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        kind: One of :data:`KINDS`.
        name: Its name in the suite.
        runtime: What the runtime made of the original: ``agrees``, ``differs``, ``random`` or ``can't``.
        passes: Verdict by pass: ``passed``, ``refused``, ``unchecked`` or one of :data:`BAD`.
        notes: Why, by pass.
        rules: How often each rule was applied, by pass.
        culprits: The rule whose application changed the result, by pass.
    """

    kind: str
    name: str
    runtime: str = "agrees"
    passes: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    rules: dict[str, dict[str, int]] = field(default_factory=dict)
    culprits: dict[str, str] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        """Whether a pass failed."""
        return any(v in BAD for v in self.passes.values())


# -- the suite --------------------------------------------------------------------------------------------------------


def cases(kinds: Sequence[str] = KINDS, only: str = "*", upgrade: bool = False) -> list[Case]:
    """The tests of some kinds whose names match a shell pattern."""
    found: list[Case] = []
    for kind in kinds:
        found += _node_cases() if kind == "node" else _light_cases() if kind == "light" else _stored_cases(kind)
    return [replace(case, upgrade=upgrade) for case in found if fnmatch.fnmatch(case.name, only)]


@cache
def _node_cases() -> list[Case]:
    from onnx.backend.test.case.node import collect_testcases

    # The expected outputs are computed on import, overflows and divisions by zero included.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)  # in onnx 1.20 there is no default
    return [
        Case("node", c.name, c.model.SerializeToString(), None, _listed(c.data_sets), c.rtol, c.atol)
        for c in collected
        if c.model is not None and c.data_sets is not None
    ]


def _listed(data: Any) -> tuple[tuple[list[Any], list[Any]], ...]:
    return tuple((list(inputs), list(outputs)) for inputs, outputs in data)


def _stored_cases(kind: str) -> list[Case]:
    found = []
    for folder in sorted(DATA.joinpath(kind).iterdir()):
        if (folder / "model.onnx").exists():
            settings = folder / "data.json"
            given = json.loads(settings.read_text()) if settings.exists() else {}
            case = Case(kind, folder.name, path=folder / "model.onnx")
            found.append(replace(case, rtol=given.get("rtol", case.rtol), atol=given.get("atol", case.atol)))
    return found


def _light_cases() -> list[Case]:
    return [Case("light", path.stem, path=path, rtol=2e-3) for path in sorted(DATA.joinpath("light").glob("*.onnx"))]


def _data(case: Case, model: ModelProto) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Feeds and expected outputs of each data set."""
    weights = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input]
    if case.data:
        for inputs, outputs in case.data:
            # An optional input that is not given stands in the list as None.
            feeds = {n: _array(v) for n, v in zip(names, inputs, strict=False)}
            yield feeds, [_array(v) for v in outputs]
        return
    assert case.path is not None
    if case.kind == "light":
        feeds = {}
        for info in model.graph.input:
            if info.name not in weights:
                shape = [d.dim_value if d.HasField("dim_value") else 1 for d in info.type.tensor_type.shape.dim]
                n = int(np.prod(shape))
                feeds[info.name] = (np.arange(n).reshape(shape) / n).astype(np.float32)
        stored = case.path.with_name(f"{case.path.stem}_output_0.pb")
        yield feeds, [numpy_helper.to_array(TensorProto.FromString(stored.read_bytes()))]
        return
    for folder in sorted(case.path.parent.glob("test_data_set*")):
        files = [folder / f"input_{i}.pb" for i in range(len(names))]
        given = {i.name: _stored(f, i) for f, i in zip(files, model.graph.input, strict=True) if f.exists()}
        yield given, [_stored(folder / f"output_{i}.pb", info) for i, info in enumerate(model.graph.output)]


def _stored(path: Path, info: Any) -> Any:
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(SequenceProto.FromString(path.read_bytes()))
    if kind == "optional_type":
        return numpy_helper.to_optional(OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, SequenceProto):
        return numpy_helper.to_list(value)
    return [_array(v) for v in value] if isinstance(value, list) else value if value is None else np.asarray(value)


# -- one case ---------------------------------------------------------------------------------------------------------


Feeds = dict[str, Any]


@dataclass(frozen=True)
class _Trial:
    """What a pass starts from and must give.

    Attributes:
        model: The model, possibly with other inputs than the original's.
        path: It as a file.
        feeds: Inputs, for each data set.
        baseline: The runtime's outputs for the original.
        expected: The suite's outputs, or the baseline where the runtime does not reproduce those.
        case: Where the tolerances come from.
    """

    model: ModelProto
    path: Path
    feeds: list[Feeds]
    baseline: list[list[Any]]
    expected: list[list[Any]]
    case: Case

    @property
    def bound(self) -> int:
        """How large the file may become."""
        return int(1.1 * self.path.stat().st_size) + (1 << 20)

    def differs(self, path: Path, exact: bool = False) -> str:
        """How the outputs of a written model differ; empty when they do not."""
        try:
            given = _run(path, self.feeds)
        except SessionError as error:
            return f"does not run any more: {error}"[:300]
        if exact:
            return _mismatch(given, self.baseline, 0.0, 0.0, 0.0)
        rtol, atol = self.case.rtol, self.case.atol
        note = _mismatch(given, self.expected, rtol, atol, 1.0)
        return note and _mismatch(given, self.baseline, rtol, atol, 1.0)


def check(case: Case, passes: Sequence[str], library: Library, folder: Path) -> Outcome:
    """Take one model through the passes.

    Args:
        case: The test.
        passes: Some of :data:`PASSES`.
        library: The rules of the rewriting passes.
        folder: Where files may be written.
    """
    outcome = Outcome(case.kind, case.name)
    original = case.proto()
    path = folder / "original.onnx"
    path.write_bytes(original.SerializeToString())
    sets = list(_data(case, original))
    baseline, expected = _reference(case, path, sets, outcome)
    for name in passes:
        model, feeds = _variant(name, case.kind, original, [f for f, _ in sets])
        if model is None:
            continue
        start = path
        if model is not original:
            start = folder / f"{name}.in.onnx"
            start.write_bytes(model.SerializeToString())
        trial = _Trial(model, start, feeds, baseline[: len(feeds)], expected[: len(feeds)], case)
        _pass(name, trial, library, folder, outcome)
    return outcome


def _pass(name: str, trial: _Trial, library: Library, folder: Path, outcome: Outcome) -> None:
    """One pass over one model; the verdict goes into the outcome."""
    out = folder / f"{name}.onnx"
    steps: list[tuple[str, Graph]] = []
    try:
        loaded = load(trial.path)
        graph = loaded.graph if name == "keep" else simplify(loaded.graph)
        _sound(graph)
        if name in REWRITING:
            steps = list(_rewrites(graph, library))
            outcome.rules[name] = dict(Counter(rule for rule, _ in steps))
            graph = steps[-1][1] if steps else graph
        save(emit(loaded, graph, max_bytes=None if name == "keep" else trial.bound), out)
        if name == "keep":
            _identical(trial.model, out, folder)
        load(out)
    except GraphoptError as error:
        outcome.passes[name], outcome.notes[name] = "refused", _reason(error)
        return
    except Exception as error:
        outcome.passes[name], outcome.notes[name] = "crashed", _trace(error)
        return
    contributed = any(library.by_id[rule].contributed for rule, _ in steps)
    verdict, note = "passed", ""
    if out.stat().st_size > trial.bound:
        verdict, note = "grew", f"{trial.path.stat().st_size} to {out.stat().st_size} bytes"
    elif not contributed and (message := _invalid(out)) and not _invalid(trial.path):
        verdict, note = "invalid", message
    elif outcome.runtime in ("can't", "random"):
        verdict = "unchecked"
    elif note := trial.differs(out, exact=name == "keep"):
        # A variant that the suite does not have may be one that the runtime takes for another model.
        verdict = "changed" if name in ("keep", "simplify", "rules") or not trial.differs(trial.path) else "unchecked"
    outcome.passes[name], outcome.notes[name] = verdict, note
    if verdict == "changed" and steps:
        outcome.culprits[name] = _culprit(trial, loaded, steps, out)


def _variant(name: str, kind: str, model: ModelProto, sets: list[Feeds]) -> tuple[ModelProto | None, list[Feeds]]:
    """The model that a pass starts from and its inputs; ``None`` where the pass is not for this model."""
    if name == "symbolic":
        return (None, []) if kind == "light" else (_symbolic(model), sets)
    if name not in ("weights", "fold"):
        return model, sets
    chosen = [i.name for i in model.graph.input][name == "weights" :]
    if kind != "node" or not chosen or not sets:
        return None, []
    return _frozen(model, chosen, sets[0]), [{n: v for n, v in sets[0].items() if n not in chosen}]


def _reference(
    case: Case, path: Path, sets: list[tuple[Feeds, list[Any]]], outcome: Outcome
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The runtime's outputs for the original, and the outputs that a pass must reproduce."""
    wanted = [outputs for _, outputs in sets]
    try:
        given = _run(path, [feeds for feeds, _ in sets])
        if _mismatch(given, _run(path, [feeds for feeds, _ in sets]), 0.0, 0.0, 0.0):
            outcome.runtime = "random"
    except SessionError as error:
        outcome.runtime, outcome.notes["runtime"] = "can't", str(error)[:200]
        return [], []
    if outcome.runtime == "agrees" and (note := _mismatch(given, wanted, case.rtol, case.atol, 0.0)):
        outcome.runtime, outcome.notes["runtime"] = "differs", note
    return given, wanted if outcome.runtime == "agrees" else given


def _run(path: Path, feeds: list[Feeds]) -> list[list[Any]]:
    with Session(path, SessionConfig(level="disabled")) as session:
        wanted = {spec.name for spec in session.input_specs}
        return [session.run({n: v for n, v in f.items() if n in wanted}) for f in feeds]


def _culprit(trial: _Trial, loaded: Model, steps: list[tuple[str, Graph]], out: Path) -> str:
    """The rule of the first step after which the outputs differ."""
    for rule, graph in steps:
        save(emit(loaded, graph, max_bytes=trial.bound), out)
        if trial.differs(out):
            return rule
    return "none alone"


def _rewrites(graph: Graph, library: Library) -> Iterator[tuple[str, Graph]]:
    """Apply matches, the least used rule first, until nothing new comes or the steps are used up."""
    sites, seen, used = Sites.of(graph, library), {graph.hash}, Counter[str]()
    refused: set[Any] = set()
    while used.total() < _STEPS:
        for key in sorted(sites.matches, key=lambda k: (used[k[0]], k)):
            match = sites.matches[key]
            if key in refused:
                continue
            try:
                after, delta = apply(graph, match)
            except RefusedError:
                refused.add(key)
                continue
            if after.hash in seen:
                continue
            seen.add(after.hash)
            used[match.rule.id] += 1
            _sound(after)
            graph, sites = after, sites.after(after, delta)
            yield match.rule.id, graph
            break
        else:
            return


def _sound(graph: Graph) -> None:
    found = problems(graph)
    if found:
        raise AssertionError(f"invalid graph: {found[0]}")


def _identical(model: ModelProto, out: Path, folder: Path) -> None:
    """Whether loading and saving left every bit, for a model in a file and for one in memory."""
    wanted = model.SerializeToString(deterministic=True)
    loaded = load(model)
    again = folder / "again.onnx"
    save(emit(loaded, loaded.graph), again)
    for path in (out, again):
        if ModelProto.FromString(path.read_bytes()).SerializeToString(deterministic=True) != wanted:
            raise AssertionError(f"load and save changed the model ({'memory' if path == again else 'file'})")


def _frozen(model: ModelProto, names: Sequence[str], feeds: Feeds) -> ModelProto | None:
    """The model with some inputs as weights; ``None`` when one of them is no plain array."""
    frozen = ModelProto()
    frozen.CopyFrom(model)
    frozen.ir_version = max(4, model.ir_version)  # before 4 a weight had to be an input too
    del frozen.graph.input[:]
    for info in model.graph.input:
        value = feeds.get(info.name)
        if info.name not in names:
            frozen.graph.input.append(info)
        elif not isinstance(value, np.ndarray) or not info.type.HasField("tensor_type"):
            return None
        elif value.dtype.kind == "O":
            text = onnx.helper.make_tensor(info.name, TensorProto.STRING, value.shape, value.ravel().tolist())
            frozen.graph.initializer.append(text)
        else:
            array = np.ascontiguousarray(value).reshape(value.shape)
            frozen.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return frozen


def _symbolic(model: ModelProto) -> ModelProto:
    """The model with a symbol of its own for each dimension of its inputs, and nothing said of its outputs' sizes."""
    symbolic = ModelProto()
    symbolic.CopyFrom(model)
    weights = {t.name for t in model.graph.initializer}
    del symbolic.graph.value_info[:]
    for n, info in enumerate(symbolic.graph.input):
        for i, dim in enumerate(info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ()):
            if info.name not in weights:
                dim.dim_param = f"d{n}_{i}"
    for info in symbolic.graph.output:
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            dim.Clear()
    return symbolic


def _invalid(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # the checker raises errors of its own and of the shape inference
        return " ".join(str(error).split())[:300]
    return ""


def _reason(error: GraphoptError) -> str:
    """The kind of a refusal: its message without what is particular to the model."""
    text = str(error).rpartition(".onnx: ")[2]
    return " ".join("..." if "'" in word or any(c.isdigit() for c in word) else word for word in text.split())


def _trace(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if "graphopt" in f.filename), frames[-1])
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"[:300]


def _mismatch(given: Any, wanted: Any, rtol: float, atol: float, rounding: float) -> str:
    """Where two results differ; empty when they do not."""
    if isinstance(wanted, list | tuple):
        if not isinstance(given, list | tuple) or len(given) != len(wanted):
            return f"{type(given).__name__} instead of a list of {len(wanted)}"
        given, wanted = dict(enumerate(given)), dict(enumerate(wanted))
    if isinstance(wanted, dict):
        if not isinstance(given, dict) or given.keys() != wanted.keys():
            return "other keys"
        notes = ((key, _mismatch(given[key], wanted[key], rtol, atol, rounding)) for key in wanted)
        return next((f"{key}: {note}" for key, note in notes if note), "")
    if given is None or wanted is None:
        return "" if given is wanted else "one of them is absent"
    a, b = np.asarray(given), np.asarray(wanted)
    if a.dtype != b.dtype and not (a.dtype.kind in "OU" and b.dtype.kind in "OU"):
        return f"{a.dtype} instead of {b.dtype}"
    if a.shape != b.shape:
        return f"shape {list(a.shape)} instead of {list(b.shape)}"
    small = a.dtype.itemsize if a.dtype.kind in "fc" else 2
    if a.dtype.kind == "V" or a.dtype.name in dir(ml_dtypes):
        a, b = a.astype(np.float32), b.astype(np.float32)
        rtol = max(rtol, 2**-6) if rtol else 0.0
    if a.dtype.kind not in "fc":
        wrong = int(np.count_nonzero(a != b))
        return f"{wrong} of {a.size} elements differ" if wrong else ""
    with np.errstate(all="ignore"):
        finite = np.abs(b[np.isfinite(b)])
        slack = atol + rounding * _ROUNDING.get(small, 1e-6) * float(finite.max(initial=0.0))
        close = np.isclose(a, b, rtol=rtol, atol=slack, equal_nan=True)
        if close.all():
            return ""
        worst = np.nanmax(np.abs(np.where(close, 0, a - b)))
    return f"{a.size - int(close.sum())} of {a.size} elements differ, by up to {worst:g}"


# -- many cases -------------------------------------------------------------------------------------------------------


def run(
    chosen: Sequence[Case], passes: Sequence[str] = PASSES, jobs: int = 0, library: Library | None = None
) -> list[Outcome]:
    """Take models through the passes in child processes.

    Args:
        chosen: The models.
        passes: Some of :data:`PASSES`.
        jobs: Processes at a time; as many as there are processors by default.
        library: The rules, by default all shipped ones, whether they have evidence or not.
    """
    library = library or load_library(evidence=False)
    context = multiprocessing.get_context("fork")
    todo = [list(range(i, min(i + _CHUNK, len(chosen)))) for i in range(0, len(chosen), _CHUNK)]
    outcomes: dict[int, Outcome] = {}
    busy: dict[Connection, tuple[Any, list[int], float]] = {}
    progress = sys.stderr.isatty()
    while todo or busy:
        while todo and len(busy) < (jobs or os.cpu_count() or 1):
            chunk = todo.pop(0)
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(sender, chosen, chunk, passes, library), daemon=True)
            child.start()
            sender.close()
            busy[receiver] = (child, chunk, time.monotonic())
        for connection in wait(list(busy), timeout=1.0):
            assert isinstance(connection, Connection)
            child, chunk, _ = busy[connection]
            try:
                index, result = connection.recv()
            except EOFError:
                _ended(child, chunk, chosen, outcomes, todo, "")
                del busy[connection]
                continue
            outcomes[index] = Outcome(**result)
            busy[connection] = (child, chunk, time.monotonic())
            if progress:
                print(f"\r{len(outcomes)} of {len(chosen)}", end="", file=sys.stderr)
        for connection, (child, chunk, last) in list(busy.items()):
            if time.monotonic() - last > _SECONDS:
                child.kill()
                _ended(child, chunk, chosen, outcomes, todo, f"still running after {_SECONDS} s")
                del busy[connection]
    if progress:
        print(file=sys.stderr)
    return [outcomes[i] for i in range(len(chosen))]


def _child(
    sender: Connection, chosen: Sequence[Case], chunk: list[int], passes: Sequence[str], library: Library
) -> None:
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    for index in chunk:
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = check(chosen[index], passes, library, Path(folder))
            except Exception as error:
                # Outside of the passes: the suite's own data can't be read.
                outcome = Outcome(chosen[index].kind, chosen[index].name, "can't", notes={"runtime": _trace(error)})
        sender.send((index, asdict(outcome)))


def _ended(
    child: Any, chunk: list[int], chosen: Sequence[Case], outcomes: dict[int, Outcome], todo: list[list[int]], why: str
) -> None:
    """A child is gone: blame the model it was at, hand on the rest."""
    child.join()
    left = [i for i in chunk if i not in outcomes]
    if not left:
        return
    case = chosen[left[0]]
    note = why or f"the process ended with {child.exitcode}"
    outcomes[left[0]] = Outcome(case.kind, case.name, passes={"process": "crashed"}, notes={"process": note})
    if left[1:]:
        todo.append(left[1:])


def report(outcomes: Sequence[Outcome], passes: Sequence[str], library: Library) -> str:
    """The table, then whatever failed or was refused."""
    columns = ("passed", "unchecked", "refused", *BAD)
    lines = [f"{'kind':18} {'pass':9} {'models':>6} " + " ".join(f"{c:>9}" for c in columns)]
    for kind in [k for k in KINDS if any(o.kind == k for o in outcomes)]:
        these = [o for o in outcomes if o.kind == kind]
        for name in (*passes, "process"):
            verdicts = Counter(o.passes[name] for o in these if name in o.passes)
            if verdicts:
                counts = " ".join(f"{verdicts[c]:9}" for c in columns)
                lines.append(f"{kind:18} {name:9} {verdicts.total():6} {counts}")
        runtime = Counter(o.runtime for o in these)
        lines.append(f"{kind:18} the runtime on its own: " + ", ".join(f"{n} {w}" for w, n in sorted(runtime.items())))
    first = passes[0]
    refusals = Counter(o.notes[first] for o in outcomes if o.passes.get(first) == "refused")
    lines += ["", "refused:", *(f"{n:6} {reason}" for reason, n in refusals.most_common())] if refusals else []
    used = Counter[str]()
    for o in outcomes:
        for counts_of_pass in o.rules.values():
            used.update(counts_of_pass)
    if set(REWRITING) & set(passes):
        never = sorted(set(library.by_id) - set(used))
        lines += ["", f"{len(used)} of {len(library.rules)} rules were applied, {used.total()} times"]
        lines += [f"never applied: {', '.join(never)}"] if never else []
    failed = [o for o in outcomes if o.bad]
    lines += ["", f"{len(failed)} failed"]
    for o in failed:
        for name, verdict in o.passes.items():
            if verdict in BAD:
                blame = f" by {o.culprits[name]}" if name in o.culprits else ""
                lines.append(f"  {o.kind}/{o.name} {name}: {verdict}{blame}: {o.notes.get(name, '')}")
    return "\n".join(lines)


def sample(size: int, seed: int = 0) -> list[Case]:
    """A repeatable choice of small models from every kind but the full networks."""
    everything = cases([k for k in KINDS if k != "light"])
    return random.Random(seed).sample(everything, size)


def main() -> int:
    """Run the suite and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", nargs="+", choices=[*KINDS, "all"], default=["all"])
    parser.add_argument("--limit", type=int, help="at most this many models, spread over the suite")
    parser.add_argument("--only", default="*", help="shell pattern on the names")
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=list(PASSES))
    parser.add_argument("--load-save", action="store_true", help="the 'keep' pass alone")
    parser.add_argument("--optimise", action="store_true", help="the 'rules' pass alone")
    parser.add_argument("--upgrade", action="store_true", help="convert models of too old an operator set first")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every outcome there")
    arguments = parser.parse_args()
    passes = ["keep"] if arguments.load_save else ["rules"] if arguments.optimise else arguments.passes
    library = load_library(evidence=False)
    chosen = cases(KINDS if "all" in arguments.kind else arguments.kind, arguments.only, arguments.upgrade)
    if arguments.limit and arguments.limit < len(chosen):
        chosen = random.Random(0).sample(chosen, arguments.limit)
    begin = time.monotonic()
    outcomes = run(chosen, passes, arguments.jobs, library)
    print(report(outcomes, passes, library))
    print(f"{len(outcomes)} models in {time.monotonic() - begin:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    return 1 if any(o.bad for o in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
