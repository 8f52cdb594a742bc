"""Inputs that a user gives: folders of sets, in each form that they come in, and what is wrong with some."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.benchmark.plan import Plan
from graphopt.errors import GraphoptError, UsageError
from graphopt.runtime.given import MOST_SETS, InputsWarning, read_inputs
from tests.runtime.models import F, proto

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


@pytest.fixture
def net(tmp_path):
    """``out = (x - y) / scale``: the weight is an input, too, as old exporters write it."""
    nodes = [helper.make_node("Sub", ["x", "y/in"], ["d"]), helper.make_node("Div", ["d", "scale"], ["out"])]
    inputs = [("x", F, ["n", 3]), ("y/in", F, ["n", 3]), ("scale", F, [1])]
    model = proto(nodes, inputs, [("out", F, ["n", 3])], {"scale": np.array([4], np.float32)})
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def put(folder, **messages):
    folder.mkdir(parents=True)
    for name, array in messages.items():
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return folder


def declared(net):
    from graphopt.onnxio.testdata import declared

    return declared(onnx.load(net).graph)


def test_a_set_of_messages_goes_by_the_order_of_inputs(net, tmp_path):
    (found,) = read_inputs(put(tmp_path / "test_data_set_0", input_0=X, input_1=Y, output_0=X), declared(net))
    assert list(found) == ["x", "y/in"] and (found["x"] == X).all() and (found["y/in"] == Y).all()


def test_sets_of_every_kind_in_their_order(net, tmp_path):
    folder = tmp_path / "sets"
    put(folder / "test_data_set_2", input_0=2 * X)
    put(folder / "test_data_set_10", input_0=10 * X)
    (folder / "arrays").mkdir()
    np.save(folder / "arrays/x.npy", X)
    np.save(folder / "arrays/y_in.npy", Y)
    np.savez(folder / "b.npz", x=3 * X)
    (folder / "readme.txt").write_text("none of it")
    (folder / "empty").mkdir()
    arrays, archive, two, ten = read_inputs(folder, declared(net))
    assert (
        sorted(arrays) == ["x", "y/in"] and archive["x"][1, 2] == 15 and two["x"][1, 2] == 10 and ten["x"][1, 2] == 50
    )


def test_messages_of_sequences_and_optionals(tmp_path):
    tensor = helper.make_tensor_type_proto(F, [2, 3])
    inputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
    ]
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(numpy_helper.from_list([X, Y]).SerializeToString())
    (folder / "input_1.pb").write_bytes(numpy_helper.from_optional(X).SerializeToString())
    (found,) = read_inputs(folder, inputs)
    assert len(found["s"]) == 2 and (found["s"][1] == Y).all() and (found["o"] == X).all()


def test_more_sets_than_are_used_are_told(net, tmp_path):
    for number in range(MOST_SETS + 1):
        put(tmp_path / "many" / str(number), input_0=X)
    with pytest.warns(InputsWarning, match=f"the first {MOST_SETS} of {MOST_SETS + 1} sets"):
        assert len(read_inputs(tmp_path / "many", declared(net))) == MOST_SETS


def test_optimize_verify_and_bench_run_on_all_sets(net, tmp_path):
    folder = tmp_path / "sets"
    put(folder / "0", input_0=X, input_1=Y)
    put(folder / "1", input_0=np.concatenate([X, X]), input_1=np.concatenate([Y, X]))
    result = graphopt.optimize(net, inputs=folder, output=tmp_path / "out.onnx", measure=False, strategy="none")
    assert result.report["sizes"] == {"n": 2}
    assert graphopt.verify(net, tmp_path / "out.onnx", inputs=folder).trials == 2
    plan = Plan(("none",), (), ("all",), rounds=20, inputs=folder)
    assert graphopt.bench([net], plan).cases[0].baseline.status == "measured"


def test_a_difference_that_only_the_second_set_shows_is_found(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["y"])], [helper.make_node("Relu", ["x"], ["y"])]
    for name, each in zip("ab", nodes, strict=True):
        onnx.save(proto(each, [("x", F, [2, 3])], [("y", F, [2, 3])]), tmp_path / f"{name}.onnx")
    put(tmp_path / "sets/0", input_0=X)
    assert graphopt.verify(tmp_path / "a.onnx", tmp_path / "b.onnx", inputs=tmp_path / "sets").passed
    put(tmp_path / "sets/1", input_0=-X)
    assert not graphopt.verify(tmp_path / "a.onnx", tmp_path / "b.onnx", inputs=tmp_path / "sets").passed


def external(folder):
    tensor = TensorProto(name="x", data_type=F, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/hostname")
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())


def rubbish(name, content):
    def make(folder):
        folder.mkdir()
        (folder / name).write_bytes(content)

    return make


def mixed(folder):
    put(folder, input_0=X)
    np.save(folder / "x.npy", X)


WRONG = {
    "an empty folder": (lambda folder: folder.mkdir(), "holds no inputs"),
    "one input too many": (lambda folder: put(folder, input_2=X), r"input_2.pb: the model has 2 inputs.*'x', 'y/in'"),
    "no protobuf": (rubbish("input_0.pb", b"\xff" * 20), "can't read inputs from .*input_0.pb: no tensor"),
    "a cut tensor": (rubbish("input_0.pb", numpy_helper.from_array(X).SerializeToString()[:-5]), "input_0.pb"),
    "no array": (rubbish("x.npy", b"no array"), "can't read inputs from .*x.npy"),
    "two kinds": (mixed, "holds both x.npy and input_0.pb"),
    "data elsewhere": (external, "lie in a file of their own"),
    "a wrong shape": (lambda folder: put(folder, input_0=X.T.copy()), "input 'x' has shape"),
    "a wrong type": (lambda folder: put(folder, input_0=X.astype(np.float64)), "input 'x' is float64"),
    "a wrong name": (lambda folder: (folder.mkdir(), np.save(folder / "z.npy", X)), "z"),
    "a wrong second set": (
        lambda folder: (put(folder / "0", input_0=X, input_1=Y), put(folder / "1", input_0=X.T.copy())),
        "set 2 of the inputs: input 'x' has shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_one_line(net, tmp_path, kind):
    make, message = WRONG[kind]
    make(tmp_path / "in")
    with pytest.raises(GraphoptError, match=message) as caught:
        graphopt.optimize(net, inputs=tmp_path / "in", output=tmp_path / "out.onnx", measure=False)
    assert isinstance(caught.value, UsageError) and "\n" not in str(caught.value)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("command", ["verify", "inspect", "optimize"])
def test_a_folder_on_the_command_line(net, tmp_path, capfd, command):
    from graphopt.cli.main import run

    folder = put(tmp_path / "set", input_0=X, input_1=Y)
    more = {"verify": [net], "inspect": [], "optimize": ["--strategy", "none", "--no-measure"]}[command]
    assert run([command, *map(str, [net, *more]), "--inputs", str(folder)]) == 0, capfd.readouterr().err
