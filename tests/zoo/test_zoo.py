"""The zoo: its names are complete and cheap to read, and what it builds is valid, runnable, repeatable, not trivial."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from graphopt import optimize
from graphopt.errors import GraphoptError, MissingExtraError, UnknownNameError, UsageError
from graphopt.zoo import Exporter, build, cache_dir, describe, example_inputs, export, file_name, names
from tests.share import part, share

EXPECTED = {
    "squeezenet1_1",
    "resnet18",
    "resnet34",
    "resnet50",
    "wide_resnet50_2",
    "resnext50",
    "vgg16",
    "unet",
    "super_resolution",
    "inception_v3",
    "regnet_y_400mf",
    "shufflenet_v2",
    "shufflenet_v2_x0_5",
    "swin_v2_t",
    "levit_128s",
    "mobilebert",
    "clip_small",
    "mobilenet_v3",
    "efficientnet_b0",
    "densenet121",
    "convnext_tiny",
    "swin_t",
    "vit_b_16",
    "bert_base",
    "gpt2",
    "gpt2_decode",
    "llama_small",
    "t5_encoder",
    "llama_decode",
    "minilm",
    "clip_text",
    "whisper_encoder",
    "whisper_decode",
    "segformer_b0",
    "detr",
    "csp_darknet53",
    "mobilefacenet",
    "dcgan",
    "pix2pix",
    "cyclegan",
    "yolo",
    "ssdlite",
    "diffusion_unet",
    "tcn",
    "googlenet",
    "ds_cnn",
    "encodec",
    "resnet50_qdq",
    "bert_base_int8",
    "whisper_encoder_f16",
    "lstm",
    "nasrnn",
    "nasnet_a",
    "demo_regnet",
    "tiny_regnet",
    "tiny_resnext",
    "tiny_convnext",
    "tiny_swin",
    "tiny_bert",
    "tiny_llama",
    "tiny_diffusion",
}
TINY = [name for name in names() if describe(name).family == "tiny"]
EXPORTERS = get_args(Exporter)
DEMO = Path(__file__).parents[2] / "models" / "demo_regnet.onnx"

# Small enough for a test, and of the families that have no tiny entry.
SMALL = [
    "gpt2@heads=4,hidden=64,layers=2,seq=16,vocab=100",
    "gpt2_decode@heads=4,hidden=64,layers=2,past=15,vocab=100",
    "llama_decode@heads=4,hidden=64,intermediate=96,kv_heads=2,layers=2,past=15,vocab=100",
    "clip_text@heads=4,hidden=64,intermediate=96,layers=2,seq=16,vocab=100",
    "whisper_encoder@frames=40,heads=4,hidden=64,layers=2,mels=8",
    "whisper_decode@heads=4,hidden=64,layers=2,mels=8,past=15,source=20,vocab=100",
    "segformer_b0@classes=5,embed=8,size=64",
    "detr@classes=5,depth=1,heads=4,hidden=32,layers=1,queries=7,size=64",
    "t5_encoder@head_dim=16,heads=4,hidden=64,layers=2,seq=16,vocab=100",
    "nasrnn@hidden=32,steps=3",
    "nasrnn@hidden=32,shared=0,steps=3",
    "nasnet_a@cells=1,filters=8,size=64",
    "unet@depth=2,size=32,width=8",
    "super_resolution@blocks=1,size=16,width=8",
    "vit_b_16@heads=4,hidden=64,intermediate=64,layers=2,size=32",
    "vit_b_16@classes=10,heads=2,hidden=32,intermediate=32,layers=1,size=384",
    "bert_base@heads=2,hidden=32,intermediate=32,layers=1,seq=512,vocab=100",
    "csp_darknet53@d1=1,d2=1,d3=1,d4=1,d5=1,size=64,width=8",
    "mobilefacenet@embedding=8,width=8",
    "dcgan@noise=10,width=8",
    "pix2pix@depth=5,size=32,width=8",
    "cyclegan@blocks=1,size=32,width=8",
    "yolo@classes=3,size=64,width=8",
    "ssdlite@classes=5",
    "tcn@classes=16,layers=3,seq=48,skip=16,stacks=2,width=16",
    "googlenet@classes=5,size=64,width=2",
    "ds_cnn@classes=5,depth=1,mels=8,rate=2000,width=8",
    "encodec@seq=1280,states=8,width=4",
    "lstm@classes=5,embed=16,hidden=32,seq=12,vocab=100",
]

# The same of reduced types, with operators that only they have.
REDUCED = {
    "resnet50_qdq@classes=10,d1=1,d2=1,d3=0,d4=0,size=64,width=16": {"QuantizeLinear", "DequantizeLinear", "Conv"},
    "bert_base_int8@heads=2,hidden=32,intermediate=64,layers=1,seq=16,vocab=100": {
        "DynamicQuantizeLinear",
        "MatMulInteger",
    },
    "whisper_encoder_f16@frames=40,heads=4,hidden=64,layers=2,mels=8": {"Cast", "MatMul"},
}

# Exports by torch's newer exporter take seconds: of the small models that have no tiny entry a third is made, but for the dearest.
DEAR = {
    "nasnet_a@cells=1,filters=8,size=64",
    "ssdlite@classes=5",
    *(name for number, name in enumerate(SMALL) if (number + share()) % 3),
}
DEAR_TWICE = {"tiny_swin", "tiny_diffusion", "tiny_llama", "tiny_regnet"}
DEAR_OPEN = {"tiny_diffusion@batch=0", "yolo@batch=0,classes=3,size=64,width=8"}


def exports(given: Iterable[str], dear: Collection[str]) -> list[Any]:
    """Each name with each exporter: a half of the names, those that are dear to export as `thorough` as the other half."""
    return [
        pytest.param(
            each.id, exporter, marks=pytest.mark.thorough if exporter == "dynamo" and each.id in dear else each.marks
        )
        for each in part(given, 2, str)
        for exporter in EXPORTERS
    ]


needs_zoo = pytest.mark.skipif(
    any(importlib.util.find_spec(module) is None for module in ("torch", "torchvision", "transformers", "onnxscript")),
    reason="needs the zoo extra",
)


@pytest.fixture(scope="module", autouse=True)
def _operators_are_read_once() -> Iterator[None]:
    """For each model torch's newer exporter reads the sources of its 500 operators anew: a third of a second."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError, AttributeError):  # none of it is for others to use
            apis = importlib.import_module("torch.onnx._internal._lazy_import").onnxscript_apis
            patch.setattr(apis, "get_torchlib_ops", cache(apis.get_torchlib_ops))
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Exporter], Path]:
    """Builds each model once for the whole module, and for all workers where there are several."""
    own = tmp_path_factory.getbasetemp()
    folder = own.parent / "zoo" if "PYTEST_XDIST_WORKER" in os.environ else own / "zoo"
    return lambda name, exporter: build(name, exporter, folder)


def run(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# The registry


def test_every_promised_model_is_listed() -> None:
    assert set(names()) == EXPECTED
    assert len(names()) == len(set(names()))


def test_listing_and_describing_import_no_model_library() -> None:
    heavy = "{'torch', 'torchvision', 'transformers', 'onnx', 'onnxruntime', 'onnxscript', 'onnx_ir'}"
    code = (
        "import sys, graphopt.zoo as z, graphopt.zoo.table as r\n"
        "[r.describe(n).input_specs() for n in z.names()]; r.example_inputs('tiny_bert'); z.file_name('gpt2')\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize("name", names())
def test_entries_describe_themselves(name: str) -> None:
    model = describe(name)
    assert model.name == name
    assert model.doc
    assert "\n" not in model.doc
    assert model.family in {"cnn", "transformer", "recurrent", "search", "tiny", "demo"}
    assert len({spec.name for spec in model.input_specs()}) == len(model.input_specs())
    feeds = example_inputs(name)
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.input_specs()] == [
        (key, value.shape, value.dtype.name) for key, value in feeds.items()
    ]


@needs_zoo
@pytest.mark.parametrize("name", names())
def test_builders_take_the_parameters_of_their_entries(name: str) -> None:
    from graphopt.zoo.modules import prepare_torchvision

    prepare_torchvision()
    model = describe(name)
    path, _, function = model.build.partition(":")
    parameters = inspect.signature(getattr(importlib.import_module(path), function)).parameters.values()
    # Builders swallow the parameters that only the inputs need, so a misspelt one would go unnoticed.
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} <= set(model.params)


def test_one_input_per_layer() -> None:
    model = describe("gpt2_decode@layers=2")
    assert [spec.name for spec in model.input_specs()] == [
        "input_ids",
        "past_key_values.0.key",
        "past_key_values.1.key",
        "past_key_values.0.value",
        "past_key_values.1.value",
    ]
    assert model.input_specs()[1].shape == (1, 12, 127, 64)
    assert model.output_names() == ("logits", *(f"present.{i}.{p}" for p in ("key", "value") for i in range(2)))


# Overrides


def test_overrides_reach_parameters_and_inputs() -> None:
    model = describe("bert_base@layers=48,seq=64")
    assert model.params["layers"] == 48
    assert {spec.shape for spec in model.input_specs()} == {(1, 64)}
    assert describe("bert_base").params["layers"] == 12


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("bert_base@layers=12", "bert_base"),
        ("bert_base@", "bert_base"),
        ("bert_base@seq=64,layers=2", "bert_base@layers=2,seq=64"),
        ("tiny_regnet@wa=12.50", "tiny_regnet@wa=12.5"),
        ("tiny_bert@batch=0", "tiny_bert@batch=0"),
    ],
)
def test_a_name_has_one_canonical_form(given: str, canonical: str) -> None:
    assert describe(given).name == canonical
    assert file_name(given) == f"{canonical}.dynamo.onnx"


def test_other_seeds_have_other_files() -> None:
    assert file_name("gpt2", "legacy", 3) == "gpt2.legacy.seed3.onnx"


@pytest.mark.parametrize(
    "name", ["tiny_bert@layers", "tiny_bert@layers=", "tiny_bert@layers=1.5", "tiny_bert@layers=-1"]
)
def test_malformed_overrides_are_usage_errors(name: str) -> None:
    with pytest.raises(UsageError, match="layers"):
        describe(name)


@pytest.mark.parametrize("name", ["tiny_bert@layers=2,", "tiny_bert@,"])
def test_an_empty_override_is_an_unknown_parameter(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown parameter of tiny_bert ''"):
        describe(name)


@pytest.mark.parametrize("value", ["nan", "inf", "-0.5"])
def test_numbers_of_overrides_are_finite(value: str) -> None:
    with pytest.raises(UsageError, match="finite"):
        describe(f"tiny_regnet@se={value}")


@pytest.mark.parametrize(("name", "near"), [("bert_bas", "bert_base"), ("bert_base@layer=2", "layers")])
def test_unknown_names_suggest_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        describe(name)
    assert near in str(caught.value.hint)


def test_unknown_exporter(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="exporter"):
        build("tiny_bert", "torchscript", tmp_path)  # type: ignore[arg-type]


# Example inputs


def test_example_inputs_follow_the_seed() -> None:
    first, again, other = (example_inputs("tiny_bert", seed) for seed in (0, 0, 1))
    for key in first:
        np.testing.assert_array_equal(first[key], again[key])
    assert not np.array_equal(first["input_ids"], other["input_ids"])
    assert first["attention_mask"].all()
    assert first["input_ids"].max() < 500


# Building


@needs_zoo
@pytest.mark.parametrize(("name", "exporter"), exports([*TINY, *SMALL, *REDUCED], DEAR))
def test_builds_are_valid_and_run(name: str, exporter: Exporter, built: Callable[[str, Exporter], Path]) -> None:
    path = built(name, exporter)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert name not in TINY or path.stat().st_size < 2_000_000
    model = describe(name)
    declared = [
        (i.name, tuple(d.dim_value for d in i.type.tensor_type.shape.dim), i.type.tensor_type.elem_type)
        for i in proto.graph.input
    ]
    assert declared == [
        (s.name, s.shape, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype))) for s in model.input_specs()
    ]
    assert [o.name for o in proto.graph.output] == list(model.output_names())
    for output in run(path, example_inputs(name)):
        assert np.isfinite(output).all()
        assert output.std() > 1e-3


@needs_zoo
@pytest.mark.parametrize("name", part(REDUCED, 3, str))
def test_reduced_types_are_those_of_the_file(name: str, built: Callable[[str, Exporter], Path], tmp_path: Path) -> None:
    path = built(name, "dynamo")
    graph = onnx.load(path).graph
    assert {node.op_type for node in graph.node} >= REDUCED[name]
    kinds = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in graph.initializer if len(tensor.dims) > 1}
    assert kinds & {"INT8", "UINT8", "FLOAT16"}
    assert build(name, "dynamo", tmp_path).read_bytes() == path.read_bytes()
    # What it computes is nearly what the model that it was made of computes.
    whole = build(name.replace("_qdq", "").replace("_int8", "").replace("_f16", ""), "dynamo", tmp_path)
    feeds = example_inputs(name, seed=1)
    for reduced, exact in zip(run(path, feeds), run(whole, feeds), strict=True):
        assert np.abs(reduced - exact).max() < 0.2 * np.abs(exact).max()


@needs_zoo
@pytest.mark.parametrize("name", part([name for name in [*TINY, *SMALL] if name not in DEAR], 2, str))
def test_both_exporters_export_the_same_function(name: str, built: Callable[[str, Exporter], Path]) -> None:
    feeds = example_inputs(name, seed=1)
    for dynamo, legacy in zip(run(built(name, "dynamo"), feeds), run(built(name, "legacy"), feeds), strict=True):
        np.testing.assert_allclose(dynamo, legacy, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(legacy).max())))


@needs_zoo
@pytest.mark.parametrize(("name", "exporter"), exports(TINY, DEAR_TWICE))
def test_same_seed_same_bytes(
    name: str, exporter: Exporter, built: Callable[[str, Exporter], Path], tmp_path: Path
) -> None:
    path = built(name, exporter)
    assert build(name, exporter, tmp_path).read_bytes() == path.read_bytes()


@needs_zoo
def test_other_seed_other_weights(tmp_path: Path) -> None:
    feeds = example_inputs("tiny_resnext")
    (first,), (second,) = (run(build("tiny_resnext", "legacy", tmp_path, seed), feeds) for seed in (0, 1))
    assert np.abs(first - second).max() > 1e-2


@needs_zoo
@pytest.mark.parametrize(
    ("name", "exporter"),
    exports(
        [
            "tiny_bert@batch=0",
            "tiny_resnext@batch=0",
            "tiny_diffusion@batch=0",
            "yolo@batch=0,classes=3,size=64,width=8",
            "tcn@batch=0,classes=16,layers=3,seq=48,skip=16,stacks=2,width=16",
            "lstm@batch=0,classes=5,embed=16,hidden=32,seq=12,vocab=100",
            "t5_encoder@batch=0,head_dim=8,heads=2,hidden=16,intermediate=32,layers=1,seq=12,vocab=100",
        ],
        DEAR_OPEN,
    ),
)
def test_symbolic_batch(name: str, exporter: Exporter, built: Callable[[str, Exporter], Path]) -> None:
    path = built(name, exporter)
    assert {i.type.tensor_type.shape.dim[0].dim_param for i in onnx.load(path).graph.input} == {"batch"}
    feeds = example_inputs(name)
    two = run(path, feeds)[0]
    one = run(path, {key: value[1:] for key, value in feeds.items()})[0]
    np.testing.assert_allclose(one, two[1:], rtol=1e-3, atol=1e-5)


@needs_zoo
@pytest.mark.parametrize("exporter", part(EXPORTERS, 2, str))
def test_symbolic_lengths(exporter: Exporter, built: Callable[[str, Exporter], Path]) -> None:
    feeds = example_inputs("tiny_bert@batch=0,seq=0")
    assert {value.shape for value in feeds.values()} == {(2, 16)}
    path = built("tiny_bert@batch=0,seq=0", exporter)
    assert run(path, {key: value[:1, :9] for key, value in feeds.items()})[0].shape == (1, 9, 64)
    name = "llama_decode@batch=0,heads=4,hidden=64,intermediate=96,kv_heads=2,layers=1,past=0,vocab=100"
    feeds = example_inputs(name)
    assert feeds["past_key_values.0.key"].shape == (2, 2, 15, 16)
    shorter = {key: value[:1] if value.ndim == 2 else value[:1, :, :4] for key, value in feeds.items()}
    assert run(built(name, exporter), shorter)[1].shape == (1, 2, 5, 16)


@needs_zoo
def test_weights_are_nowhere_trivial() -> None:
    from torch import nn

    from graphopt.zoo.modules import instantiate

    for name in TINY:
        module, _ = instantiate(describe(name), seed=0)
        assert not module.training
        for key, parameter in module.named_parameters():
            assert parameter.numel() == 1 or float(parameter.std()) > 0, f"{name}: {key} is constant"
        for norm in (m for m in module.modules() if isinstance(m, nn.BatchNorm2d)):
            assert norm.momentum == 0.1
            assert norm.running_mean is not None
            assert norm.running_var is not None
            for statistic in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                assert float(statistic.std()) > 0
            assert float(norm.running_var.min()) > 0


@needs_zoo
def test_nothing_of_the_machine_is_left_in_the_file(built: Callable[[str, Exporter], Path]) -> None:
    for exporter in EXPORTERS:
        content = built("tiny_bert", exporter).read_bytes()
        assert b"site-packages" not in content
        assert str(Path(__file__).parents[2]).encode() not in content


# The cache


def test_parameters_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"resnet50@size=0 can't be built: .*Kernel size"):
        build("resnet50@size=0", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_cache_folder_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRAPHOPT_ZOO_DIR", raising=False)
    assert cache_dir().name == "zoo"
    monkeypatch.setenv("GRAPHOPT_ZOO_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("GRAPHOPT_ZOO_DIR", "~/zoo")
    assert cache_dir() == Path.home() / "zoo"


def save_like_resnet(path: Path, size: int) -> None:
    """A model with the inputs and outputs of a ResNet."""
    x = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3, size, size])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3, size, size])
    graph = helper.make_graph([helper.make_node("Relu", ["pixels"], ["logits"])], "like", [x], [y])
    onnx.save(helper.make_model(graph), path)


def test_a_cached_file_is_returned_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHOPT_ZOO_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    cached = tmp_path / "resnet50.legacy.onnx"
    save_like_resnet(cached, 224)
    there = cached.read_bytes()
    assert build("resnet50", "legacy") == cached
    assert cached.read_bytes() == there


@pytest.mark.parametrize("what", ["text", "other sizes", "folder", "pipe"])
def test_what_else_lies_there_is_not_taken_for_the_model(tmp_path: Path, what: str) -> None:
    target = tmp_path / "resnet50.legacy.onnx"
    if what == "folder":
        target.mkdir()
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "text":
        target.write_bytes(b"there")
    else:
        save_like_resnet(target, 160)
    with pytest.raises(GraphoptError, match=r"resnet50\.legacy\.onnx is not resnet50 as the zoo builds it"):
        build("resnet50", "legacy", tmp_path)


@needs_zoo
def test_force_builds_again(tmp_path: Path) -> None:
    target = tmp_path / file_name("tiny_resnext", "legacy")
    target.write_bytes(b"stale")
    assert build("tiny_resnext", "legacy", tmp_path, force=True) == target
    onnx.checker.check_model(onnx.load(target))


@needs_zoo
def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(model: object, module: object, example: object, path: Path) -> None:
        path.write_bytes(b"half a mod")
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(export, "_export_legacy", fail)
    with pytest.raises(RuntimeError, match="disk on fire"):
        build("tiny_resnext", "legacy", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


@needs_zoo
@pytest.mark.parametrize(
    ("name", "module"), [("tiny_bert", "torch"), ("tiny_bert", "transformers"), ("tiny_regnet", "torchvision")]
)
def test_a_missing_library_says_what_to_install(name: str, module: str, tmp_path: Path) -> None:
    # In a process of its own: by now this one has imported them.
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.modules[{module!r}] = None\n"
        "from graphopt.errors import MissingExtraError\nfrom graphopt.zoo import build\n"
        f"try: build({name!r}, out=Path({str(tmp_path)!r}))\n"
        "except MissingExtraError as error: print(error, '|', error.hint)"
    )
    error = MissingExtraError("zoo", module)
    assert python(code) == f"{error} | {error.hint}"


# The committed model


def test_the_demo_model_is_small_and_runs() -> None:
    assert DEMO.stat().st_size < 1_000_000
    proto = onnx.load(DEMO)
    onnx.checker.check_model(proto, full_check=True)
    weights = {t.name: t.dims for t in proto.graph.initializer}
    grouped = [n for n in proto.graph.node if any(a.name == "group" and a.i > 1 for a in n.attribute)]
    # What it is a demo of: groups of four channels, sixteen groups or more, so that four can merge.
    assert len(grouped) == 5
    assert {weights[node.input[1]][1] for node in grouped} == {4}
    (logits,) = run(DEMO, example_inputs("demo_regnet"))
    assert logits.shape == (1, 10)
    assert np.isfinite(logits).all()


@needs_zoo
def test_the_demo_model_is_what_the_zoo_builds(tmp_path: Path) -> None:
    feeds = example_inputs("demo_regnet", seed=1)
    (committed,), (fresh,) = run(DEMO, feeds), run(build("demo_regnet", "legacy", tmp_path), feeds)
    np.testing.assert_allclose(committed, fresh, rtol=1e-3, atol=1e-5)


def test_a_build_is_written_as_any_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut short leaves nothing beside it, and a link stays."""
    from graphopt.zoo import modules

    def exported(model: object, module: object, example: object, path: Path) -> None:
        assert [file.name for file in tmp_path.iterdir()] == [link.name]
        path.write_bytes(b"built")

    link, target = tmp_path / export.file_name("squeezenet1_1", "legacy"), tmp_path.parent / "target.onnx"
    link.symlink_to(target)
    monkeypatch.setattr(modules, "instantiate", lambda *_: (None, ()))
    monkeypatch.setattr(export, "_export_legacy", exported)
    assert export.build("squeezenet1_1", "legacy", tmp_path, force=True) == link
    assert link.is_symlink() and target.read_bytes() == b"built"


@needs_zoo
@pytest.mark.parametrize("sdpa", [0, 1])
def test_attention_of_any_batch_and_length_is_recognised(sdpa: int, built: Callable[[str, Exporter], Path]) -> None:
    """By the older exporter, whose table of positions is cut as the model runs, and with torch's guard against rows that are hidden."""
    path = built(f"tiny_bert@batch=0,layers=1,sdpa={sdpa},seq=0", "legacy")
    found = optimize(
        path, rules=["attention", "identity"], strategy="backtracking", measure=False, at=[{"batch": 1, "seq": 128}]
    )
    operators = [node.op_type for node in found.model.graph.node]
    assert operators.count("MultiHeadAttention") == 1 and not {"Softmax", "IsNaN"} & set(operators)
    feeds = example_inputs("tiny_bert@batch=0,layers=1,seq=0")
    feeds["attention_mask"][0] = 0  # of what sees nothing torch makes zeros, where it says so
    feeds["attention_mask"][1] = 1
    ours = ort.InferenceSession(found.model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(ours[0], run(path, feeds)[0], rtol=1e-4, atol=1e-5)
