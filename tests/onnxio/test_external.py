"""Weights in files of their own: read where they lie, written whole, refused when something is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, external_data_helper
from onnx.numpy_helper import from_array, to_array

import graphopt
import graphopt.onnxio.save as saving
from graphopt import files
from graphopt.cli import main as command
from graphopt.cli.paths import spare_weights
from graphopt.errors import GraphoptError, ModelError, UsageError
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.save import Staged, by_reference, save, to_proto
from tests.onnxio.models import (
    DROP_IDENTITY,
    INT,
    F,
    body,
    identical,
    library,
    model,
    node,
    normal,
    run,
    same,
    through,
    weight,
)

N = 64


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def matmul(w: TensorProto) -> ModelProto:
    nodes = [node("Identity", ["x"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    return model(nodes, [("x", F, [2, N])], [("y", F, [2, N])], [w])


def referring(location: str, offset: Any = None, length: Any = None, dims: tuple[int, ...] = (N, N)) -> TensorProto:
    tensor = TensorProto(name="w", data_type=F, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def stored(folder: Path, array: np.ndarray[Any, Any], lead: int = 0) -> Path:
    """A model beside its weight, which starts ``lead`` bytes into the data file."""
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(b"\0" * lead + array.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(matmul(referring("w.bin", lead or None, array.nbytes if lead else None)).SerializeToString())
    return path


def data_of(path: Path) -> str:
    """The name of the file with a model's weights."""
    (weight,) = onnx.load(path, load_external_data=False).graph.initializer
    return next(e.value for e in weight.external_data if e.key == "location")


@pytest.mark.parametrize("lead", [0, 100])
@pytest.mark.parametrize("external", [False, True])
def test_saved_elsewhere(tmp_path: Path, rng: np.random.Generator, lead: int, external: bool) -> None:
    w, x = normal(rng, N, N), normal(rng, 2, N)
    path = stored(tmp_path / "in", w, lead)
    out = tmp_path / "out"
    out.mkdir()
    for rules in (None, library(DROP_IDENTITY)):
        saved, loaded, _ = through(path, out, rules, external=external)
        assert loaded.external
        assert loaded.nbytes == pytest.approx(w.nbytes, rel=0.05)
        assert sorted(p.name for p in out.iterdir()) == ["out.onnx", *([data_of(saved)] if external else [])]
        onnx.checker.check_model(str(saved), full_check=True)
        same(run(saved, {"x": x}), [x @ w])
        assert load(saved).external is external


def test_saved_over_its_own_source(tmp_path: Path, rng: np.random.Generator) -> None:
    w, x = normal(rng, N, N), normal(rng, 2, N)
    path = stored(tmp_path, w)
    loaded = load(path)
    over(loaded, external=True)
    again = load(path)
    over(again, external=True)
    same(run(path, {"x": x}), [x @ w])
    over(again)
    same(run(path, {"x": x}), [x @ w])


def over(loaded: Model, *, external: bool = False) -> None:
    """Write a model in its own place, which :func:`save` refuses to do."""
    assert loaded.path is not None
    with Staged(emit(loaded, loaded.graph), loaded.path, external=external) as staged:
        staged.commit({})


def test_the_input_and_its_weights_are_never_overwritten(tmp_path: Path, rng: np.random.Generator) -> None:
    loaded = load(stored(tmp_path, normal(rng, N, N)))
    (tmp_path / "link").symlink_to("w.bin")
    (tmp_path / "hard.onnx").hardlink_to(tmp_path / "m.onnx")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, said in (
        ("m.onnx", "is the input"),
        ("hard.onnx", "is the input"),
        ("w.bin", "overwrite weights"),
        ("link", "weights"),
    ):
        with pytest.raises(UsageError, match=said):
            save(emit(loaded, loaded.graph), tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_weights_that_the_result_does_without_are_not_overwritten(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of weights only the shape is read: the result has nothing of that file any more."""
    nodes = [node("Shape", ["w"], ["s"]), node("Expand", ["one", "s"], ["e"]), node("MatMul", ["x", "e"], ["y"])]
    proto = model(
        nodes, [("x", F, [2, N])], [("y", F, [2, N])], [referring("w.bin"), from_array(np.ones(1, "f"), "one")]
    )
    path, trace = tmp_path / "m.onnx", tmp_path / "t.json"
    weights = stored(tmp_path, normal(rng, N, N)).with_name("w.bin")
    path.write_bytes(proto.SerializeToString())
    before = weights.read_bytes()
    result = graphopt.optimize(path, trace=trace, strategy="greedy", cost_model="analytic", measure=False)
    assert [*result.emitted.tensors] == ["e"]
    for overwrites in (
        lambda: save(result.emitted, weights),
        lambda: graphopt.replay(trace, path, output=weights),
        lambda: result.save(weights),
    ):
        with pytest.raises(UsageError, match="overwrite weights"):
            overwrites()
    assert weights.read_bytes() == before


def test_a_converted_model_is_not_overwritten_either(tmp_path: Path, rng: np.random.Generator) -> None:
    path = stored(tmp_path, normal(rng, N, N))
    proto = onnx.load(path, load_external_data=False)
    proto.ir_version, proto.opset_import[0].version = 3, 6
    proto.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("w", F, [N, N]))
    path.write_bytes(proto.SerializeToString())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    told = {"strategy": "none", "cost_model": "analytic", "measure": False, "upgrade": True}
    for dims in ({}, {"freeze_initializers": True}):
        with pytest.raises(UsageError, match="overwrite weights"):
            graphopt.optimize(path, output=tmp_path / "w.bin", **told, **dims)
        with pytest.raises(UsageError, match="overwrite weights"):
            graphopt.optimize(path, **told, **dims).save(tmp_path / "w.bin")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_copy_of_what_changes_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    source.write_bytes(b"old and long")

    def slowly(path: Path, pieces: Iterable[bytes]) -> None:
        def meanwhile() -> Iterator[bytes]:
            for piece in pieces:
                source.write_bytes(b"new and longer")
                yield piece

        files.write(path, meanwhile())

    monkeypatch.setattr(saving, "_CHUNK", 4)
    monkeypatch.setattr(saving, "write", slowly)
    with pytest.raises(ModelError, match="has changed"):
        saving.copy(source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_kept_input_is_not_written_where_its_weights_are_not_found(tmp_path: Path, rng: np.random.Generator) -> None:
    """A link in another folder that leads beside the input: the runtime looks for weights beside the link, and in no other folder."""
    path, link = stored(tmp_path / "in", normal(rng, N, N)), tmp_path / "out.onnx"
    link.symlink_to(path.with_name("kept.onnx"))
    proto = model([node("MatMul", ["x", "w"], ["y"])], [("x", F, [2, N])], [("y", F, [2, N])], [referring("w.bin")])
    path.write_bytes(proto.SerializeToString())
    result = graphopt.optimize(path, strategy="none", cost_model="analytic", measure=False)
    assert result.report["kept_original"]
    with pytest.raises(GraphoptError, match="link to another folder"):
        result.save(link)
    assert not link.exists()


def test_the_input_is_known_from_another_folder_too(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "in", normal(rng, N, N))
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    result = graphopt.optimize("in/m.onnx", strategy="none", cost_model="analytic", measure=False)
    monkeypatch.chdir(path.parent)
    for write in (result.save, result.write_page):
        with pytest.raises(UsageError, match="is the input"):
            write("m.onnx")
    assert path.read_bytes() == before


def replaced(path: Path, content: bytes) -> None:
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)


def rewritten(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    os.utime(
        path, ns=(before.st_atime_ns, before.st_mtime_ns + 1)
    )  # the clock of a file system may stand still meanwhile


@pytest.mark.parametrize("change", [replaced, rewritten])
@pytest.mark.parametrize("external", [False, True])
def test_weights_are_not_taken_from_a_file_that_has_changed(
    tmp_path: Path, rng: np.random.Generator, change: Callable[[Path, bytes], None], external: bool
) -> None:
    w = normal(rng, N, N)
    path = stored(tmp_path, w) if external else tmp_path / "m.onnx"
    if not external:
        path.write_bytes(matmul(from_array(w, "w")).SerializeToString())
    loaded = load(path)
    emitted, file = emit(loaded, loaded.graph), tmp_path / "w.bin" if external else path
    assert to_proto(emitted).graph.initializer[0].raw_data == w.tobytes()
    change(file, file.read_bytes()[::-1])
    for use in (to_proto, by_reference, lambda e: save(e, tmp_path / "out.onnx")):
        with pytest.raises(ModelError, match=f"{file.name} has changed since it was read"):
            use(emitted)
    file.unlink()
    with pytest.raises(ModelError, match=f"{file.name} can't be read any more: no such file"):
        save(emitted, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_weights_that_lie_there_already_stay(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whoever has read them can go on: the same weights are no other file."""
    w, x = normal(rng, N, N), normal(rng, 2, N)
    loaded = load(stored(tmp_path / "in", w))
    save(emit(loaded, loaded.graph), tmp_path / "out.onnx", external=True)
    reader = load(tmp_path / "out.onnx")
    save(emit(loaded, loaded.graph), tmp_path / "out.onnx", external=True)
    save(emit(reader, reader.graph), tmp_path / "again.onnx")
    same(run(tmp_path / "again.onnx", {"x": x}), [x @ w])
    data = tmp_path / data_of(tmp_path / "out.onnx")
    data.write_bytes(b"?" * w.nbytes)
    save(emit(loaded, loaded.graph), tmp_path / "out.onnx", external=True)
    other = tmp_path / data_of(tmp_path / "out.onnx")  # by another name, for the old one has other content by now
    assert other.read_bytes() == w.tobytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.onnx", "in", "out.onnx", other.name]


def test_the_two_halves_make_one_protobuf(tmp_path: Path, rng: np.random.Generator) -> None:
    w = normal(rng, N, N)
    loaded = load(stored(tmp_path, w))
    whole = to_proto(emit(loaded, loaded.graph))
    assert identical(whole, matmul(from_array(w, "w")))


def test_location_stated_in_so_many_words(tmp_path: Path, rng: np.random.Generator) -> None:
    # onnx.load_external_data_for_model leaves `data_location: DEFAULT` behind, which stands after the bytes.
    w = from_array(normal(rng, N, N), "w")
    w.data_location = TensorProto.DEFAULT
    proto = matmul(w)
    saved, loaded, _ = through(proto, tmp_path, simplified=False)
    assert identical(onnx.load(saved), proto)
    assert identical(to_proto(emit(loaded, loaded.graph)), proto)


def test_too_large_for_one_file(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real limit is 2 GB; whoever asks for one file gets two.
    monkeypatch.setattr("graphopt.onnxio.save.LARGEST_PROTOBUF", N * N * 4)
    w, x = normal(rng, N, N), normal(rng, 2, N)
    saved, _, _ = through(matmul(from_array(w, "w")), tmp_path)
    assert (tmp_path / data_of(saved)).stat().st_size == w.nbytes
    same(run(saved, {"x": x}), [x @ w])


def test_converted_by_onnx_and_back(tmp_path: Path, rng: np.random.Generator) -> None:
    proto = matmul(from_array(normal(rng, N, N), "w"))
    onnx.save_model(proto, str(tmp_path / "ext.onnx"), save_as_external_data=True, location="ext.data")
    inlined = onnx.load(tmp_path / "ext.onnx")
    saved, _, _ = through(inlined, tmp_path, simplified=False)
    assert identical(onnx.load(saved), inlined)
    via_file, _, _ = through(tmp_path / "ext.onnx", tmp_path, simplified=False)
    same([to_array(onnx.load(via_file).graph.initializer[0])], [to_array(inlined.graph.initializer[0])], 0, 0)


@pytest.mark.parametrize(
    ("location", "offset", "length", "message"),
    [
        ("missing.bin", None, None, "'missing.bin' of initializer 'w' is missing"),
        ("", None, None, "is missing"),
        (".", None, None, "is missing"),
        ("w.bin", 100, None, "'w.bin' is too short for initializer 'w'"),
        ("w.bin", -4, None, "too short"),
        ("w.bin", 0, 100, "has 100 bytes, its type says 16384"),
        ("w.bin", "x", None, "must be numbers"),
        ("w.bin", 0, "y", "must be numbers"),
        ("../secret.bin", None, None, "outside the model's folder"),
        ("link.bin", None, None, "outside the model's folder"),
        ("{root}/secret.bin", None, None, "outside the model's folder"),
        ("/etc/passwd", None, None, "outside the model's folder"),
    ],
)
def test_refused(
    tmp_path: Path, rng: np.random.Generator, location: str, offset: Any, length: Any, message: str
) -> None:
    path = stored(tmp_path / "in", normal(rng, N, N))
    (tmp_path / "secret.bin").write_bytes(bytes(N * N * 4))
    (tmp_path / "in" / "link.bin").symlink_to(tmp_path / "secret.bin")
    path.write_bytes(matmul(referring(location.format(root=tmp_path), offset, length)).SerializeToString())
    with pytest.raises(ModelError, match=message):
        load(path)


def test_texts_lie_in_no_file(tmp_path: Path) -> None:
    texts = referring("w.bin", dims=(1,))
    texts.data_type = TensorProto.STRING
    (tmp_path / "w.bin").write_bytes(b"text")
    (tmp_path / "m.onnx").write_bytes(matmul(texts).SerializeToString())
    with pytest.raises(ModelError, match="texts in a file of its own"):
        load(tmp_path / "m.onnx")


def test_truncated_data_file(tmp_path: Path, rng: np.random.Generator) -> None:
    path = stored(tmp_path, normal(rng, N, N))
    os.truncate(tmp_path / "w.bin", N * N * 4 - 1)
    with pytest.raises(ModelError, match=r"m\.onnx: external data file 'w.bin' is too short"):
        load(path)


def test_a_protobuf_does_not_know_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="file of its own") as caught:
        load(matmul(referring("w.bin")))
    assert caught.value.hint == "load the model from its path"


def test_model_and_data_behind_links(tmp_path: Path, rng: np.random.Generator) -> None:
    # The folder itself may be a link, and so may the model file, as in a download cache.
    w, x = normal(rng, N, N), normal(rng, 2, N)
    stored(tmp_path / "in", w)
    (tmp_path / "linked").symlink_to(tmp_path / "in")
    saved, _, _ = through(tmp_path / "linked" / "m.onnx", tmp_path)
    same(run(saved, {"x": x}), [x @ w])
    (tmp_path / "inline.onnx").write_bytes(matmul(from_array(w, "w")).SerializeToString())
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "m.onnx").symlink_to(tmp_path / "inline.onnx")
    saved, _, _ = through(tmp_path / "links" / "m.onnx", tmp_path)
    same(run(saved, {"x": x}), [x @ w])


@pytest.fixture
def snapshot(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model in the cache of Hugging Face: it and its weight are links to files named by their content, in another folder."""
    (blobs := tmp_path / "blobs").mkdir()
    (folder := tmp_path / "snapshots/1/onnx").mkdir(parents=True)
    for name, file in (("m.onnx", stored(tmp_path / "in", normal(rng, N, N))), ("w.bin", tmp_path / "in/w.bin")):
        file.rename(blobs / f"of-{name}")
        (folder / name).symlink_to(f"../../../blobs/of-{name}")
    return folder / "m.onnx"


def test_a_snapshot_of_links(tmp_path: Path, rng: np.random.Generator, snapshot: Path) -> None:
    x = normal(rng, 2, N)
    for rules in (None, library(DROP_IDENTITY)):
        saved, _, _ = through(snapshot, tmp_path, rules, external=True)
        same(run(saved, {"x": x}), run(snapshot, {"x": x}))
    with pytest.raises(UsageError, match="would overwrite weights of the input"):
        spare_weights(snapshot, [tmp_path / "blobs/of-w.bin"])


def test_a_link_from_beside_the_model_to_elsewhere_is_none_of_a_snapshot(tmp_path: Path, snapshot: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "blobs/of-w.bin").rename(tmp_path / "secret/w.bin")
    snapshot.with_name("w.bin").unlink()
    snapshot.with_name("w.bin").symlink_to(tmp_path / "secret/w.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(snapshot)


def test_external_data_in_bodies_and_attributes(tmp_path: Path, rng: np.random.Generator) -> None:
    w, v, x = normal(rng, N, N), normal(rng, N), normal(rng, 2, N)
    then = body([node("MatMul", ["x", "w"], ["t"])], [("t", F, [2, N])], weights=[from_array(w, "w")])
    other = body([node("Identity", ["x"], ["e"])], [("e", F, [2, N])])
    proto = model(
        [
            node("Constant", [], ["v"], value=from_array(v)),
            node("If", ["c"], ["z"], then_branch=then, else_branch=other),
            node("Add", ["z", "v"], ["y"]),
        ],
        [("x", F, [2, N]), ("c", TensorProto.BOOL, [])],
        [("y", F, [2, N])],
    )
    (tmp_path / "in").mkdir()
    onnx.save_model(
        proto,
        str(tmp_path / "in" / "m.onnx"),
        save_as_external_data=True,
        location="d.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    stripped = onnx.load(tmp_path / "in" / "m.onnx", load_external_data=False)
    assert any(
        external_data_helper.uses_external_data(a.t)
        for n in stripped.graph.node
        for a in n.attribute
        if a.HasField("t")
    )
    out = tmp_path / "out"
    out.mkdir()
    saved, _, _ = through(tmp_path / "in" / "m.onnx", out)
    assert [path.name for path in out.iterdir()] == [saved.name]
    for flag in (True, False):
        feeds = {"x": x, "c": np.array(flag)}
        same(run(saved, feeds), [(x @ w if flag else x) + v])


@pytest.fixture
def branching(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model of which a body alone keeps weights in a file of their own."""
    then = body([node("MatMul", ["x", "w"], ["t"])], [("t", F, [2, N])], weights=[from_array(normal(rng, N, N), "w")])
    other = body([node("Identity", ["x"], ["e"])], [("e", F, [2, N])])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [("x", F, [2, N]), ("c", TensorProto.BOOL, [])],
        [("y", F, [2, N])],
    )
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="d.bin", size_threshold=0)
    return tmp_path / "m.onnx"


def test_a_kept_model_takes_the_weights_of_its_bodies_along(branching: Path) -> None:
    """It was copied without them."""
    out = branching.parent / "out"
    out.mkdir()
    settings = {"strategy": "none", "measure": False}
    result = graphopt.optimize(branching, output=out / "m.onnx", trace=out / "t.json", **settings)
    assert result.report["kept_original"] and graphopt.verify(branching, out / "m.onnx").passed
    graphopt.replay(out / "t.json", branching, output=out / "n.onnx")
    assert graphopt.verify(branching, out / "n.onnx").passed
    (done,) = graphopt.optimize_many([branching], out / "many", graphopt.Settings(**settings))
    assert done.status == "kept" and graphopt.verify(branching, out / "many" / "m.onnx").passed


def test_the_weights_of_bodies_are_never_overwritten(branching: Path) -> None:
    weights = branching.with_name("d.bin")
    before = weights.read_bytes()
    loaded = load(branching)
    with pytest.raises(UsageError, match="overwrite weights"):
        save(emit(loaded, loaded.graph), weights)
    with pytest.raises(UsageError, match="overwrite weights"):
        graphopt.optimize(branching, output=weights, strategy="none", measure=False)
    assert command.run(["optimize", str(branching), "-o", str(weights), "--strategy", "none", "--no-measure"]) == 2
    assert weights.read_bytes() == before


@pytest.mark.slow
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    """A sparse file stands in for 3 GB of zeros: loading, rewriting and saving must not read them into memory."""
    rows = 3 * (1 << 30) // 4 // 4096
    gather = [node("Identity", ["i"], ["j"]), node("Gather", ["w", "j"], ["y"])]
    proto = model(
        gather, [("i", INT, [2])], [("y", F, [2, 4096])], [referring("w.bin", dims=(rows, 4096)), weight("b", [1.0])]
    )
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(rows * 4096 * 4)
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from graphopt.ir.simplify import simplify
        from graphopt.onnxio.emit import emit
        from graphopt.onnxio.load import load
        from tests.onnxio.models import DROP_IDENTITY, library, rewritten
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = load(Path(sys.argv[1]))
        graph, steps = rewritten(simplify(model.graph), library(DROP_IDENTITY))
        emitted = emit(model, graph, max_bytes=model.nbytes)
        assert steps == 1 and emitted.nbytes > 2**31, emitted.nbytes
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200


def test_weights_of_another_model_are_not_written_again(tmp_path: Path, rng: np.random.Generator) -> None:
    w, x = normal(rng, N, N), normal(rng, 2, N)
    first, second = (load(stored(tmp_path / name, w)) for name in ("one", "two"))
    out = tmp_path / "out"
    out.mkdir()
    save(emit(first, first.graph), out / "a.onnx", external=True)
    (out / "broken.onnx").write_bytes(b"?")  # has nothing to share
    with Staged(
        emit(second, second.graph), out / "b.onnx", external=True, sharing=[out / "a.onnx", out / "broken.onnx"]
    ) as staged:
        staged.commit({})
    assert data_of(out / "b.onnx") == data_of(out / "a.onnx")
    assert sum(path.suffix == ".data" for path in out.iterdir()) == 1
    # The first is written with other weights: those that the second needs stay.
    other = load(stored(tmp_path / "three", w + 1))
    save(emit(other, other.graph), out / "a.onnx", external=True)
    np.testing.assert_array_equal(run(load(out / "b.onnx").path, {"x": x})[0], run(second.path, {"x": x})[0])
    # Weights that differ in one element are others.
    w[-1, -1] += 1
    third = load(stored(tmp_path / "four", w))
    with Staged(emit(third, third.graph), out / "c.onnx", external=True, sharing=[out / "b.onnx"]) as staged:
        staged.commit({})
    assert data_of(out / "c.onnx").startswith("c.onnx.")


def test_weights_of_other_models_are_not_read(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a model of gigabytes, a small one took gigabytes: they were searched for the name of a file."""
    looked, names = list[str](), saving._names
    monkeypatch.setattr(saving, "_names", lambda file, text: looked.append(file.name) or names(file, text))
    (tmp_path / "config.json").write_text("{}")
    for step in range(2):
        for name in ("a", "b"):
            given = load(stored(tmp_path / f"{name}{step}", normal(rng, N, N)))
            save(emit(given, given.graph), tmp_path / f"{name}.onnx", external=True)
    assert set(looked) == {"a.onnx", "b.onnx", "config.json"}
    assert sum(path.suffix == ".data" for path in tmp_path.iterdir() if path.name.startswith(("a.", "b."))) == 2


def test_weights_of_one_file_take_one_descriptor(tmp_path: Path) -> None:
    """Each mapping holds one: a model of a thousand weights could not be opened under the usual limit."""
    weights = [weight(f"w{i}", np.full(300, i, np.float32)) for i in range(80)]
    nodes = [node("Add", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(80)]
    onnx.save(model(nodes, [("x", F, [300])], [("h80", F, [300])], weights), tmp_path / "m.onnx")
    code = f"""
        import resource
        from graphopt.onnxio.load import load
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
        model = load({str(tmp_path / "m.onnx")!r})
        print(sum(value.tensor.data.numpy()[0] for value in model.graph.values.values() if value.tensor is not None))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.split() == [str(float(sum(range(80))))], done.stderr
