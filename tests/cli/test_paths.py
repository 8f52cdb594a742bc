"""Where files are read and written, checked before the work starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.cli import paths
from graphopt.errors import UsageError
from graphopt.files import writable
from tests.permissions import anyones_folder, permissions_apply


@pytest.mark.parametrize(
    ("model", "output"),
    [
        ("net.onnx", "net.opt.onnx"),
        ("a/net.onnx", "a/net.opt.onnx"),
        ("v1.2.onnx", "v1.2.opt.onnx"),
        ("NET.ONNX", "NET.opt.onnx"),
        ("net", "net.opt.onnx"),
        ("net.pb", "net.pb.opt.onnx"),
    ],
)
def test_default_output(model, output):
    assert paths.default_output(Path(model)) == Path(output)


def test_missing_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "resnet50.onnx").touch()
    with pytest.raises(UsageError, match="no such file") as caught:
        paths.existing_file(tmp_path / "resent50.onnx")
    assert "resnet50.onnx" in str(caught.value.hint)


def test_a_link_to_nothing_is_told(tmp_path):
    (tmp_path / "a.onnx").symlink_to("gone.onnx")
    with pytest.raises(UsageError, match=r"a\.onnx is a link to gone\.onnx, which is not there") as caught:
        paths.existing_file(tmp_path / "a.onnx")
    assert caught.value.hint is None


@pytest.mark.parametrize("name", ["squeezenet1_1", "squeezenet"])
def test_a_name_of_the_zoo_is_told_how_to_become_a_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"no such file: {name}") as caught:
        paths.existing_file(Path(name))
    assert "graphopt zoo build squeezenet1_1" in str(caught.value.hint)
    for other in ("squeezenet1_1.onnx", "qqqq"):
        with pytest.raises(UsageError) as caught:
            paths.existing_file(Path(other))
        assert caught.value.hint is None


def test_only_regular_files_are_read(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        paths.existing_file(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        paths.existing_file(tmp_path / "a" / "b.onnx")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        paths.existing_file(tmp_path / "pipe")


def test_the_input_is_never_the_output(tmp_path, monkeypatch):
    model = tmp_path / "net.onnx"
    model.touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "soft.onnx").symlink_to(model)
    (tmp_path / "hard.onnx").hardlink_to(model)
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "./sub/../net.onnx", "soft.onnx", "hard.onnx", "folder/net.onnx", model):
        with pytest.raises(UsageError, match="is the input"):
            writable(Path(name), reads={"the input": model}, writes={})
    with pytest.raises(UsageError, match="is the input"):
        writable(Path("net.onnx"), reads={"the input": Path("soft.onnx")}, writes={})


def test_a_report_never_takes_the_place_of_weights(cli, tmp_path):
    """The weights of a model that is a link lie beside the link."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1000], np.ones(1000, np.float32).tobytes(), raw=True)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:1], info[1:], [weight])
    folder, store = tmp_path / "folder", tmp_path / "store"
    folder.mkdir()
    store.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    (folder / "net.onnx").rename(store / "net")
    (folder / "net.onnx").symlink_to(store / "net")
    before = (folder / "net.data").read_bytes()
    done = cli("explain", folder / "net.onnx", "--json", folder / "net.data")
    assert done.code == 2 and "would overwrite weights" in done.err
    assert (folder / "net.data").read_bytes() == before


def test_outputs_are_different_files(tmp_path):
    with pytest.raises(UsageError, match="to hold the model as well"):
        writable(tmp_path / "a", reads={}, writes={"the model": tmp_path / "b" / ".." / "a"})


def test_there_must_be_a_place_to_write(tmp_path):
    assert writable(tmp_path / "new", reads={}, writes={}) == tmp_path / "new"
    with pytest.raises(UsageError, match="no such folder"):
        writable(tmp_path / "a" / "b", reads={}, writes={})
    with pytest.raises(UsageError, match="is a folder"):
        writable(tmp_path, reads={}, writes={})
    with pytest.raises(UsageError, match="stdout"):
        writable(Path("-"), reads={}, writes={})


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
def test_no_permission():
    with anyones_folder() as folder:
        folder.chmod(0o555)
        with permissions_apply(), pytest.raises(UsageError, match="no permission"):
            writable(folder / "out.onnx", reads={}, writes={})


LONG = "a" * 300 + ".onnx"


@pytest.mark.parametrize(
    "arguments",
    [
        ["optimize", LONG],
        ["optimize", "net.onnx", "--inputs", LONG],
        ["optimize", "net.onnx", "--rules", LONG],
        ["inspect", LONG],
        ["verify", "net.onnx", LONG],
        ["bench", LONG],
        ["rules", "check", LONG],
        ["rules", "list", "--rules", LONG],
        ["cost", "import", LONG],
        ["replay", LONG, "net.onnx"],
    ],
)
def test_too_long_a_name_is_wrong_usage(cli, model, arguments):
    outcome = cli(*arguments)
    assert outcome.code == 2 and "file name too long" in outcome.error_lines()[0]


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
@pytest.mark.parametrize("command", [["list", "--rules"], ["check"]])
def test_rules_are_looked_for_in_files_and_not_for_ever(process, tmp_path, command):
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "x.yaml")
    outcome = process("rules", *command, "pipes")
    assert outcome.code == 1 and "pipes/x.yaml: not a regular file" in outcome.err


@pytest.mark.parametrize("command", [["list", "--rules"], ["check"]])
def test_a_folder_of_everything_is_none_of_rules(cli, tmp_path, command, monkeypatch):
    monkeypatch.setattr("graphopt.rewrite.library._MOST", 10)
    for number in range(11):
        (tmp_path / f"{number}.txt").touch()
    outcome = cli("rules", *command, ".")
    assert outcome.code == 1
    assert outcome.error_lines() == [
        "error: .: more than 10 files and folders to look through for rules",
        "hint: name the folder in which the rules are",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "optimize net.onnx -o {}",
        "optimize net.onnx --report {}",
        "optimize net.onnx --trace {}",
        "optimize net.onnx --out-dir out --json {}",
        "bench net.onnx --csv {}",
        "bench net.onnx --html {}",
        "cost export {}",
        "cost calibrate net.onnx --svg {}",
        "inspect net.onnx --json {}",
        "replay net.onnx net.onnx -o {}",
    ],
)
@pytest.mark.parametrize("end", ["/", "/.", "/.."])
def test_what_ends_in_a_slash_is_no_file(cli, tmp_path, model, command, end):
    outcome = cli(*command.format(f"new{end}").split())
    assert outcome.code == 2 and f"new{end}"[:4] in outcome.error_lines()[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx"]


def test_what_ends_in_a_slash_is_no_file_in_python_either(model, tmp_path):
    import graphopt

    for given in ({"output": f"{tmp_path}/new/"}, {"trace": f"{tmp_path}/new/"}):
        with pytest.raises(UsageError, match="new/ is a folder, not a file"):
            graphopt.optimize(model, measure=False, **given)


@pytest.mark.skipif(os.name == "nt", reason="links of Unix")
def test_links_that_lead_to_themselves(cli, tmp_path, model):
    onnx.save(onnx.load(model), "ext.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    for name in ("w.bin", "out"):
        (tmp_path / name).symlink_to(name)
    assert "external data file 'w.bin'" in cli("inspect", "ext.onnx").error_lines()[0]
    assert cli("optimize", "net.onnx", "--out-dir", "out").error_lines()[-1] == "error: out is not a folder"
    assert "too many levels of symbolic links" in cli("optimize", "net.onnx", "-o", "out").error_lines()[0]
