"""The whole benchmark on small models: every variant is checked, measured and described, or it is said why not."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

import graphopt
from graphopt import wording
from graphopt.benchmark.page import _sentence
from graphopt.benchmark.peers import PEERS
from graphopt.benchmark.plan import Plan
from graphopt.benchmark.results import Ratio, Variant
from graphopt.benchmark.run import _best_level, bench, find_model
from graphopt.benchmark.variants import Made, described, optimised
from graphopt.cli.benchtable import show_case
from graphopt.errors import MissingExtraError, UnknownNameError, UsageError
from graphopt.runtime.environment import default_threads, fingerprint, usable_cores
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.timing import verdict
from tests.bench.again import read_bench
from tests.cli.conftest import conv_net
from tests.runtime.models import chain

QUICK = Plan(strategies=(), against=(), levels=("all",), threads=(1,), rounds=20, precision=0.5)


def plan(**changes):
    return replace(QUICK, **changes)


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(20).proto)
    return path


def variants(found):
    (case,) = found.cases
    return {variant.name: variant for variant in case.variants}


def test_an_agent_is_for_the_strategies_that_take_one(monkeypatch, tmp_path):
    given = {}

    def optimize(source, *, strategy, agent=None, **more):
        given[strategy] = agent
        raise UsageError("no")

    monkeypatch.setattr("graphopt.api.optimize", optimize)
    for strategies in (("greedy", "rl"), ("auto",)):
        asked = plan(strategies=strategies, optimize={"agent": "mine"})
        for strategy in strategies:
            with pytest.raises(UsageError):
                optimised(tmp_path, strategy, SessionConfig(), asked, tmp_path, print, lambda: False)
    assert given == {"greedy": None, "rl": "mine", "auto": "mine"}


def test_files_levels_and_failures(net, tmp_path, monkeypatch):
    same, light, other, renamed, junk = (
        tmp_path / f"{name}.onnx" for name in ("same", "light", "other", "renamed", "junk")
    )
    same.write_bytes(net.read_bytes())
    other.write_bytes(chain(20, seed=1).proto)
    light.write_bytes(chain(1).proto)
    proto = onnx.load_from_string(net.read_bytes())
    proto.graph.node.append(helper.make_node("Identity", ["y"], ["z"]))
    proto.graph.output[0].name = "z"
    onnx.save(proto, renamed)
    junk.write_bytes(b"junk")
    monkeypatch.setitem(PEERS, "nonesuch", "begin()")
    monkeypatch.setitem(PEERS, "onnx", "begin(); raise ValueError('no')")
    against = (*map(str, (same, light, other, renamed, junk)), "nonesuch", "onnx")
    told, cases = [], []
    found = bench(
        [net],
        plan(against=against, levels=("basic", "all")),
        progress=lambda p: told.append(p.message),
        on_case=cases.append,
    )
    case, by_name = found.cases[0], variants(found)
    assert list(by_name) == ["original", "original (basic)", *against]
    statuses = {name: variant.status for name, variant in by_name.items()}
    assert statuses[str(same)] == statuses["original"] == statuses["original (basic)"] == "measured"
    assert statuses[str(light)] == statuses[str(other)] == "differs"
    assert statuses[str(renamed)] == statuses[str(junk)] == statuses["onnx"] == "failed"
    assert "outputs y became z" in by_name[str(renamed)].message and "can't open" in by_name[str(junk)].message
    assert statuses["nonesuch"] == "missing" and "pip install" in by_name["nonesuch"].message
    assert by_name["onnx"].message == "ValueError: no"

    original, equal = by_name["original"], by_name[str(same)]
    assert original.ratio is None and original is case.baseline
    assert equal.ratio.low < equal.ratio.value < equal.ratio.high
    assert equal.check.passed and equal.check.max_abs < 1e-4
    for variant in (original, equal):
        times = variant.latency
        assert 0 < times.p50_ms <= times.p90_ms <= times.p95_ms <= times.p99_ms
        assert 20 <= len(times.samples_ms) <= 500 and list(times.samples_ms) == sorted(times.samples_ms)
        assert variant.open_ms > 0 and variant.size == net.stat().st_size and variant.nodes == 20
        assert variant.peak is None or variant.peak > 10_000_000
    assert sum(o.count for o in original.operators) == 20 and not equal.operators
    assert (case.rounds, case.provider, case.threads) == (20, "cpu", 1)
    assert case.best_level == ("basic" if by_name["original (basic)"].ratio.verdict == "faster" else "all")
    assert [each.cases for each in cases] == [found.cases] and any(
        "measuring 3 variants" in message for message in told
    )
    assert read_bench(json.dumps(found.to_dict())) == found
    assert not list(tmp_path.glob("graphopt-*"))


def test_graphopt(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "net.onnx"
    onnx.save(conv_net(), path)
    # Priced without the clock, so that the search ends the same on every machine.
    found = bench([path], plan(strategies=("greedy",), optimize={"measure": False}))
    original, ours = found.cases[0].variants
    assert ours.name == "graphopt greedy" and ours.status == "measured", ours.message
    assert ours.search.strategy == "greedy" and ours.search.stop_reason and ours.optimise_s > 0
    assert ours.search.steps and ours.nodes < original.nodes  # by the normal form, which is not priced
    assert ours.search.steps and all(step.before_ms >= step.after_ms for step in ours.search.steps)
    assert not ours.search.kept_original and ours.operators != original.operators
    assert ours.check.passed and ours.version == graphopt.__version__


def test_an_input_that_is_kept(net, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    found = bench([net], plan(strategies=("greedy",), optimize={"measure": False, "rules": ("pow",)}))
    original, ours = found.cases[0].variants
    assert ours.search.kept_original and not ours.search.steps
    assert ours.size == original.size and ours.ratio is not None


@pytest.mark.skipif(usable_cores() < 2, reason="of one processor sessions have one thread")
def test_threads_are_cases(net):
    found = bench([net], plan(threads=(1, 2)))
    assert [(case.threads, case.environment["threads"]) for case in found.cases] == [(1, 1), (2, 2)]


def test_all_cores_are_a_case_once():
    here = default_threads()
    numbers = (1, 0, here) if here <= usable_cores() else (1, 0)
    assert [config.threads for config in plan(threads=numbers).configs] == ([1, 0] if here > 1 else [1])
    assert [config.threads for config in Plan().configs] == [0]


def test_what_a_strategy_lacks_is_told_before_anything_runs(monkeypatch):
    monkeypatch.setattr("graphopt.registry.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="scipy"):
        Plan(strategies=("auto", "egraph")).check()


def test_a_case_of_all_cores_says_their_number(net):
    (case,) = bench([net], plan(threads=(0,))).cases
    assert case.all_cores and case.threads == case.environment["threads"] == default_threads()
    assert wording.threads(case.threads, all_cores=True) in _sentence("net", case, None)


def test_weights_in_a_file_of_their_own_count(net, tmp_path):
    apart = tmp_path / "apart.onnx"
    onnx.save(onnx.load(net), apart, save_as_external_data=True, location="apart.data", size_threshold=0)
    size = bench([apart], QUICK).cases[0].baseline.size
    assert size == apart.stat().st_size + 20 * 64 * 64 * 4


def test_a_file_that_was_made_for_something_else_says_so(net, tmp_path):
    here = json.loads(fingerprint(SessionConfig(threads=1)).to_json())
    recorded = {
        "here": json.dumps(here),
        "there": json.dumps(here | {"threads": 4, "cpu": "Z80\n"}),
        "odd": json.dumps(here | {"threads": None}),
        "endless": json.dumps(here | {"threads": math.inf}),
        "deep": "[" * 100_000,
        "junk": "{",
    }
    files = {name: tmp_path / f"{name}.onnx" for name in recorded}
    for name, text in recorded.items():
        proto = onnx.load(net)
        proto.metadata_props.add(key="graphopt.environment", value=text)
        onnx.save(proto, files[name])
    found = bench([net], plan(against=tuple(map(str, files.values()))))
    by_name = {name: variants(found)[str(path)] for name, path in files.items()}
    assert all(variant.status == "measured" for variant in by_name.values())
    assert by_name["there"].message == "graphopt made it for 4 threads, Z80"
    assert not any(variant.message for name, variant in by_name.items() if name != "there")
    screen = Console(file=io.StringIO(), width=200)
    show_case(found.cases[0], screen, 0.5)
    assert "there.onnx" in screen.file.getvalue() and "made it for 4 threads" in screen.file.getvalue()


def test_nodes_of_bodies_count(tmp_path):
    """As they do in what the report of an optimisation says of the same file."""
    body = "g () => (float[2] a) {p = Neg(x) a = Abs(p)}"
    text = f"""<ir_version: 7, opset_import: ["": 15]> g (float[2] x, bool f) => (float[2] y)
        {{y = If(f) <then_branch = {body}, else_branch = {body}>}}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "if.onnx")
    assert described(Made(Variant("if", "file"), tmp_path / "if.onnx")).variant.nodes == 5


def level(name, low, value, high, status="measured"):
    return Variant(name, "level", name, status, ratio=Ratio(value, low, high, verdict(low, high, 0.02)))


def test_the_best_level():
    base = Variant("original", "level", status="measured")
    close, fast, faster = (
        level("extended", 0.99, 1.01, 1.03),
        level("basic", 1.01, 1.1, 1.2),
        level("disabled", 1.1, 1.2, 1.3),
    )
    assert _best_level([base, close]) is base
    assert _best_level([base, close, fast, faster]) is faster
    assert _best_level([base, fast, replace(faster, kind="peer")]) is fast


def test_several_models_and_one_that_fails(net, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"junk")
    found = bench([broken, net], QUICK)
    assert [case.baseline.status for case in found.cases] == ["failed", "measured"]
    assert found.cases[0].baseline.message.startswith("not a whole ONNX model")


def test_inputs_and_dims(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(2, rows="rows").proto)
    x = np.ones((3, 64), np.float32)
    assert bench([path], plan(inputs={"x": x})).cases[0].baseline.status == "measured"
    np.savez(tmp_path / "x.npz", x=x)
    assert bench([path], plan(inputs=tmp_path / "x.npz")).cases[0].baseline.status == "measured"
    assert bench([path], plan(dims={"rows": 2})).cases[0].baseline.status == "measured"
    with pytest.raises(UnknownNameError, match="cols"):
        bench([path], plan(dims={"cols": 2}))
    (tmp_path / "fixed.onnx").write_bytes(chain(1).proto)
    found = bench([path, tmp_path / "fixed.onnx"], plan(dims={"rows": 2}))
    assert [case.baseline.status for case in found.cases] == ["measured", "failed"]
    assert "rows" in found.cases[1].baseline.message
    with pytest.raises(UsageError, match="one model"):
        bench([path, path], plan(inputs={"x": x}))


def test_interrupted(net):
    seen = []

    def stop():
        return any("measuring" in message for message in seen)

    found = bench([net, net], plan(rounds=10_000), progress=lambda p: seen.append(p.message), interrupted=stop)
    assert found.interrupted and len(found.cases) <= 1
    assert bench([net], QUICK, interrupted=lambda: True).cases == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategies": ("gredy",)}, "gredy"),
        ({"levels": ("al",)}, "'al'"),
        ({"against": ("onnxsin",)}, "onnxsin"),
        ({"against": ("absent.onnx",)}, "no such file"),
        ({"against": ("/dev/null",)}, "/dev/null is not a regular file"),
        ({"providers": ("gpu",)}, "gpu"),
        ({"threads": (-1,)}, "thread"),
        ({"threads": ()}, "thread"),
        ({"rounds": 19}, "rounds must be a whole number of at least 20, not 19"),
        ({"seconds": 0.0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"precision": 0.0}, "precision"),
    ],
)
def test_mistakes_are_found_before_the_work(net, changes, message):
    with pytest.raises(UsageError, match=message):
        bench([net], plan(**changes))


def test_find_model(net):
    assert find_model(net) == (str(net), net)
    with pytest.raises(UsageError, match="no such file"):
        find_model("absent.onnx")
    with pytest.raises(UnknownNameError, match="bert_bas"):
        find_model("bert_bas")


def test_it_is_in_the_package():
    assert graphopt.bench is bench and graphopt.Plan is Plan
