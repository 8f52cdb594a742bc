"""Settings: where they come from, which of them wins, and what a wrong one says."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from graphopt.config import (
    Settings,
    SettingWarning,
    cache_dir,
    load_settings,
    nearest_file,
    parse_dim,
    parse_input_shape,
    parse_provider_option,
    provider_name,
    rules_dir,
)
from graphopt.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def project(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pyproject.toml"
    file.write_text("\n".join(["[tool.graphopt]", *lines, ""]), encoding="utf-8")
    return file


def test_defaults(tmp_path):
    assert load_settings(cwd=tmp_path, environ={}) == Settings()


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().threads = 2  # type: ignore[misc]


def test_precedence(tmp_path):
    project(tmp_path, "threads = 2", "seed = 2", 'strategy = "beam"', "budget = 2")
    environ = {"GRAPHOPT_THREADS": "3", "GRAPHOPT_SEED": "3", "GRAPHOPT_STRATEGY": ""}
    settings = load_settings({"threads": 4, "provider": None}, cwd=tmp_path, environ=environ)
    assert (settings.threads, settings.seed, settings.strategy, settings.budget) == (4, 3, "beam", 2.0)
    assert settings.provider == "cpu"


def test_every_setting_from_the_file(tmp_path):
    project(
        tmp_path,
        'strategy = "backtracking"',
        'provider = "CUDAExecutionProvider"',
        'provider-options = {device_id = 1, gpu_mem_limit = "2e9"}',
        "threads = 8",
        "alpha = 1.02",
        "budget = 1.5",
        'rules = ["conv", "mine/extra.yaml"]',
        'exclude = ["fold-batchnorm"]',
        "dims = {batch = 4}",
        "input-shapes = {image = [1, 3, 8, 8], level = []}",
        "rtol = 1e-3",
        "atol = 0",
        "seed = 7",
        "portable = true",
        "freeze-initializers = true",
        "max_growth = 0",
        "max-memory-growth = 1.5",
        "max-error = 1e-5",
        "measure = false",
        'cost-model = "analytic"',
        "keep-ties = true",
    )
    assert load_settings(cwd=tmp_path, environ={}) == Settings(
        strategy="backtracking",
        provider="cuda",
        provider_options={"device_id": "1", "gpu_mem_limit": "2e9"},
        threads=8,
        alpha=1.02,
        budget=1.5,
        rules=("conv", str(tmp_path / "mine/extra.yaml")),
        exclude=("fold-batchnorm",),
        dims={"batch": 4},
        input_shapes={"image": (1, 3, 8, 8), "level": ()},
        rtol=1e-3,
        atol=0.0,
        seed=7,
        portable=True,
        freeze_initializers=True,
        max_growth=0.0,
        max_memory_growth=1.5,
        max_error=1e-5,
        measure=False,
        cost_model="analytic",
        keep_ties=True,
    )


def test_every_setting_from_the_environment(tmp_path):
    environ = {
        "GRAPHOPT_STRATEGY": "backtracking",
        "GRAPHOPT_PROVIDER": "cuda",
        "GRAPHOPT_THREADS": "8",
        "GRAPHOPT_ALPHA": "1.02",
        "GRAPHOPT_BUDGET": "1.5",
        "GRAPHOPT_RULES": "conv, extra.yaml",
        "GRAPHOPT_EXCLUDE": "fold-batchnorm",
        "GRAPHOPT_DIMS": "batch=4,seq=128",
        "GRAPHOPT_INPUT_SHAPES": "image:1x3x8x8",
        "GRAPHOPT_PROVIDER_OPTIONS": "device_id=1, gpu_mem_limit=2e9",
        "GRAPHOPT_RTOL": "1e-3",
        "GRAPHOPT_ATOL": "0",
        "GRAPHOPT_SEED": "7",
        "GRAPHOPT_PORTABLE": "1",
        "GRAPHOPT_FREEZE_INITIALIZERS": "yes",
        "GRAPHOPT_MAX_GROWTH": "0.5",
        "GRAPHOPT_MAX_MEMORY_GROWTH": "1.5",
        "GRAPHOPT_MAX_ERROR": "1e-5",
        "GRAPHOPT_MEASURE": "off",
        "GRAPHOPT_COST_MODEL": "analytic",
        "GRAPHOPT_KEEP_TIES": "1",
    }
    assert load_settings(cwd=tmp_path, environ=environ) == Settings(
        strategy="backtracking",
        provider="cuda",
        provider_options={"device_id": "1", "gpu_mem_limit": "2e9"},
        threads=8,
        alpha=1.02,
        budget=1.5,
        rules=("conv", "extra.yaml"),
        exclude=("fold-batchnorm",),
        dims={"batch": 4, "seq": 128},
        input_shapes={"image": (1, 3, 8, 8)},
        rtol=1e-3,
        atol=0.0,
        seed=7,
        portable=True,
        freeze_initializers=True,
        max_growth=0.5,
        max_memory_growth=1.5,
        max_error=1e-5,
        measure=False,
        cost_model="analytic",
        keep_ties=True,
    )


@pytest.mark.parametrize(
    "line",
    [
        "threads = -1",
        'threads = "4"',
        "threads = true",
        "threads = 2.0",
        "strategy = 3",
        'strategy = ""',
        "alpha = 0.99",
        "budget = -1",
        "budget = 0",
        "budget = nan",
        "rtol = inf",
        'portable = "yes"',
        'rules = "conv"',
        "rules = [1]",
        "dims = {batch = 0}",
        "dims = [4]",
        "input_shapes = {x = 4}",
        'input_shapes = {x = ["a"]}',
        "input_shapes = 4",
        'provider_options = "device_id=1"',
        "provider_options = {device_id = [1]}",
        "provider_options = {device_id = true}",
    ],
)
def test_wrong_value_in_the_file(tmp_path, line):
    file = project(tmp_path, line)
    with pytest.raises(UsageError) as caught:
        load_settings(cwd=tmp_path, environ={})
    key = line.split(" ")[0]
    assert str(caught.value).startswith(f"{file}: tool.graphopt.{key} must be ")


def test_unknown_key_in_the_file(tmp_path):
    file = project(tmp_path, "thread = 4")
    with pytest.raises(UsageError) as caught:
        load_settings(cwd=tmp_path, environ={})
    assert str(caught.value) == f"{file}: tool.graphopt: unknown setting 'thread'"
    assert caught.value.hint == "did you mean 'threads'?"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GRAPHOPT_THREADS", "many"),
        ("GRAPHOPT_THREADS", "-1"),
        ("GRAPHOPT_BUDGET", "soon"),
        ("GRAPHOPT_PORTABLE", "maybe"),
        ("GRAPHOPT_DIMS", "batch"),
        ("GRAPHOPT_DIMS", "batch=1,"),
        ("GRAPHOPT_RULES", "conv,,merge"),
        ("GRAPHOPT_EXCLUDE", ","),
        ("GRAPHOPT_AT", "batch=1;"),
        ("GRAPHOPT_DIMS", "batch=1,batch=2"),
        ("GRAPHOPT_AT", "batch=1;batch=2,batch=3"),
        ("GRAPHOPT_INPUT_SHAPES", "image=1x3"),
        ("GRAPHOPT_PROVIDER_OPTIONS", "device_id"),
    ],
)
def test_wrong_value_in_the_environment(tmp_path, variable, text):
    with pytest.raises(UsageError, match=f"^{variable} must be "):
        load_settings(cwd=tmp_path, environ={variable: text})


def test_wrong_value_on_the_command_line(tmp_path):
    with pytest.raises(UsageError, match=r"^--max-growth must be a number of at least 0, not -1"):
        load_settings({"max_growth": -1}, cwd=tmp_path, environ={})


def test_nearest_file_with_a_table_of_ours(tmp_path):
    outer = project(tmp_path, "threads = 2")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "other"\n', encoding="utf-8")
    assert nearest_file(inner) == outer
    nearer = project(inner, "threads = 3")
    assert nearest_file(inner) == nearer


def test_broken_files(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text("[project", encoding="utf-8")
    assert load_settings(cwd=tmp_path, environ={}) == Settings()  # not about graphopt, so none of our business
    for text in ("[tool.graphopt\n", "[tool]\ngraphopt = 3\n", "[tool.graphopt]\nstrategy = '\xff'\n"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(UsageError, match=r"pyproject\.toml: "):
            load_settings(cwd=tmp_path, environ={})
    file.write_text("tool = 'graphopt'\n", encoding="utf-8")
    assert load_settings(cwd=tmp_path, environ={}) == Settings()


@pytest.mark.parametrize("name", ["graphopt.toml", "pyproject.toml"])
def test_files_as_editors_of_windows_write_them(tmp_path, name):
    text = ("" if name == "graphopt.toml" else "[tool.graphopt]\r\n") + "threads = 3\r\n"
    (tmp_path / name).write_bytes(text.encode("utf-8-sig"))
    assert load_settings(cwd=tmp_path, environ={}).threads == 3
    (tmp_path / name).write_bytes(text.encode("utf-16"))
    with pytest.raises(UsageError, match=r"\.toml: not UTF-8 text but UTF-16: save it as UTF-8"):
        load_settings(cwd=tmp_path, environ={})


@pytest.mark.parametrize(
    ("text", "expected"), [("batch=1", ("batch", 1)), ("a=b=12", ("a=b", 12)), ("größe=3", ("größe", 3))]
)
def test_parse_dim(text, expected):
    assert parse_dim(text) == expected


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "=1", "batch=0", "batch=-1", "batch=1.5", "batch=²", "b=" + "9" * 5000]
)
def test_parse_dim_refuses(text):
    with pytest.raises(ValueError, match="NAME=N"):
        parse_dim(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x:1x3x224x224", ("x", (1, 3, 224, 224))), ("input:0:2", ("input:0", (2,))), ("scalar:", ("scalar", ()))],
)
def test_parse_input_shape(text, expected):
    assert parse_input_shape(text) == expected


@pytest.mark.parametrize("text", ["", "x", ":1x2", "x:1x", "x:axb", "x:1x0", "x:1,3", "x=1x3"])
def test_parse_input_shape_refuses(text):
    with pytest.raises(ValueError, match="NAME:SIZES"):
        parse_input_shape(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("a=b", ("a", "b")), ("a=", ("a", "")), ('a={"b":"c=d"}', ("a", '{"b":"c=d"}'))]
)
def test_parse_provider_option(text, expected):
    assert parse_provider_option(text) == expected


@pytest.mark.parametrize("text", ["", "a", "=b", " =b"])
def test_parse_provider_option_refuses(text):
    with pytest.raises(ValueError, match="KEY=VALUE"):
        parse_provider_option(text)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("cpu", "cpu"),
        ("CUDA", "cuda"),
        ("dml", "directml"),
        ("DmlExecutionProvider", "directml"),
        ("trt", "tensorrt"),
        ("TensorRT", "tensorrt"),
        ("tensorrtexecutionprovider", "tensorrt"),
        ("MIGraphXExecutionProvider", "MIGraphXExecutionProvider"),
    ],
)
def test_provider_names(name, short):
    assert provider_name(name) == short


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", "~/somewhere")
    assert cache_dir() == Path.home() / "somewhere"
    monkeypatch.delenv("GRAPHOPT_CACHE_DIR")
    assert cache_dir().name == "graphopt"


def test_rules_dir():
    assert rules_dir().name == "rules"


def test_a_misspelt_variable_is_named(tmp_path: Path) -> None:
    with pytest.warns(SettingWarning, match=r"'GRAPHOPT_THREDS', which has no effect: did you mean 'GRAPHOPT_THREADS'"):
        load_settings({}, cwd=tmp_path, environ={"GRAPHOPT_THREDS": "4"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_settings({}, cwd=tmp_path, environ={"GRAPHOPT_CACHE_DIR": "x", "GRAPHOPT_THREADS": "4", "PATH": "y"})


@pytest.mark.parametrize("name", ["graphopt.toml", "pyproject.toml"])
def test_profiles(tmp_path, name):
    prefix = "" if name == "graphopt.toml" else "tool.graphopt."
    head = [] if name == "graphopt.toml" else ["[tool.graphopt]"]
    lines = [
        *head,
        "threads = 2",
        "seed = 2",
        "budget = 2",
        f"[{prefix}profiles.edge]",
        "seed = 3",
        'rules = ["mine/a.yaml"]',
    ]
    (tmp_path / name).write_text("\n".join([*lines, f"[{prefix}profiles.ci]", "measure = false", ""]))
    plain = load_settings(cwd=tmp_path, environ={})
    assert (plain.threads, plain.seed, plain.budget, plain.rules, plain.measure) == (2, 2, 2.0, (), True)
    edge = load_settings({"budget": 5.0}, profile="edge", cwd=tmp_path, environ={"GRAPHOPT_PROFILE": "ci"})
    assert (edge.threads, edge.seed, edge.budget, edge.measure) == (2, 3, 5.0, True)
    assert edge.rules == (str(tmp_path / "mine/a.yaml"),)
    assert not load_settings(cwd=tmp_path, environ={"GRAPHOPT_PROFILE": "ci"}).measure
    with pytest.raises(UsageError, match=rf"{name}: unknown profile 'egde'") as caught:
        load_settings(profile="egde", cwd=tmp_path, environ={})
    assert caught.value.hint == "did you mean 'edge'?"


def test_a_file_of_our_own_comes_before_that_of_the_project(tmp_path):
    project(tmp_path, "threads = 2")
    (tmp_path / "graphopt.toml").write_text("threads = 3\n")
    assert load_settings(cwd=tmp_path, environ={}).threads == 3
    (tmp_path / "a").mkdir()
    project(tmp_path / "a", "threads = 4")  # the nearest folder decides
    assert load_settings(cwd=tmp_path / "a", environ={}).threads == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threads = -1", "graphopt.toml: threads must be"),
        ("[profiles.edge]\nthreads = -1", "graphopt.toml: profiles.edge.threads must be"),
        ("[profiles.edge]\nthreds = 1", "graphopt.toml: profiles.edge: unknown setting 'threds'"),
        ("profiles = 3", "graphopt.toml: profiles must be tables"),
        ("threads", "graphopt.toml: "),
    ],
)
def test_a_wrong_file_of_our_own(tmp_path, text, said):
    (tmp_path / "graphopt.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_settings(cwd=tmp_path, environ={})
    assert said in str(caught.value)


def test_a_profile_without_a_file(tmp_path):
    with pytest.raises(UsageError, match=r"profile 'edge': no graphopt.toml or pyproject.toml"):
        load_settings(profile="edge", cwd=tmp_path, environ={})


def test_out_of_an_archive_no_rules_are_read(tmp_path):
    """Python imports from archives, so graphopt starts in one; what is wrong then is not the installation."""
    archive = shutil.make_archive(str(tmp_path / "app"), "zip", ROOT, "graphopt")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from graphopt.config import rules_dir; rules_dir()"
    command = [sys.executable, "-P", "-c", code, archive]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"the rules that come with graphopt can't be read out of {archive}")
