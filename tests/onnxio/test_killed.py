"""A model with weights in a file of their own is overwritten: what a kill leaves, and what is tidied up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import Staged, save
from tests.onnxio.models import run
from tests.share import part

ROOT = Path(__file__).resolve().parents[2]
N = 32
X = np.ones((2, N), np.float32)


def matmul(value: float) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, N]) for n in "xy"]
    weight = numpy_helper.from_array(np.full((N, N), value, np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", info[:1], info[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stored(path: Path, value: float) -> Path:
    onnx.save(matmul(value), path)
    return path


def written(source: Path, out: Path) -> None:
    loaded = load(source)
    save(emit(loaded, loaded.graph), out, external=True)


def value(path: Path) -> float:
    return float(run(path, {"x": X})[0][0, 0]) / N


# Kills itself at the n-th change of a name: the weights', then the model's.
KILLED = """
import os, sys
from pathlib import Path
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import save
left, plain = int(sys.argv[3]), Path.replace
def replace(self, target):
    global left
    if not left:
        os.kill(os.getpid(), 9)
    left -= 1
    return plain(self, target)
Path.replace = replace
os_replace = os.replace
loaded = load(sys.argv[1])
save(emit(loaded, loaded.graph), Path(sys.argv[2]), external=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
@pytest.mark.parametrize("renames", [0, 1])
def test_killed_between_the_two_files(tmp_path, renames):
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    written(stored(tmp_path / "old.onnx", 1.0), out)
    new = stored(tmp_path / "new.onnx", 2.0)
    done = subprocess.run([sys.executable, "-c", KILLED, new, out, str(renames)], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert value(out) == 1.0
    written(new, out)
    assert value(out) == 2.0
    assert len(list(out.parent.iterdir())) == 2  # the model and its weights: nothing of the old, nothing of the killed


def test_only_what_no_model_names_is_removed(tmp_path):
    out = tmp_path / "m.onnx"
    one, two = stored(tmp_path / "one.bin", 1.0), stored(tmp_path / "two.bin", 2.0)
    written(one, out)
    (first,) = tmp_path.glob("m.onnx.*.data")
    copy = tmp_path / "copy"
    copy.write_bytes(out.read_bytes())  # a model by whatever name that shares the weights
    foreign = tmp_path / "m.onnx.notes.data"
    foreign.touch()
    written(two, out)
    assert value(out) == 2.0 and first.exists() and value(copy) == 1.0
    copy.unlink()
    written(two, out)
    assert not first.exists() and foreign.exists() and value(out) == 2.0
    (second,) = [p for p in tmp_path.glob("m.onnx.*.data") if p != foreign]
    save(emit(load(one), load(one).graph), out)
    assert not second.exists() and value(out) == 1.0


def test_a_discarded_model_takes_no_weights_of_another_with_it(tmp_path):
    out = tmp_path / "m.onnx"
    written(stored(tmp_path / "one.bin", 1.0), out)
    loaded = load(out)
    before = sorted(p.name for p in tmp_path.iterdir())
    with Staged(emit(loaded, loaded.graph), out, external=True) as staged:
        assert value(staged.path) == 1.0
    assert sorted(p.name for p in tmp_path.iterdir()) == before and value(out) == 1.0
    other = load(tmp_path / "one.bin")
    with Staged(emit(other, other.graph), tmp_path / "n.onnx", external=True):
        assert list(tmp_path.glob("n.onnx.*.data"))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_two_writers_of_one_model(tmp_path):
    out = tmp_path / "m.onnx"
    one, two = (load(stored(tmp_path / f"{v}.bin", v)) for v in (1.0, 2.0))
    with Staged(emit(one, one.graph), out, external=True) as slow:
        save(emit(two, two.graph), out, external=True)
        assert value(out) == 2.0
        slow.commit({})
    assert value(out) == 1.0 and len(list(tmp_path.glob("m.onnx*"))) == 2


@pytest.mark.parametrize("last", ["written", "discarded"])
@pytest.mark.parametrize("ends", ["first", "second"])
def test_two_staged_models_of_the_same_weights(tmp_path, ends, last):
    """The second found the weights of the first, which took them away when it was discarded."""
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    loaded = load(stored(tmp_path / "one.bin", 1.0))
    first, second = (Staged(emit(loaded, loaded.graph), out, external=True) for _ in range(2))
    ended, other = (first, second) if ends == "first" else (second, first)
    ended.close()
    assert value(other.path) == 1.0
    if last == "written":
        other.commit({})
        assert value(out) == 1.0 and len(list(out.parent.iterdir())) == 2
    else:
        other.close()
        assert not list(out.parent.iterdir())


def test_weights_that_a_link_to_a_model_names_stay(tmp_path):
    """As in a folder whose models are links to a store."""
    out, store = tmp_path / "m.onnx", tmp_path / "store"
    written(stored(tmp_path / "one.bin", 1.0), out)
    store.mkdir()
    out.rename(store / "model")
    (tmp_path / "mine.onnx").symlink_to(store / "model")
    written(stored(tmp_path / "two.bin", 2.0), out)
    (first,) = (p for p in tmp_path.glob("m.onnx.*.data") if p.name in (store / "model").read_bytes().decode("latin-1"))
    assert value(out) == 2.0 and first.exists()


def test_weights_of_an_input_in_the_folder_above_stay(tmp_path):
    out = tmp_path / "sub" / "m.onnx"
    out.parent.mkdir()
    written(stored(tmp_path / "one.bin", 1.0), out)
    above = onnx.load(out, load_external_data=False)
    location = above.graph.initializer[0].external_data[0]
    location.value = f"sub/{location.value}"
    onnx.save(above, tmp_path / "in.onnx")
    out.unlink()
    loaded = load(tmp_path / "in.onnx")
    save(emit(loaded, loaded.graph), out)
    assert value(out) == 1.0 and value(tmp_path / "in.onnx") == 1.0


def test_weights_of_the_same_name_and_other_content_are_another_models(tmp_path):
    out, other = tmp_path / "m.onnx", tmp_path / "other.onnx"
    one = stored(tmp_path / "one.bin", 1.0)
    written(one, out)
    out.rename(other)
    (weights,) = tmp_path.glob("m.onnx.*.data")
    weights.write_bytes(np.full((N, N), 7.0, np.float32).tobytes())  # as who goes on training in place
    written(one, out)
    assert value(other) == 7.0 and value(out) == 1.0


@pytest.mark.parametrize("committed", [0, 1])
def test_a_discarded_model_leaves_its_weights_to_one_that_has_moved_on(tmp_path, committed):
    loaded = load(stored(tmp_path / "one.bin", 1.0))
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    staged = [Staged(emit(loaded, loaded.graph), out, external=True) for _ in range(2)]
    staged[committed].commit({})
    out.rename(out.with_name("prod.onnx"))
    staged[1 - committed].close()
    assert value(out.with_name("prod.onnx")) == 1.0


# Ends at the n-th line that is run in the modules that write, with a KeyboardInterrupt or as a signal that is heard late does.
STOPPED = """
import os, sys
from pathlib import Path
from graphopt import files, scratch
from graphopt.onnxio import save
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
OURS = {module.__file__ for module in (files, scratch, save)}
def ended():
    scratch.abandon()
    os._exit(3)
def interrupted():
    raise KeyboardInterrupt
def run(source, out, how, line):
    left = line
    def seen(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename not in OURS:
            return None
        left -= event == "line"
        if not left:
            sys.settrace(None)
            how()
        return seen
    sys.unraisablehook = lambda lost: None  # what hits a destructor
    loaded = load(source)
    emitted = emit(loaded, loaded.graph)
    sys.settrace(seen)
    try:
        save.save(emitted, Path(out), external=True)
    except KeyboardInterrupt:
        os._exit(3)
    os._exit(0)
source, out, how = sys.argv[1:4]
for line in map(int, sys.argv[4:]):
    sys.stdin.readline()
    child = os.fork()
    if not child:
        run(source, out, {"ended": ended, "interrupted": interrupted}[how], line)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks at each line")
@pytest.mark.parametrize("case", part([(1.0, "interrupted"), (None, "ended"), (2.0, "ended")], 3, str))
def test_whatever_line_it_ends_at_a_whole_model_is_there(tmp_path, case):
    """The model that had just come to its place was removed from there, or its weights were."""
    former, how = case
    out, new = tmp_path / "out" / "m.onnx", stored(tmp_path / "new.onnx", 2.0)
    out.parent.mkdir()
    old = None if former is None else stored(tmp_path / "old.onnx", former)
    lines = [str(line) for line in range(1, 2000)]
    command = [sys.executable, "-c", STOPPED, str(new), str(out), how, *lines]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        for line in lines:
            for each in out.parent.iterdir():
                each.unlink()
            if old is not None:
                written(old, out)
            process.stdin.write("\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            assert code in (0, 3)
            there = value(out) if out.exists() else None
            assert there in (former, 2.0), f"line {line}"
            if code == 0:
                process.kill()
                break
        else:
            pytest.fail("it never came to its end")
    assert int(line) > 100
