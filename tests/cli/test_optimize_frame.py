"""What `graphopt optimize` itself does: arguments, files, Ctrl-C and the screen. The library behind it is a double."""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import types
import warnings
from pathlib import Path

import pytest

import graphopt
from graphopt.errors import OutputsDifferError

REPORT = {
    "schema": "graphopt.report/1",
    "input": "net.onnx",
    "output": "net.opt.onnx",
    "strategy": "auto",
    "provider": "cpu",
    "provider_options": {},
    "placement": None,
    "timing": None,
    "threads": 1,
    "all_cores": False,
    "seed": 0,
    "latency": {"baseline_ms": 18.3, "optimized_ms": 12.93, "speedup": 1.415, "ci95": [1.398, 1.431], "rounds": 40},
    "kept_original": False,
    "verified": {"passed": True, "trials": 3, "max_abs": 1.2e-6, "max_rel": 3e-5},
    "nodes": {"before": 210, "after": 160},
    "size": {"before": 17_300_000, "after": 18_000_000},
    "rules": {"fold-batchnorm": 3, "eliminate-identity": 21},
    "steps": [{"rule": "fold-batchnorm", "site": "layer[1]", "cost_before": 18.3, "cost_after": 17.9}],
    "search": {"candidates": 312, "seconds": 12.3, "stop_reason": "no rule improves the cost", "rounds": 1, "more": []},
    "seconds": 31.4,
    "environment": {"onnxruntime": "1.31.1"},
    "families": [],
    "warnings": [],
}


class Library(types.ModuleType):
    """Stands in for `graphopt.api`: remembers how it was called and returns a fixed report."""

    def __init__(self) -> None:
        super().__init__("graphopt.api")
        self.report = copy.deepcopy(REPORT)
        self.calls: list[dict[str, object]] = []
        self.during = lambda arguments: None

    def optimize(self, model, **arguments):
        self.calls.append({"model": model, **arguments})
        arguments["progress"](types.SimpleNamespace(stage="search", message="[b]", fraction=0.5, best=1.2, budget=10.0))
        self.during(arguments)
        if arguments["output"]:
            Path(arguments["output"]).write_bytes(b"optimised")
        return types.SimpleNamespace(
            report=self.report,
            trace=types.SimpleNamespace(write=lambda path: path.write_text("trace")),
            write_page=lambda path, hurried: path.write_text("page"),
        )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    double = Library()
    monkeypatch.setitem(sys.modules, "graphopt.api", double)
    monkeypatch.setattr(graphopt, "api", double, raising=False)
    return double


def test_defaults(cli, library, model):
    outcome = cli("optimize", model)
    assert outcome.code == 0, outcome.err
    (call,) = library.calls
    assert call["model"] == model
    assert call["output"] == model.with_name("net.opt.onnx")
    assert (call["strategy"], call["provider"], call["threads"], call["seed"]) == ("auto", "cpu", 1, 0)
    assert call["budget"] is None and call["rtol"] is None and call["atol"] is None and call["inputs"] is None
    assert call["measure"] is True and call["portable"] is False and call["freeze_initializers"] is False
    assert call["rules"] == () and call["exclude"] == () and call["dims"] == {} and call["input_shapes"] == {}
    assert call["max_growth"] == pytest.approx(0.1)
    assert "trace" not in call and "report" not in call  # they are written after the summary


def test_every_option(cli, library, model, tmp_path):
    (tmp_path / "data.npz").touch()
    outcome = cli(
        *(
            "optimize",
            model,
            "-o",
            "fast.onnx",
            "--strategy",
            "beam",
            "--agent",
            "agents/a",
            "--provider",
            "cuda",
            "--threads",
            "4",
            "--custom-ops",
            "mine.so",
        ),
        *(
            "--budget",
            "2.5",
            "--alpha",
            "1.1",
            "--rules",
            "conv",
            "--rules",
            "mine.yaml",
            "--exclude",
            "a",
            "--exclude",
            "b",
        ),
        *("--provider-option", "device_id=1", "--provider-option", "config={a=b}"),
        *("--dim", "batch=2", "--dim", "seq=8", "--input-shape", "x:0:1x3", "--input-shape", "s:"),
        *("--at", "batch=4,seq=8", "--at", "batch=8"),
        *("--inputs", "data.npz", "--rtol", "1e-3", "--atol", "1e-5", "--seed", "7", "--portable"),
        *("--freeze-initializers", "--upgrade", "--max-growth", "0.5", "--no-measure", "--trace", "trace.json"),
        *("--max-memory-growth", "2", "--max-error", "1e-6"),
        *("--report", "page.html", "--cost-model", "analytic", "--keep-ties"),
    )
    assert outcome.code == 0, outcome.err
    assert (model.parent / "trace.json").read_text() == "trace" and (model.parent / "page.html").read_text() == "page"
    (call,) = library.calls
    call.pop("progress"), call.pop("interrupted")
    assert call == {
        "model": model,
        "output": Path("fast.onnx"),
        "agent": str(Path("agents/a")),
        "strategy": "beam",
        "provider": "cuda",
        "provider_options": {"device_id": "1", "config": "{a=b}"},
        "threads": 4,
        "alpha": 1.1,
        "budget": 2.5,
        "rules": ("conv", "mine.yaml"),
        "exclude": ("a", "b"),
        "custom_ops": ("mine.so",),
        "dims": {"batch": 2, "seq": 8},
        "input_shapes": {"x:0": (1, 3), "s": ()},
        "at": ({"batch": 4, "seq": 8}, {"batch": 8}),
        "inputs": Path("data.npz"),
        "rtol": 1e-3,
        "atol": 1e-5,
        "seed": 7,
        "portable": True,
        "freeze_initializers": True,
        "upgrade": True,
        "max_growth": 0.5,
        "max_memory_growth": 2.0,
        "max_error": 1e-6,
        "measure": False,
        "cost_model": "analytic",
        "keep_ties": True,
    }


def test_the_command_line_beats_environment_and_file(cli, library, model, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.graphopt]\nportable = true\nthreads = 2\nseed = 2\n")
    monkeypatch.setenv("GRAPHOPT_SEED", "3")
    assert cli("optimize", model, "--no-portable").code == 0
    (call,) = library.calls
    assert (call["portable"], call["threads"], call["seed"]) == (False, 2, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing.onnx"],
        ["."],
        ["net.onnx", "--dim", "batch"],
        ["net.onnx", "--dim", "batch=zero"],
        ["net.onnx", "--dim", "batch=0"],
        ["net.onnx", "--dim", "batch=1", "--dim", "batch=2"],
        ["net.onnx", "--input-shape", "x"],
        ["net.onnx", "--input-shape", "x:1,3"],
        ["net.onnx", "--provider-option", "device_id"],
        ["net.onnx", "--provider-option", "=1"],
        ["net.onnx", "--provider-option", "a=1", "--provider-option", "a=2"],
        ["net.onnx", "--threads", "-1"],
        ["net.onnx", "--budget", "0"],
        ["net.onnx", "--budget", "nan"],
        ["net.onnx", "--rtol", "-1"],
        ["net.onnx", "--seed", "-1"],
        ["net.onnx", "--max-growth", "-0.1"],
        ["net.onnx", "--inputs", "nothing.npz"],
        ["net.onnx", "-q", "-v"],
        ["net.onnx", "-o", "net.onnx"],
        ["net.onnx", "-o", "-"],
        ["net.onnx", "-o", "."],
        ["net.onnx", "-o", "no/such/folder/out.onnx"],
        ["net.onnx", "--json", "net.onnx"],
        ["net.onnx", "--trace", "net.onnx"],
        ["net.onnx", "-o", "same", "--json", "same"],
        ["net.onnx", "--trace", "same", "--json", "./same"],
        ["net.onnx", "--json", "net.opt.onnx"],
        ["net.onnx", "--report", "net.onnx"],
        ["net.onnx", "--report", "-"],
        ["net.onnx", "--report", "no/such/folder/page.html"],
        ["net.onnx", "--report", "same", "--trace", "same"],
    ],
    ids=" ".join,
)
def test_wrong_usage(cli, library, model, arguments):
    before = model.read_bytes()
    outcome = cli("optimize", *arguments)
    assert outcome.code == 2
    outcome.error_lines()
    assert not outcome.out
    assert not library.calls
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]
    assert model.read_bytes() == before


def test_the_input_is_not_overwritten_through_a_link(cli, library, model):
    link = model.with_name("link.onnx")
    link.symlink_to(model)
    for source, target in ((model, link), (link, model)):
        outcome = cli("optimize", source, "-o", target)
        assert outcome.code == 2
        assert "never overwritten" in outcome.error_lines()[0]


def test_wrong_settings_file(cli, library, model, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.graphopt]\nthread = 2\n")
    outcome = cli("optimize", model)
    assert outcome.code == 2
    assert outcome.error_lines() == [
        f"error: {tmp_path / 'pyproject.toml'}: tool.graphopt: unknown setting 'thread'",
        "hint: did you mean 'threads'?",
    ]


def test_screen(cli, library, model):
    library.report["warnings"] = ["the batch size is a guess"]
    outcome = cli("optimize", model)
    assert not outcome.out
    assert outcome.err.splitlines()[0] == "warning: the batch size is a guess"
    for text in (
        "18.30 ms",
        "12.93 ms",
        "1.415x",
        "1.398 to 1.431",
        "-23.8 %",
        "17.3 MB",
        "eliminate-identity x21, fold-batchnorm x3",
        "1.2e-06",
        "312 candidates",
        "no rule improves the cost",
        "31.4 s",
        "net.opt.onnx",
    ):
        assert text in outcome.err
    assert "layer[1]" not in outcome.err and "family" not in outcome.err
    assert "\x1b" not in outcome.err


def test_screen_of_another_provider(cli, library, model):
    library.report["placement"] = {
        "before": {"cuda": 12, "cpu": 3},
        "after": {"cuda": 10, "cpu": 1},
        "elsewhere": {"TopK": 2, "NonZero": 1},
    }
    library.report["timing"] = {"device": "cuda:0", "copies": False}
    outcome = cli("optimize", model)
    text = " ".join(outcome.err.split())
    assert "placement cuda 12 nodes, cpu 3 nodes; afterwards cuda 10 nodes, cpu 1 node (TopK x2, NonZero)" in text
    assert "timing inputs and outputs stay on cuda:0: copies from and to the host are not counted" in text

    library.report["placement"]["after"] = library.report["placement"]["before"]
    library.report["placement"]["elsewhere"] = {f"Op{i}": 1 for i in range(9)}
    library.report["timing"] = {"device": "cpu", "copies": True}
    text = " ".join(cli("optimize", model).err.split())
    assert "placement cuda 12 nodes, cpu 3 nodes (Op0, Op1, Op2, Op3, Op4, Op5 and 3 operators more)" in text
    assert "timing inputs and outputs are in the host's memory: the provider's copies" in text


@pytest.mark.parametrize("columns", ["80", "120"])
def test_screen_width(cli, library, model, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    library.report["rules"] = {f"rule-number-{i}": i + 1 for i in range(40)}
    outcome = cli("optimize", model, "-v")
    assert max(map(len, outcome.err.splitlines())) <= int(columns)
    assert "rule-number-0 x1" in " ".join(outcome.err.split())


def test_verbose_lists_stages_and_steps(cli, library, model):
    library.report["families"] = [
        {"family": "conv", "ratio": 1.2, "ci95": [1.1, 1.3], "kept": True, "wrong": False},
        {"family": "gelu", "ratio": 0.9, "ci95": [0.8, 0.95], "kept": False, "wrong": False},
        {"family": "pow", "ratio": None, "ci95": None, "kept": True, "wrong": False},
        {"family": "layout", "ratio": None, "ci95": None, "kept": False, "wrong": True},
    ]
    outcome = cli("optimize", model, "-v")
    assert outcome.err.startswith("[b]\n")
    assert "1.100 to 1.300" in outcome.err and "taken back" in outcome.err and "not measured" in outcome.err
    assert "taken back: wrong results" in outcome.err
    assert "layer[1]" in outcome.err


class OwnWarning(UserWarning):
    """A warning that graphopt itself gives."""

    __module__ = "graphopt.cost.store"


def test_warnings(cli, library, model):
    def warn(_):
        for place in (1, 2):  # from two places of the code, which Python itself would tell apart
            warnings.warn("the cache is\nfull", OwnWarning, stacklevel=place)
        warnings.warn("old style", DeprecationWarning, stacklevel=1)
        warnings.warn("a library's own affair", UserWarning, stacklevel=1)

    library.during = warn
    before = warnings.showwarning
    seen = cli("optimize", model).err
    assert seen.startswith("warning: the cache is full\n  ") and seen.count("the cache is full") == 1
    assert warnings.showwarning is before
    assert not cli("optimize", model, "-q").err


def test_quiet(cli, library, model):
    outcome = cli("optimize", model, "-q", "--json", "-")
    assert outcome.code == 0
    assert not outcome.err
    assert json.loads(outcome.out) == REPORT


def test_json_owns_stdout(cli, library, model, tmp_path):
    outcome = cli("optimize", model, "--json", "-")
    assert json.loads(outcome.out) == REPORT
    assert outcome.err
    outcome = cli("optimize", model, "--json", "report.json")
    assert not outcome.out
    assert json.loads((tmp_path / "report.json").read_text()) == REPORT


def test_dry_run(cli, library, model):
    library.report["output"] = None
    outcome = cli("optimize", model, "--dry-run")
    assert outcome.code == 0
    assert library.calls[0]["output"] is None
    assert "nothing (dry run)" in outcome.err
    assert not model.with_name("net.opt.onnx").exists()


def test_a_dry_run_may_name_the_input(cli, library, model):
    assert cli("optimize", model, "-o", model, "--dry-run").code == 0


def test_what_was_not_measured_is_not_claimed(cli, library, model):
    library.report["latency"] = None
    assert "not measured" in cli("optimize", model).err
    library.report["latency"] = {**REPORT["latency"], "speedup": 1.01, "ci95": [0.99, 1.03]}
    assert "not distinguishable" in cli("optimize", model).err
    library.report["kept_original"] = True
    assert "the original is kept" in cli("optimize", model).err


def test_what_to_do_next(cli, library, model):
    seen = " ".join(cli("optimize", "net.onnx").err.split())
    for command in ("explain net.opt.onnx", "bench net.onnx --tune-session", "optimize net.onnx --report page.html"):
        assert f"graphopt {command}" in seen
    assert "settings may gain instead" not in seen
    seen = " ".join(cli("optimize", "net.onnx", "--report", "p.html").err.split())
    assert "graphopt explain net.opt.onnx" in seen and "--report" not in seen
    library.report["kept_original"] = True
    seen = " ".join(cli("optimize", "net.onnx").err.split())
    assert "settings may gain instead graphopt bench net.onnx --tune-session" in seen
    assert "graphopt explain" not in seen
    library.report |= {"provider": "cuda", "provider_options": {"device_id": "1"}}
    seen = " ".join(cli("optimize", "net.onnx").err.split())
    assert "graphopt bench net.onnx --provider cuda --provider-option device_id=1 --tune-session" in seen


def test_differing_outputs(cli, library, model):
    def differ(_):
        raise OutputsDifferError("output 'y' differs by 0.5", "try --exclude")

    library.during = differ
    outcome = cli("optimize", model)
    assert outcome.code == 3
    assert outcome.error_lines() == ["error: output 'y' differs by 0.5", "hint: try --exclude"]


def test_ctrl_c_keeps_the_best_so_far(cli, library, model):
    def press(arguments):
        assert not arguments["interrupted"]()
        os.kill(os.getpid(), signal.SIGINT)
        assert arguments["interrupted"]()

    library.during = press
    before = signal.getsignal(signal.SIGINT)
    outcome = cli("optimize", model)
    assert outcome.code == 0
    assert "stopping with the best so far" in outcome.err
    assert "by Ctrl-C" in outcome.err
    assert model.with_name("net.opt.onnx").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_aborts(cli, library, model):
    def press(_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    library.during = press
    outcome = cli("optimize", model)
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == "error: aborted by Ctrl-C"
    assert not model.with_name("net.opt.onnx").exists()


def test_ctrl_c_stays_ignored_where_it_was(cli, library, model):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        library.during = lambda _: os.kill(os.getpid(), signal.SIGINT)
        outcome = cli("optimize", model)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.code == 0
    assert "Ctrl-C" not in outcome.err


def test_a_candidate_that_was_not_written_is_not_shown_as_the_result(cli, library, model):
    library.report |= {"kept_original": True, "rules": {}}
    library.report["latency"] |= {"speedup": 1.58, "ci95": [0.94, 2.67], "verdict": "unclear", "optimized_ms": 11.58}
    seen = cli("optimize", model).err
    (row,) = [line for line in seen.splitlines() if line.startswith("latency")]
    assert row.split() == ["latency", "18.30", "ms", "18.30", "ms", "same"]
    assert "too noisy to tell: a candidate measured 1.580x (95 % interval 0.940 to 2.670" in " ".join(seen.split())
    assert "graphopt bench" in seen and "graphopt explain" not in seen


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_what_went_down_a_pipe_is_not_advised_to_be_explained(cli, library, model, tmp_path, capfd):
    from graphopt.cli.optimize import show

    os.mkfifo(tmp_path / "pipe")
    for output, there in (("/dev/stdout", False), (str(tmp_path / "pipe"), False), ("net.opt.onnx", True)):
        show({**REPORT, "output": output})
        seen = capfd.readouterr().err
        assert ("graphopt explain" in seen) == there and "graphopt bench net.onnx --tune-session" in seen
    library.report["output"] = "/dev/stdout"
    outcome = cli("optimize", model, "-o", "/dev/stdout")
    assert outcome.code == 0 and "graphopt explain" not in outcome.err and "optimised" in outcome.out


def test_sizes_are_told_and_each_set_with_its_ratio(cli, library, model):
    there = {"sizes": {"batch": 8}, "speedup": 1.2, "ci95": [1.1, 1.3], "verdict": "faster"}
    library.report |= {"sizes": {"batch": 1, "seq": 8}, "sizes_assumed": ["seq"], "elsewhere": [there]}
    seen = " ".join(cli("optimize", model).err.split())
    assert "measured with batch=1, seq=8 (seq assumed; see --at and --dim)" in seen
    assert "1.200x at batch=8 (95 % interval 1.100 to 1.300)" in seen
