"""Hostile models, files of inputs and stores of prices."""

from __future__ import annotations

import random
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, parser

from graphopt.config import STORE
from graphopt.cost.store import Store
from tests import hazards
from tests.cli.conftest import conv_net
from tests.hostile.texts import Build, Case, model_in


def _saved(proto: ModelProto | bytes, *command: str) -> Build:
    """A command with a model, which ``FILE`` stands for."""

    def build(folder: Path) -> list[str]:
        path = folder / "bad.onnx"
        path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
        return [str(path) if word == "FILE" else word for word in command or ("inspect", "FILE")]

    return build


def _deep(levels: int) -> ModelProto:
    """Bodies inside bodies."""
    inside = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["t"])],
        "b",
        [],
        [helper.make_tensor_value_info("t", TensorProto.BOOL, [])],
    )
    for _ in range(levels):
        inside = helper.make_graph(
            [helper.make_node("If", ["c"], ["t"], then_branch=inside, else_branch=inside)] if levels < 8 else
            [helper.make_node("If", ["c"], ["t"], then_branch=inside)],
            "b", [], [helper.make_tensor_value_info("t", TensorProto.BOOL, [])],
        )  # fmt: skip
    graph = helper.make_graph(
        list(inside.node), "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("t", TensorProto.BOOL, [])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _chain(nodes: int) -> ModelProto:
    """Many nodes in a row."""
    made = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(nodes)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "g", [info("v0", TensorProto.FLOAT, [2])], [info(f"v{nodes}", TensorProto.FLOAT, [2])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _plain(operands: int, **weight: Any) -> ModelProto:
    """A Concat of so many operands, the last of which is a weight."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x"] * (operands - 1) + ["w"], ["y"], axis=0)], "g",
        [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, None)],
        [TensorProto(name="w", data_type=TensorProto.FLOAT, **weight)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def deadly() -> Iterator[Case]:
    """Models of a node that ONNX's inference does not survive, or never comes back from."""
    nodes = {
        "a Split of two parts and three outputs": "p, q, r = Split <axis = 1, num_outputs = 2> (x) y = Concat <axis = 1> (p, q, r)",
        "a norm along axis 2 ** 31": "y = LayerNormalization <axis = 2147483648> (x, w)",
        "an equation that is no ASCII": 'y = Einsum <equation = "\u00ff"> (x)',
        "indices of negative length": "y = GatherND (x, i)",
        "less than no batch": "y = GatherND <batch_dims = -2> (x, i)",
    }
    for what, text in nodes.items():
        proto = parser.parse_model(
            '<ir_version: 8, opset_import: ["": 18]> g (float[3, 6] x, float[6] w, int64[2, 1] i) => (float[a, b] y) '
            f"{{ {text} }}"
        )
        if "negative" in what:
            proto.graph.input[2].type.tensor_type.shape.dim[1].dim_value = -1
        yield Case(f"model: {what}", _saved(proto, "optimize", "FILE", "--no-measure"))


def heavy() -> Iterator[Case]:
    """Models that are large in one respect, or ask for what there is not."""
    eight = {"dims": [2], "raw_data": bytes(8)}
    yield Case("model: a Concat of 100,000 operands, optimised", _saved(_plain(100_000, **eight), "optimize", "FILE", "--no-measure"))  # fmt: skip
    yield Case("model: a weight of rank 5,000", _saved(_plain(2, dims=[1] * 4999 + [2], raw_data=bytes(8))))
    yield Case("model: a weight of 2 ** 60 elements", _saved(_plain(2, dims=[2**60], raw_data=bytes(8))))
    yield Case("model: a weight of negative size", _saved(_plain(2, dims=[-2], raw_data=bytes(8))))
    yield Case("model: a weight of an unknown type", _saved(_plain(2, **eight).SerializeToString().replace(b"\x10\x01", b"\x10\x7f")))  # fmt: skip
    for name, location in {"a zero byte": "a\0b", "a device": "/dev/zero", "a folder above": "../../../../etc/passwd", "nothing": "no.bin"}.items():  # fmt: skip
        model = _plain(2, dims=[2], data_location=TensorProto.EXTERNAL)
        model.graph.initializer[0].external_data.add(key="location", value=location)
        yield Case(f"model: weights in {name}", _saved(model))
    wide = _plain(2, **eight)
    for size in (2**30, 2**30):
        wide.graph.input[0].type.tensor_type.shape.dim.add(dim_value=size)
    yield Case("model: an input of 2 ** 61 elements", _saved(wide))
    scan = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 25]> g (float[2] s, float[2, 0] x) => (float[2] t, float[a, b] y) { t, y = Scan '
        "<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = b (float[2] p, float[2] q) => "
        "(float[2] r, float[2] z) { r = Add (p, q) z = Relu (q) }> (s, x) }"
    )
    yield Case("model: a Scan of no steps along its second axis", _saved(scan, "optimize", "FILE"))
    yield Case("model: all memory asked for", _saved(hazards.greedy(4000), "optimize", "FILE"))
    yield Case("verify: all memory asked for", _saved(hazards.greedy(4000), "verify", "FILE", "FILE"))


def models() -> Iterator[Case]:
    """Model files."""
    sound = conv_net().SerializeToString()
    for seed in range(6):
        noise = random.Random(seed)
        mangled = bytearray(sound)
        for _ in range(4):
            mangled[noise.randrange(len(mangled))] = noise.randrange(256)
        yield Case(f"model: four bytes changed, {seed}", _saved(bytes(mangled)))
    for name, content in {
        "nothing": b"", "text": b"no model\n" * 1000, "zero bytes": bytes(100_000), "a cut-off half": sound[: len(sound) // 2],
        "random": random.Random(0).randbytes(100_000), "a zip": b"PK\x03\x04" + bytes(1000), "lengths that lie": b"\x3a\xff\xff\xff\xff\x0f" + bytes(100),
    }.items():  # fmt: skip
        yield Case(f"model: {name}", _saved(content))
    bytes_in_key, bytes_in_doc, in_name = conv_net(), conv_net(), conv_net()
    bytes_in_key.metadata_props.add(key="graphopt.XXXX", value="YYYY")
    bytes_in_doc.graph.node[0].doc_string = "XXXX"
    in_name.graph.node[0].name = "\x1b[2J\x1b]0;owned\x07"
    yield Case("model: metadata that is not UTF-8", _saved(bytes_in_key.SerializeToString().replace(b"XXXX", b"\xff\xfe\xff\xfe"), "explain", "FILE"))  # fmt: skip
    yield Case("model: values of metadata that are not UTF-8", _saved(bytes_in_key.SerializeToString().replace(b"YYYY", b"\xff\xfe\xff\xfe"), "explain", "FILE"))  # fmt: skip
    yield Case("model: a remark that is not UTF-8", _saved(bytes_in_doc.SerializeToString().replace(b"XXXX", b"\xff\xfe\xff\xfe"), "explain", "FILE"))  # fmt: skip
    latency = conv_net()
    for key, value in {
        "graphopt.latency": '{"ci95": 5}',
        "graphopt.environment": "[" * 50_000,
        "graphopt.version": "\x1b[2J",
    }.items():
        latency.metadata_props.add(key=key, value=value)
    yield Case("model: metadata that lies", _saved(latency, "explain", "FILE"))
    latency = conv_net()
    latency.metadata_props.add(
        key="graphopt.latency", value='{"ci95": ["a", "b"], "baseline_ms": [], "optimized_ms": {}, "speedup": "x"}'
    )
    yield Case("model: a latency of text", _saved(latency, "explain", "FILE"))
    yield Case("model: escapes in a name", _saved(in_name))
    yield Case("model: escapes in a name, explained", _saved(in_name, "explain", "FILE"))
    yield Case("model: bodies in bodies, 6 deep", _saved(_deep(6)))
    yield Case("model: bodies in bodies, 30 deep", _saved(_deep(30)))
    yield Case("model: 20,000 nodes in a row", _saved(_chain(20_000)))
    loop = conv_net()
    loop.graph.node[0].input[0] = "y"
    yield Case("model: a circle", _saved(loop))
    twice = conv_net()
    twice.graph.node.append(twice.graph.node[0])
    yield Case("model: a value made twice", _saved(twice))
    huge = conv_net()
    huge.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -5
    yield Case("model: a negative dimension", _saved(huge))
    none = conv_net()
    del none.graph.output[:]
    yield Case("model: no output", _saved(none))
    opset = conv_net()
    opset.opset_import[0].version = 2**40
    yield Case("model: an opset of 2 ** 40", _saved(opset))
    unknown = conv_net()
    unknown.graph.node[0].op_type = "Nothing"
    yield Case("model: an unknown operator", _saved(unknown))


def inputs() -> Iterator[Case]:
    """Files for ``--inputs``."""

    def npz(write: object) -> Build:
        def build(folder: Path) -> list[str]:
            path = folder / "in.npz"
            write(path)  # type: ignore[operator]
            return ["verify", model_in(folder), model_in(folder), "--inputs", str(path)]

        return build

    def zipped(**entries: bytes) -> object:
        def write(path: Path) -> None:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in entries.items():
                    archive.writestr(f"{name}.npy", content)

        return write

    def head(shape: str) -> bytes:
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        text += " " * (-(len(text) + 11) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()

    cases = {
        "nothing": lambda p: p.write_bytes(b""), "text": lambda p: p.write_text("text"), "an empty archive": zipped(),
        "no array": zipped(x=b"none"), "a shape of 10 ** 12": zipped(x=head("(1000000, 1000000)")), "a negative shape": zipped(x=head("(-1, 4)")),
        "a shape of brackets": zipped(x=head("(" * 200)), "a bomb of zeros": zipped(x=head("(750000000,)") + bytes(100_000_000)),
        "pickles": lambda p: np.savez(p, x=np.array([{}], dtype=object)), "a wrong dtype": lambda p: np.savez(p, x=np.zeros((1, 4, 12, 12))),
        "a wrong shape": lambda p: np.savez(p, x=np.zeros((1, 4), np.float32)), "another name": lambda p: np.savez(p, z=np.zeros(1)),
        "escapes in a name": lambda p: np.savez(p, **{"\x1b[2J": np.zeros(1)}), "text arrays": lambda p: np.savez(p, x=np.array(["a"])),
        "an encrypted flag": lambda p: p.write_bytes(b"PK\x03\x04\x14\x00\x01" + bytes(200)),
    }  # fmt: skip
    for name, write in cases.items():
        yield Case(f"inputs: {name}", npz(write))


def _store(write: object) -> Build:
    """The user's store of prices, made by `write`; ``cache`` in the folder is where graphopt looks for it."""

    def build(folder: Path) -> list[str]:
        path = folder / "cache" / STORE
        path.parent.mkdir()
        with Store(path) as store:
            store.count_uses({"some-rule": 1})
        write(path)  # type: ignore[operator]
        return ["rules", "list"]

    return build


def stores() -> Iterator[Case]:
    """Stores of prices."""

    def other(path: Path) -> None:
        path.unlink()
        with sqlite3.connect(path) as db:
            db.execute("create table kernels (a blob, b blob)")

    def changed(*statements: str) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with sqlite3.connect(path) as db:
                for statement in statements:
                    db.execute(statement)

        return write

    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    for name, write in {
        "a view without end": changed("DROP TABLE uses", f"CREATE VIEW uses AS {numbers} SELECT 'r' AS rule, x AS times FROM n"),
        "a trigger": changed("CREATE TRIGGER t AFTER INSERT ON uses BEGIN DELETE FROM uses; END"),
        "text for numbers": changed("INSERT INTO uses VALUES ('other', 'many')"),
        "a number too large": changed("UPDATE uses SET times = 9e999"),
        "text": lambda p: p.write_text("text " * 1000), "nothing": lambda p: p.write_bytes(b""), "random": lambda p: p.write_bytes(random.Random(0).randbytes(20_000)),
        "half": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]), "other tables": other,
    }.items():  # fmt: skip
        yield Case(f"store: {name}", _store(write))
