"""``graphopt replay`` and ``graphopt bisect`` as commands."""

from __future__ import annotations

import json
import shutil

import onnx
import pytest

from graphopt import optimize
from graphopt.search import arena
from tests.test_api import grouped


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, what was made of it, and how."""
    folder = tmp_path_factory.mktemp("optimised")
    source = grouped(folder / "m.onnx")
    optimize(source, output=folder / "a.onnx", trace=folder / "t.json", measure=False, rules=["grouped-conv"])
    return folder


@pytest.fixture
def optimised(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "m.onnx", tmp_path


def test_replay(cli, optimised):
    source, folder = optimised
    done = cli("replay", folder / "t.json", source, "-o", folder / "b.onnx")
    assert done.code == 0, done.err
    assert "3 of 3" in done.err
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def test_replay_says_that_the_input_was_kept(cli, optimised):
    """A trace of what was measured and not written makes another file than `optimize` did."""
    source, folder = optimised
    assert "wrote its input" not in cli("replay", folder / "t.json", source).err
    trace = json.loads((folder / "t.json").read_text())
    trace["about"]["kept_original"] = True
    (folder / "t.json").write_text(json.dumps(trace))
    assert "wrote its input in their place" in cli("replay", folder / "t.json", source).err
    assert "wrote its input" not in cli("replay", folder / "t.json", source, "--steps", "0").err


def test_replay_of_some_steps(cli, optimised):
    source, folder = optimised
    done = cli("replay", folder / "t.json", source, "--steps", "1")
    assert done.code == 0 and "1 of 3" in done.err


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_what_was_measured_with_all_steps_is_not_said_of_some(cli, optimised, steps):
    source, folder = optimised
    trace = json.loads((folder / "t.json").read_text())
    latency = {"baseline_ms": 3.0, "optimized_ms": 2.0, "speedup": 1.5, "ci95": [1.4, 1.6]}
    trace["metadata"] |= {"graphopt.latency": json.dumps(latency), "graphopt.sizes": '{"batch": 1}'}
    (folder / "t.json").write_text(json.dumps(trace))
    assert cli("replay", folder / "t.json", source, "--steps", steps, "-o", folder / "b.onnx").code == 0
    told = cli("explain", folder / "b.onnx").out
    assert [text in told for text in ("1.500x", "measured with batch=1", "provider cpu")] == [steps == 3] * 3
    recorded = {entry.key: entry.value for entry in onnx.load(folder / "b.onnx").metadata_props}
    counts = json.loads(recorded.get("graphopt.rules", "{}"))
    assert sum(counts.values()) == steps and ("graphopt.version" in recorded) == (steps > 0)


def test_bisect(cli, optimised):
    source, folder = optimised
    done = cli("bisect", folder / "t.json", source, "--json", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["step"] is None
    for tolerance in ("1e-3", "1"):  # the second time the report is there already
        more = "--rtol", tolerance, "--json", folder / "r.json"
        assert cli("bisect", folder / "t.json", source, *more).code == 0


@pytest.fixture
def at_two(cli, tmp_path):
    """A symbolic model that was optimised at a batch of two, which is not what would be assumed."""
    source = grouped(tmp_path / "m.onnx", size=8)
    made = cli(*("optimize", source, "--rules", "grouped-conv", "--no-measure", "--at", "batch=2", "--trace", "t.json"))
    assert made.code == 0, made.err
    return source


@pytest.fixture
def measured_batches(monkeypatch):
    """The batches of what is measured, which it is all the same."""
    found, real = list[int](), arena.measure_pair

    def measure(a, b, feeds, *more):
        found.append(len(feeds["x"]))
        return real(a, b, feeds, *more)

    monkeypatch.setattr(arena, "measure_pair", measure)
    return found


def test_steps_are_measured_at_the_sizes_of_their_trace_and_say_so(cli, at_two, measured_batches):
    explain = "explain", at_two, "--trace", "t.json", "--seconds", "0.01"
    seen = cli(*explain)
    assert seen.code == 0, seen.err
    assert "measured with batch=2" in seen.out
    for _ in range(2):  # the second time the report is there already
        assert cli(*explain, "--json", "r.json").code == 0
    stages = json.loads((at_two.parent / "r.json").read_text())["stages"]
    assert stages and all(stage["sizes"] == {"batch": 2} for stage in stages)
    assert set(measured_batches) == {2}
    assert "measured with" not in cli(*explain[:-1], "0").out


def test_a_slower_step_is_looked_for_at_the_sizes_of_the_trace(cli, at_two, measured_batches, monkeypatch):
    from graphopt import retrace

    monkeypatch.setattr(retrace.bisect, "__kwdefaults__", {**retrace.bisect.__kwdefaults__, "seconds": 0.01})
    seen = cli("bisect", "t.json", at_two, "--slower", "--json", "r.json")
    assert seen.code in (0, 1), seen.err
    assert "measured with batch=2" in seen.out
    assert json.loads((at_two.parent / "r.json").read_text())["sizes"] == {"batch": 2}
    assert set(measured_batches) == {2}
    assert "measured with" not in cli("bisect", "t.json", at_two).out  # the outputs are compared at several


def test_what_the_options_of_a_trace_have_fixed_is_not_open_any_more(cli, at_two):
    made = cli(
        *("optimize", at_two, "--rules", "grouped-conv", "--no-measure", "--dim", "batch=3", "--trace", "fixed.json")
    )
    assert made.code == 0, made.err
    seen = cli("explain", at_two, "--trace", "fixed.json", "--seconds", "0.01")
    assert seen.code == 0, seen.err
    assert "measured with batch=3" in seen.out


@pytest.mark.parametrize("size", [-1, 10**15, 10**30])
def test_a_trace_of_impossible_sizes_is_one_line(cli, at_two, size):
    edited = json.loads((at_two.parent / "t.json").read_text())
    edited["sizes"] = {"batch": size, "no such name": 5}
    (at_two.parent / "edited.json").write_text(json.dumps(edited))
    seen = cli("explain", at_two, "--trace", "edited.json", "--seconds", "0.01")
    assert seen.code in (1, 2) and seen.error_lines(), seen.err


def test_a_trace_that_says_no_sizes_is_read(cli, at_two, measured_batches):
    bare = json.loads((at_two.parent / "t.json").read_text())
    del bare["sizes"]
    (at_two.parent / "bare.json").write_text(json.dumps(bare))
    assert "measured with batch=1" in cli("explain", at_two, "--trace", "bare.json", "--seconds", "0.01").out
    for trace in ("t", "bare"):
        assert cli("replay", f"{trace}.json", at_two, "-o", f"{trace}.onnx").code == 0
    assert (at_two.parent / "t.onnx").read_bytes() == (at_two.parent / "bare.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["replay", "none.json", "m.onnx"], 2),
        (["replay", "m.onnx", "m.onnx"], 1),
        (["replay", "t.json", "m.onnx", "-o", "m.onnx"], 2),
        (["replay", "t.json", "m.onnx", "-o", "t.json"], 2),
        (["replay", "t.json", "m.onnx", "-o", "no/such/folder.onnx"], 2),
        (["bisect", "t.json", "m.onnx", "--json", "m.onnx"], 2),
        (["bisect", "t.json", "m.onnx", "--json", "t.json"], 2),
        (["replay", "t.json", "m.onnx", "--steps", "-1"], 2),
        (["replay", "t.json", "a.onnx"], 1),
        (["bisect", "m.onnx", "m.onnx"], 1),
        (["explain", "m.onnx", "--trace", "t.json", "--json", "t.json"], 2),
        (["explain", "m.onnx", "--trace", "t.json", "--json", "m.onnx"], 2),
    ],
)
def test_rubbish_is_one_line(cli, optimised, monkeypatch, arguments, code):
    _, folder = optimised
    monkeypatch.chdir(folder)
    before = (folder / "m.onnx").read_bytes()
    done = cli(*arguments)
    assert done.code == code, done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert (folder / "m.onnx").read_bytes() == before
