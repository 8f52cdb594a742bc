"""Many models in one command: found, optimised one by one, told, gone on with, and written without a weight twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cli.many import _lines, _show
from graphopt.cli.screen import console
from graphopt.config import Settings
from graphopt.errors import UsageError
from graphopt.many import child
from graphopt.many.batch import Done, _made_with, optimize_many
from graphopt.many.find import ModelJob, find
from graphopt.many.finished import FinishedModels
from tests.cli.conftest import conv_net
from tests.permissions import anyones_folder, permissions_apply

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--strategy", "none", "--no-measure")
N = 128  # 64 kB a weight


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GRAPHOPT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(fresh_cache))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


def chain(weights: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """Products with one weight after the other, and a few additions of nothing, which cleaning takes away."""
    nodes, last = [], "x"
    for number, name in enumerate(weights):
        nodes += [
            helper.make_node("MatMul", [last, name], [f"p{number}"]),
            helper.make_node("Identity", [f"p{number}"], [f"h{number}"]),
        ]
        last = f"h{number}"
    nodes.append(helper.make_node("Tanh", [last], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, N]) for name in "xy")
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "chain", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weight(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(N, N), scale=0.1).astype(np.float32)


def in_files(model: onnx.ModelProto, path: Path, places: dict[str, tuple[str, int]]) -> None:
    """Save a model whose weights lie at some places in files beside it."""
    for tensor in model.graph.initializer:
        name, offset = places[tensor.name]
        content = tensor.raw_data
        with (path.parent / name).open("r+b" if (path.parent / name).exists() else "w+b") as file:
            file.seek(offset)
            file.write(content)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", name), ("offset", offset), ("length", len(content))):
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def outputs(path: Path) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    return session.run(None, {"x": np.random.default_rng(7).normal(size=shape).astype(np.float32)})[0]


def several(folder: Path) -> Path:
    """Three plain models, one in a folder of its own, one with weights in three files, and a broken one."""
    (folder / "sub").mkdir(parents=True)
    for number in range(3):
        onnx.save(conv_net(seed=number), folder / f"m{number}.onnx")
    onnx.save(conv_net(seed=8), folder / "sub/m0.onnx")
    weights = {f"w{number}": weight(number) for number in range(3)}
    in_files(chain(weights), folder / "three.onnx", {f"w{n}": (f"three.{n}.data", 0) for n in range(3)})
    (folder / "broken.onnx").write_bytes((folder / "m0.onnx").read_bytes()[:300])
    (folder / "config.json").write_text("{}")
    return folder


def graphopt(*arguments: object, cwd: Path, wait: bool = True) -> Any:
    command = [sys.executable, "-m", "graphopt", *map(str, arguments)]
    if not wait:
        return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
def test_six_models_of_which_one_is_broken(tmp_path):
    source = several(tmp_path / "in")
    done = graphopt("optimize", "in", "--out-dir", "out", *QUICK, "--json", "-", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    models = json.loads(done.stdout)["models"]
    assert len(models) == 6
    assert [each["input"] for each in models if each["status"] == "failed"] == ["in/broken.onnx"]
    assert "error: 1 of 6 models failed, the first: in/broken.onnx: not a whole ONNX model" in done.stderr
    assert "Traceback" not in done.stderr
    good = sorted(path.relative_to(source) for path in source.rglob("*.onnx") if path.name != "broken.onnx")
    assert sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.onnx")) == good
    for name in good:
        assert np.allclose(outputs(source / name), outputs(tmp_path / "out" / name), atol=1e-5), name
        nodes = onnx.load(tmp_path / "out" / name, load_external_data=False).graph.node
        assert not any(node.op_type == "Identity" for node in nodes)
    assert (tmp_path / "out/config.json").read_text() == "{}"
    assert all(each["peak_memory"] < 1 << 30 for each in models if each["peak_memory"])
    # Nothing is done twice: neither the good ones, nor, once it is mended, any but the broken one.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.onnx")}
    shutil.copy(source / "m1.onnx", source / "broken.onnx")
    again = graphopt("optimize", "in", "--out-dir", "out", *QUICK, "--json", "-", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {each["input"]: each["earlier"] for each in json.loads(again.stdout)["models"]} == {
        each["input"]: each["input"] != "in/broken.onnx" for each in models
    }
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items())


def test_what_others_have_put_where_files_are_copied_stays(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    for folder, text in ((source, "ours"), (out, "theirs")):
        folder.mkdir()
        for name in ("README.md", "config.json"):
            (folder / name).write_text(f"{text}: {name}")
    (out / "config.json").unlink()
    onnx.save(conv_net(), source / "m.onnx")

    def run() -> str:
        done = graphopt("optimize", "in", "--out-dir", "out", "--strategy", "none", "--no-measure", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert run().count("out/README.md stays as it is and not as in/README.md") == 1
    assert (out / "README.md").read_text() == "theirs: README.md"
    assert (out / "config.json").read_text() == "ours: config.json"
    (source / "config.json").write_text("changed")
    assert "config.json stays" not in run()
    assert (out / "config.json").read_text() == "changed"
    (out / "config.json").write_text("changed by hand")
    assert "out/config.json stays as it is" in run()
    assert (out / "config.json").read_text() == "changed by hand"


@pytest.mark.slow
def test_killed_and_started_again(tmp_path):
    for number in range(4):
        (tmp_path / "in").mkdir(exist_ok=True)
        onnx.save(conv_net(seed=number), tmp_path / f"in/m{number}.onnx")
    journal, temporary = tmp_path / "out/.graphopt.json", tmp_path / "temporary"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    try:
        process = graphopt("optimize", "in", "--out-dir", "out", *QUICK, cwd=tmp_path, wait=False)
        while not journal.exists() or len(json.loads(journal.read_text())["models"]) < 2:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        process.kill()
        process.communicate()
        finished = set(json.loads(journal.read_text())["models"])
        assert 2 <= len(finished) < 4
        done = graphopt("optimize", "in", "--out-dir", "out", *QUICK, "--json", "-", cwd=tmp_path)
    finally:
        del os.environ["TMPDIR"]
    assert done.returncode == 0, done.stderr
    assert {Path(each["output"]).name for each in json.loads(done.stdout)["models"] if each["earlier"]} == finished
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {".graphopt.json", *(f"m{number}.onnx" for number in range(4))}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_leaves_the_rest_for_another_run(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(4):
        onnx.save(conv_net(seed=number), tmp_path / f"in/m{number}.onnx")
    process = graphopt("optimize", "in", "--out-dir", "out", *QUICK, cwd=tmp_path, wait=False)
    journal = tmp_path / "out/.graphopt.json"
    while not journal.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "error: stopped by Ctrl-C after" in err and "hint: the same command goes on" in err
    assert len(list((tmp_path / "out").glob("*.onnx"))) < 4
    done = graphopt("optimize", "in", "--out-dir", "out", *QUICK, cwd=tmp_path)
    assert done.returncode == 0 and "done by an earlier run" in done.stderr


@pytest.mark.slow
def test_shared_weights_stay_shared(tmp_path):
    """A folder as those of encoder, decoder and decoder with past are: two weights in common, in one file."""
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "onnx").mkdir(parents=True)
    a, b = weight(1), weight(2)
    size = a.nbytes
    shared = {"a": ("weights.onnx_data", 0), "b": ("weights.onnx_data", size)}
    in_files(chain({"a": a}), source / "onnx/encoder_model.onnx", shared)
    in_files(chain({"b": b, "a": a}), source / "onnx/decoder_model.onnx", shared)
    third = {**shared, "c": ("more.onnx_data", 0)}
    in_files(chain({"a": a, "b": b, "c": weight(3)}), source / "onnx/decoder_with_past_model.onnx", third)
    for name in ("config.json", "tokenizer.json", "pytorch_model.bin", ".gitattributes"):
        (source / name).write_text(name)
    found = optimize_many([source], out, Settings(strategy="none", measure=False))
    assert [done.status for done in found] == ["predicted"] * 3  # nothing is measured, so what was found is written
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    data = {name for name in files if name.endswith(".data")}
    assert files - data == {".graphopt.json", "config.json", "tokenizer.json"} | {
        f"onnx/{name}_model.onnx" for name in ("encoder", "decoder", "decoder_with_past")
    }
    assert sum((out / name).stat().st_size for name in data) == 3 * size
    for model in source.rglob("*.onnx"):
        assert np.allclose(outputs(model), outputs(out / model.relative_to(source)), atol=1e-6)
    # The first alone is written anew; what the others need of its old weights stays.
    (source / "onnx/decoder_model.onnx").unlink()
    in_files(chain({"b": b + 1}), source / "onnx/decoder_model.onnx", {"b": ("other.onnx_data", 0)})
    again = optimize_many([source], out, Settings(strategy="none", measure=False))
    assert [done.earlier for done in again] == [False, True, True]
    for model in source.rglob("*.onnx"):
        assert np.allclose(outputs(model), outputs(out / model.relative_to(source)), atol=1e-6)


def test_other_settings_or_a_lost_file_are_done_again(tmp_path):
    source, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(conv_net(), source)
    quick = Settings(strategy="none", measure=False)

    def earlier(settings: Settings) -> bool:
        (done,) = optimize_many([source], out, settings)
        assert not done.error
        return done.earlier

    assert [earlier(quick), earlier(quick)] == [False, True]
    assert not earlier(Settings(strategy="none", measure=False, seed=1))
    (out / "m.onnx").unlink()
    assert [earlier(Settings(strategy="none", measure=False, seed=1)) for _ in range(2)] == [False, True]
    (out / ".graphopt.json").write_text('{"schema": "graphopt.finished/1", "models": {"m.onnx": 3}}')
    assert not earlier(quick)


def test_a_model_of_others_stays_and_what_we_wrote_is_replaced(tmp_path):
    source, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(conv_net(), source)
    out.mkdir()
    theirs = out / "m.onnx"
    quick = Settings(strategy="none", measure=False)

    def again(seed: int) -> Done:
        (done,) = optimize_many([source], out, Settings(strategy="none", measure=False, seed=seed))
        return done

    for text in (b"something else", conv_net(seed=3).SerializeToString()):
        theirs.write_bytes(text)
        done = again(0)
        assert done.error == f"{theirs} stays as it is: no earlier run has written it, or it was changed since"
        assert done.hint == "remove it, or choose another folder with --out-dir" and theirs.read_bytes() == text
    theirs.unlink()
    assert not again(0).error
    theirs.write_bytes(theirs.read_bytes() + b"\x12\x01p")  # a producer_name: what somebody made of ours
    assert "or it was changed since" in again(0).error and "or it was changed since" in again(1).error
    theirs.unlink()
    assert not again(0).error
    (out / ".graphopt.json").unlink()  # the file itself says that we have written it
    assert not again(1).error
    shutil.copy(source, theirs)
    (out / ".graphopt.json").unlink()  # and here is nothing to lose
    assert not again(0).error
    (out / ".graphopt.json").unlink()
    theirs.unlink()
    shutil.copy(source, tmp_path / "other.onnx")
    theirs.symlink_to("../other.onnx")
    assert "no earlier run has written it" in again(0).error
    assert (tmp_path / "other.onnx").read_bytes() == source.read_bytes()
    theirs.unlink()
    assert not again(0).error
    # Killed between writing the model and writing down that it is written.
    journal = FinishedModels(out, {})
    journal.begin(source, theirs)
    journal.close()
    onnx.save(conv_net(seed=5), theirs)
    assert not again(0).error
    # Ended by Ctrl-C: ours, and not finished.
    asked = iter([False])
    optimize_many([source], out, Settings(seed=2, measure=False), interrupted=lambda: next(asked, True))
    onnx.save(conv_net(seed=4), source)
    (done,) = optimize_many([source], out, quick)
    assert not done.error and not done.earlier


def test_what_noise_left_open_is_done_again(tmp_path):
    source, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(conv_net(), source)
    quick = Settings(strategy="none", measure=False)
    optimize_many([source], out, quick)
    journal = json.loads((out / ".graphopt.json").read_text())

    def earlier(verdict: str) -> bool:
        told = journal["models"]["m.onnx"]["told"]
        told |= {"kept_original": True, "latency": {**MEASURED["latency"], "verdict": verdict}}
        (out / ".graphopt.json").write_text(json.dumps(journal))
        (done,) = optimize_many([source], out, quick)
        return done.earlier

    assert [earlier("unclear"), earlier("equal")] == [False, True]


def test_a_process_that_is_killed_is_a_failure_of_its_model(tmp_path, monkeypatch):
    onnx.save(conv_net(), tmp_path / "m.onnx")
    monkeypatch.setattr(child, "_START", "import os; os.kill(os.getpid(), 9)")
    heard: list[Done] = []
    optimize_many([tmp_path / "m.onnx"], tmp_path / "out", on_done=heard.append)
    assert [(each.status, each.error) for each in heard] == [
        ("failed", "the process was ended by signal 9, perhaps for want of memory")
    ]
    assert not (tmp_path / "out/m.onnx").exists()


def test_a_folder_is_walked_once(tmp_path):
    (tmp_path / "in").mkdir()
    onnx.save(conv_net(), tmp_path / "in/m.onnx")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from graphopt.cli.main import run\n"
        "walked = []\n"
        "sys.addaudithook(lambda event, given: walked.append(given[0]) if event == 'os.scandir' else None)\n"
        f"assert run(['optimize', 'in', '--out-dir', 'out', *{QUICK}, '-q', '--json', 'all.json']) == 0\n"
        "assert [*map(str, walked)].count('in') == 1, walked\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = [sys.executable, "-X", "dev", "-m", "graphopt", "optimize", "in", "--out-dir", "again", *QUICK, "-q"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr  # nor is a pipe left open


def test_another_agent_in_the_same_folder_begins_anew(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    settings = Settings(strategy="rl", agent=str(tmp_path))
    before = _made_with(settings, None)
    assert _made_with(settings, None) == before
    (tmp_path / "manifest.json").write_text("{ }")
    assert _made_with(settings, None) != before


def test_a_file_is_no_folder_to_write_to(tmp_path):
    onnx.save(conv_net(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"m\.onnx is not a folder"):
        optimize_many([tmp_path / "m.onnx"], tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="inputs must be a path, not dict"):
        optimize_many([tmp_path / "m.onnx"], None, inputs={"x": [1.0]})  # type: ignore[arg-type]


def test_one_process_in_a_folder(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    onnx.save(conv_net(), tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    other = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another graphopt is writing to"):
        optimize_many([tmp_path / "m.onnx"], tmp_path / "out")
    os.close(other)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m.onnx", "n.onnx"], "error: several models need a folder to be written to\nhint: give --out-dir"),
        (["."], "error: . is a folder, not a file\nhint: for all models in it, give --out-dir"),
        (["m.onnx", "--out-dir", "out", "-o", "x.onnx"], "error: -o is for a single model"),
        (["m.onnx", "--check", "--out-dir", "out"], "error: --check writes no model: leave -o and --out-dir out"),
        (["m.onnx", "--out-dir", "m.onnx"], "error: m.onnx is not a folder"),
        (["m.onnx", "--profile", "edge"], "error: profile 'edge': no graphopt.toml or pyproject.toml with settings"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_command_lines(tmp_path, monkeypatch, capfd, arguments, said):
    from graphopt.cli.main import run

    for name in ("m.onnx", "n.onnx"):
        onnx.save(conv_net(), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert run(["optimize", *arguments]) == 2
    assert capfd.readouterr().err.startswith(said)


def test_check(tmp_path, monkeypatch, capfd):
    """What could be faster ends the command with 4, and what is as fast as can be with 0; nothing is written."""
    from graphopt.cli.main import run

    monkeypatch.chdir(tmp_path)
    onnx.save(conv_net(), "m.onnx")
    assert run(["optimize", "m.onnx", "--out-dir", "better", *QUICK]) == 0
    shutil.copy("better/m.onnx", "n.onnx")
    before = sorted(path.name for path in tmp_path.iterdir())
    capfd.readouterr()
    assert run(["optimize", "--check", "m.onnx", *QUICK]) == 4
    assert "error: m.onnx could be faster, by prediction\nhint: graphopt optimize m.onnx" in capfd.readouterr().err
    assert run(["optimize", "--check", "n.onnx", *QUICK]) == 0
    assert run(["optimize", "--check", "m.onnx", "n.onnx", *QUICK]) == 4
    assert "hint: graphopt optimize m.onnx --out-dir DIR" in capfd.readouterr().err
    assert run(["optimize", "--check", "--quiet", "n.onnx", *QUICK]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before


MEASURED = {
    "latency": {"baseline_ms": 2.0, "optimized_ms": 1.0, "speedup": 2.0, "ci95": [1.9, 2.1], "verdict": "faster"},
    "kept_original": False, "tie": False, "nodes": {"after": 3}, "size": {"after": 100},
    "sizes": {"batch": 1, "seq": 8}, "sizes_assumed": ["seq"],
    "elsewhere": [{"sizes": {"batch": 4, "seq": 2}, "speedup": 1.5, "ci95": [1.4, 1.6]}],
}  # fmt: skip


def shown(capfd, *reports: dict[str, Any]) -> tuple[str, str]:
    """The lines of models of which this was told, and their table."""
    done = [Done(ModelJob(Path(f"m{number}.onnx"), None), report) for number, report in enumerate(reports)]
    _show(done, console())
    return "\n".join(line for one in done for line in _lines(one)), " ".join(capfd.readouterr().err.split())


def test_lines_and_table_say_at_which_sizes_models_were_measured(capfd):
    lines, table = shown(capfd, MEASURED, {**MEASURED, "sizes": {}, "elsewhere": []}, MEASURED)
    sizes = "measured with batch=1, seq=8 (seq assumed; see --at and --dim)"
    first, second, _ = lines.splitlines()
    assert f"m0.onnx: 2.000x (1.900 to 2.100), {sizes}, 1.500x at batch=4, seq=2, " in first
    assert "measured with" not in second
    assert table.endswith(f"{sizes}: m0.onnx, m2.onnx")


def test_a_model_of_which_noise_hides_whether_it_is_faster_is_said_to_be_so(capfd):
    noisy = {**MEASURED["latency"], "speedup": 1.58, "ci95": [0.94, 2.67], "verdict": "unclear"}
    kept = {**MEASURED, "kept_original": True, "latency": noisy, "sizes": {}}
    lines, table = shown(capfd, kept, {**kept, "latency": {**noisy, "verdict": "equal"}})
    first, second = lines.splitlines()
    assert first.startswith("kept      m0.onnx: too noisy to tell, a candidate measured 1.580x (0.940 to 2.670), ")
    assert second.startswith("kept      m1.onnx: as it was, ")
    assert table.count("too noisy") == 1


def test_what_was_not_measured_is_not_called_faster(capfd):
    unmeasured = {**MEASURED, "latency": None, "sizes": {}, "elsewhere": []}
    lines, table = shown(capfd, unmeasured, MEASURED)
    first, second = lines.splitlines()
    assert first.startswith("predicted m0.onnx: not measured, ") and second.startswith("faster    m1.onnx: ")
    assert "m0.onnx predicted not measured" in table
    assert Done(ModelJob(Path("m.onnx"), None), unmeasured).told()["status"] == "predicted"


class TestFind:
    def test_folders_patterns_and_files(self, tmp_path):
        for name in ("a/x.onnx", "a/b/y.ONNX", "a/x.opt.onnx", "a/.git/z.onnx", "a/out/w.onnx", "c/x.onnx"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"?")
        out = tmp_path / "a/out"
        places = {job.target.relative_to(out).as_posix() for job in find([tmp_path / "a"], out).jobs}
        assert places == {"x.onnx", "b/y.ONNX"}
        found = find([tmp_path / "a/**/*.onnx"], tmp_path / "elsewhere").jobs
        assert {job.source.name for job in found} == {"x.onnx", "w.onnx"}  # as everywhere, * leaves out what is hidden
        assert find([tmp_path / "c/x.onnx"], None).jobs[0].target is None

    @pytest.mark.parametrize(
        ("given", "out", "said"),
        [
            (["a/x.onnx", "c/x.onnx"], "out", "would both be written to"),
            (["a/x.onnx"], "a", "is an input, which is never overwritten"),
            (["empty"], "out", "no model in"),
            (["*.onnx"], "out", "nothing matches"),
            (["missing.onnx"], "out", "no such file"),
            (["/dev/zero"], "out", "/dev/zero is not a regular file"),  # which has no end
        ],
    )
    def test_what_can_not_be(self, tmp_path, given, out, said):
        for name in ("a/x.onnx", "c/x.onnx", "empty/readme.txt"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"?")
        with pytest.raises(UsageError, match=said):
            find([tmp_path / each for each in given], tmp_path / out)

    def test_what_can_not_be_read_is_no_empty_folder(self):
        with anyones_folder() as folder:
            (folder / "a/shut").mkdir(parents=True)
            (folder / "a/x.onnx").write_bytes(b"?")
            (folder / "a/shut").chmod(0)
            with permissions_apply(), pytest.raises(UsageError, match=r"a/shut: can't be read: permission denied"):
                find([folder / "a"], None)


def test_a_file_in_the_place_of_a_folder_is_a_failure_of_its_model(tmp_path):
    (tmp_path / "nets/sub").mkdir(parents=True)
    (tmp_path / "nets/sub/x.onnx").write_bytes(b"?")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/sub").touch()
    (done,) = optimize_many([tmp_path / "nets"], tmp_path / "out")
    assert done.error == f"file exists: {tmp_path / 'out/sub'}"
