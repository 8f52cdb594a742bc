"""Traces: random walks are made again to the same bytes, and a planted wrong step is found."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

import graphopt
from graphopt.config import Settings
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.delta import RefusedError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.schema import parse_rules
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.problem import Problem
from graphopt.search.trace import Trace, TraceError, carry_out, fingerprint, options_of, read_trace
from tests.test_api import grouped

OPTIONS = json.loads(json.dumps(options_of(Settings())))
LIMIT = 1 << 30
WRONG = """
family: wrong
doc: Planted.
rules:
  - id: relu-is-nothing
    doc: It is not.
    equal: exact
    match: ["y = Relu(x)"]
    replace: ["y = Abs(x)"]
    examples: {accept: [{x: 3xf32}]}
"""


def walk(source: Path, library: Library, steps: int, seed: int):
    """A random walk over the rewrites of a model: the graph, and its trace."""
    loaded = load(source)
    chance, made = random.Random(seed), []
    with Store(None) as store:
        problem = Problem(library, KernelCost(store, SessionConfig(), measure=False), block_size())
        state = problem.start(simplify(loaded.graph))
        while len(made) < steps:
            actions = state.actions()
            if not actions:
                break
            match = chance.choice(actions)
            try:
                after = problem.step(state, match)
            except RefusedError:
                continue
            made.append(problem.record(state.graph, match, state.cost, after.cost))
            state = after
    told = Trace(
        fingerprint(loaded.graph), library.hash, block_size(), LIMIT, OPTIONS, tuple(made), fingerprint(state.graph)
    )
    return to_proto(emit(loaded, state.graph, max_bytes=LIMIT)).SerializeToString(deterministic=True), told


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return grouped(tmp_path_factory.mktemp("trace") / "m.onnx")


@pytest.mark.parametrize("seed", range(6))
def test_a_random_trace_replays_to_the_same_bytes(tmp_path, source, seed: int):
    expected, told = walk(source, load_library(), 12, seed)
    assert told.steps
    told.write(tmp_path / "t.json")
    again = graphopt.replay(tmp_path / "t.json", source, output=tmp_path / "o.onnx")
    assert to_proto(again.emitted).SerializeToString(deterministic=True) == expected
    assert again.steps == again.of == len(told.steps)
    assert read_trace(tmp_path / "t.json") == told


def test_replay_writes_the_file_that_optimize_wrote(tmp_path, source):
    graphopt.optimize(
        source, output=tmp_path / "a.onnx", trace=tmp_path / "t.json", measure=False, rules=["grouped-conv"]
    )
    graphopt.replay(tmp_path / "t.json", source, output=tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_trace_knows_which_rules_an_error_left_out(tmp_path, source):
    graphopt.optimize(source, trace=tmp_path / "t.json", strategy="none", measure=False, max_error=0.0)
    assert load_library(max_error=0.0).hash != load_library().hash
    graphopt.replay(tmp_path / "t.json", source)


def test_the_first_steps_alone(tmp_path, source):
    _, told = walk(source, load_library(), 5, 0)
    told.write(tmp_path / "t.json")
    assert graphopt.replay(tmp_path / "t.json", source, steps=0).emitted.proto == load(source).proto
    assert graphopt.replay(tmp_path / "t.json", source, steps=2).steps == 2


def test_bisect_finds_a_planted_step(tmp_path, source):
    from graphopt import retrace

    good = load_library(["grouped-conv", "layout", "identity"])
    library = Library((*good.rules, *parse_rules(WRONG, "wrong.yaml")))
    _, told = walk(source, good, 4, 1)
    graph = carry_out(simplify(load(source).graph), library, told.block, told.steps)
    del graph
    steps = list(told.steps)
    # A walk over the wrong rule alone supplies the step; the place is there throughout.
    _, bad = walk(source, Library(tuple(parse_rules(WRONG, "wrong.yaml"))), 1, 0)
    for at in (0, 2):
        planted = (
            *steps[:at],
            bad.steps[0],
            *[s for s in steps[at:] if _still(source, library, told, (*steps[:at], bad.steps[0]), s)],
        )
        trace = Trace(told.model, library.hash, told.block, LIMIT, OPTIONS, planted, "")
        trace.write(tmp_path / "t.json")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retrace, "load_rules", lambda *a: library)
            found = retrace.bisect(tmp_path / "t.json", source)
            assert retrace.bisect(tmp_path / "t.json", source, rtol=1e3).step is None
            replace(trace, options={**OPTIONS, "rtol": 1e3}).write(tmp_path / "t.json")
            assert retrace.bisect(tmp_path / "t.json", source).step is None
            assert retrace.bisect(tmp_path / "t.json", source, rtol=1e-3).step == at + 1
        assert (found.step, found.rule) == (at + 1, "relu-is-nothing")
        assert found.message


def _still(source: Path, library: Library, told: Trace, before, step) -> bool:
    try:
        carry_out(simplify(load(source).graph), library, told.block, (*before, step))
    except TraceError:
        return False
    return True


def test_what_measures_a_trace_again_takes_its_threads(tmp_path, source, monkeypatch):
    from graphopt import retrace

    chosen, configure = list[int](), retrace.session_config
    monkeypatch.setattr(retrace, "session_config", lambda *given: chosen.append(given[2]) or configure(*given))
    graphopt.optimize(source, trace=tmp_path / "t.json", strategy="none", measure=False, threads=2)
    for threads in (None, 1):
        retrace.stages(tmp_path / "t.json", source, seconds=0.1, threads=threads)
    assert chosen == [2, 1]
    assert read_trace(tmp_path / "t.json").settings.threads == 2


def test_bisect_says_when_nothing_is_wrong(tmp_path, source):
    _, told = walk(source, load_library(["grouped-conv"]), 2, 0)
    told.write(tmp_path / "t.json")
    with pytest.MonkeyPatch.context() as patch:
        from graphopt import retrace

        patch.setattr(retrace, "load_rules", lambda *a: load_library(["grouped-conv"]))
        assert graphopt.bisect(tmp_path / "t.json", source).step is None


STEP = {"rule": "x", "family": "x", "site": "0", "node": "x", "cost_before": 1.0, "cost_after": 1.0}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": "0" * 16}, "not the one that the trace was written for"),
        ({"rules": "0" * 16}, "the rules are not those"),
        ({"schema": "graphopt.trace/1"}, "not a trace of this version"),
        ({"steps": [{"rule": "x"}]}, "not a whole trace"),
        ({"result": "0" * 16}, "another graph"),
        ({"steps": [STEP | {"inside": ["a node without a body"]}]}, "step 1: 'inside' must name"),
        ({"metadata": {"half a character": "\ud800"}}, "'metadata' must be text"),
    ],
)
def test_a_trace_of_something_else_is_refused(tmp_path, source, change, complaint):
    _, told = walk(source, load_library(), 2, 0)
    told.write(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    (tmp_path / "t.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(TraceError, match=complaint):
        graphopt.replay(tmp_path / "t.json", source, output=tmp_path / "o.onnx")
    assert not (tmp_path / "o.onnx").exists()


def test_a_step_that_finds_no_place_is_named(source):
    _, told = walk(source, load_library(), 2, 0)
    gone = told.steps[0].__class__("drop-identity", "identity", "0" * 16, "y", 1.0, 1.0)
    with pytest.raises(TraceError, match="step 1: drop-identity does not apply"):
        carry_out(simplify(load(source).graph), load_library(), told.block, (gone,))
