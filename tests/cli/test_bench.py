"""`graphopt bench`: its tables and documents, its exit codes, and what it says to rubbish."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
import time
from dataclasses import replace

import onnx
import pytest

from graphopt.benchmark.results import Bench, Placed, Ratio
from graphopt.cli import benchtable
from graphopt.cli.bench import _judge
from graphopt.cli.screen import console
from graphopt.errors import GraphoptError, TooSlowError
from tests.bench.again import read_bench
from tests.benchmark.test_results import BENCH, CASE
from tests.cli.conftest import ROOT, conv_net

QUICK = ("--strategy", "none", "--against", "original", "--level", "all", "--rounds", "20", "--precision", "0.5")


def drawn(show, capsys, width=80):
    screen = console(stderr=False)
    screen.width = width
    show(screen)
    return capsys.readouterr().out


def test_table_and_documents(cli, model):
    done = cli(
        "bench",
        "net.onnx",
        *QUICK[:5],
        "all,basic",
        *QUICK[6:],
        "--against",
        "net.onnx",
        "--json",
        "b.json",
        "--csv",
        "b.csv",
    )
    assert done.code == 0, done.err
    assert "net.onnx (cpu, 1 thread): 4 sessions, 20 rounds" in done.out
    assert "original (basic)" in done.out and "baseline" in done.out
    assert not done.err
    found = read_bench(model.with_name("b.json").read_text())
    rows = list(csv.DictReader(model.with_name("b.csv").open()))
    names = ["original", "original (basic)", "net.onnx"]
    assert [v.name for v in found.cases[0].variants] == names == [row["variant"] for row in rows]
    assert found.cases[0].rounds == 20 and not found.interrupted


def test_documents_on_stdout_stand_alone(cli, model):
    done = cli("bench", "net.onnx", *QUICK, "--json", "-")
    assert read_bench(done.out).cases[0].model == "net.onnx"
    assert "baseline" in done.err
    done = cli("bench", "net.onnx", *QUICK, "--csv", "-", "-q")
    assert len(list(csv.DictReader(io.StringIO(done.out)))) == 1
    assert not done.err


def test_several_models_have_a_table_together(cli, model, tmp_path):
    onnx.save(conv_net(seed=1), tmp_path / "other.onnx")
    done = cli("bench", "net.onnx", "other.onnx", *QUICK, "-v")
    assert done.code == 0, done.err
    assert "Speed over the original under ORT_ENABLE_ALL" in done.out and "geometric mean" in done.out
    assert "1/2 net.onnx: measuring 1 variants" in done.err and "2/2 other.onnx" in done.err


def test_one_broken_model_does_not_lose_the_others(cli, model, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    done = cli("bench", "junk.onnx", "net.onnx", *QUICK, "--json", "b.json")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: 1 of 2 models can't be measured, the first: junk.onnx: ")
    assert "junk.onnx (cpu, 1 thread): failed: " in done.out
    assert [case.baseline.status for case in read_bench((tmp_path / "b.json").read_text()).cases] == [
        "failed",
        "measured",
    ]


def test_a_broken_model_is_one_line(cli, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    done = cli("bench", "junk.onnx", *QUICK)
    assert done.code == 1 and not done.out
    assert done.error_lines()[0].count("junk.onnx") == 1


def test_a_file_of_ones_own_that_is_no_match_ends_the_command_with_an_error(cli, model, other_model, tmp_path):
    strange = onnx.load(model)
    strange.graph.node[0].op_type = "Nothing"
    onnx.save(strange, tmp_path / "strange.onnx")
    quick = [*QUICK[: QUICK.index("--against")], *QUICK[QUICK.index("--against") + 2 :]]
    for name, code, said in (
        ("other.onnx", 3, "other.onnx does not compute what net.onnx does: "),
        ("strange.onnx", 1, "strange.onnx can't be compared with net.onnx: the model that is compared fails where"),
    ):
        done = cli("bench", "net.onnx", *quick, "--against", name, "--json", "b.json")
        assert done.code == code, done.err
        assert done.err.splitlines()[-1].startswith(f"error: {said}") and "optimised model" not in done.err
        assert [
            v.status for v in read_bench((tmp_path / "b.json").read_text()).cases[0].variants if v.kind == "level"
        ] == ["measured"]


def test_a_file_of_ones_own_that_is_no_model_is_refused_before_anything_runs(cli, model, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    done = cli("bench", "net.onnx", "--against", "junk.onnx", "--json", "b.json")
    assert done.code == 1 and done.error_lines()[0].startswith("error: junk.onnx: not a whole ONNX model")
    assert not (tmp_path / "b.json").exists()


def test_fail_under(cli, model):
    done = cli("bench", "net.onnx", *QUICK[2:], "--rules", "pow", "--fail-under", "1000")
    assert done.code == 4, done.err
    assert done.err.splitlines()[-1].startswith("error: net.onnx, graphopt auto: ") and "below 1000" in done.err
    assert cli("bench", "net.onnx", *QUICK[2:], "--rules", "pow", "--fail-under", "0.01").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.onnx"], "no such file: absent.onnx"),
        (["."], "is a folder"),
        (["bert_bas"], "unknown zoo model 'bert_bas'"),
        (["net.onnx", "--strategy", "gredy"], "unknown strategy 'gredy'"),
        (["net.onnx", "--against", "onnxsin"], "unknown opponent 'onnxsin'"),
        (["net.onnx", "--against", "absent.onnx"], "no such file: absent.onnx"),
        (["net.onnx", "--provider-option", "device_id=1"], "provider options need one provider"),
        (["net.onnx", "--level", "al"], "unknown level 'al'"),
        (["net.onnx", "--level", "all,,basic"], "--level must be names with commas between them, not 'all,,basic'"),
        (["net.onnx", "--against", ","], "--against must be names with commas between them, not ','"),
        (["net.onnx", "--provider", "gpu"], "unknown provider 'gpu'"),
        (["net.onnx", "--threads", "-1"], "--threads must be a whole number of at least 0, not -1"),
        (["net.onnx", "--rounds", "3"], "--rounds must be a whole number of at least 20, not 3"),
        (["net.onnx", "--rounds", "30", "--seconds", "3"], "exclude each other"),
        (["net.onnx", "--seconds", "-1"], "--seconds must be a number above 0, not -1"),
        (["net.onnx", "--seconds", "soon"], "--seconds must be a number, not soon"),
        (["net.onnx", "--precision", "nan"], "--precision must be a number above 0 and below 1, not nan"),
        (["net.onnx", "--precision", "2"], "--precision must be a number above 0 and below 1, not 2"),
        (["net.onnx", "--fail-under", "-1"], "--fail-under must be a number above 0, not -1"),
        (["net.onnx", "--fail-under", "0"], "--fail-under must be a number above 0, not 0"),
        (["net.onnx", "--strategy", "none", "--fail-under", "1"], "--fail-under judges"),
        (["net.onnx", "--json", "-", "--csv", "-"], "only one of"),
        (["net.onnx", "--json", "net.onnx"], "never overwritten"),
        (["net.onnx", "--json", "a", "--csv", "a"], "as well"),
        (["net.onnx", "--csv", "absent/b.csv"], "no such folder"),
        (["net.onnx", "--inputs", "absent.npz"], "no such file"),
        (["net.onnx", "--dim", "batch"], "NAME=N"),
        (["net.onnx", "-q", "-v"], "exclude each other"),
        ([], "missing argument"),
    ],
)
def test_rubbish(cli, model, arguments, message):
    before = sorted(model.parent.iterdir())
    done = cli("bench", *arguments)
    assert done.code == 2
    assert message in done.error_lines()[0].lower() or message in done.error_lines()[0]
    assert sorted(model.parent.iterdir()) == before


def test_ctrl_c_keeps_what_was_measured(model):
    command = [
        sys.executable,
        "-m",
        "graphopt",
        "bench",
        "net.onnx",
        *QUICK[:6],
        "--seconds",
        "600",
        "--json",
        "b.json",
        "-v",
    ]
    with subprocess.Popen(command, cwd=model.parent, env=_environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "measuring" in line:
                break
        time.sleep(1.5)  # some sessions
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 0, rest
    assert "stopping with what was measured so far" in rest
    found = read_bench(model.with_name("b.json").read_text())
    assert found.interrupted and found.cases[0].rounds > 0 and found.cases[0].baseline.latency is not None


def test_ctrl_c_before_anything_is_measured_leaves_what_is_there(model):
    documents = [model.with_name(name) for name in ("b.json", "b.csv", "b.html")]
    for path in documents:
        path.write_text("of an earlier run")
    writing = [argument for path in documents for argument in (f"--{path.suffix[1:]}", path.name)]
    command = [sys.executable, "-m", "graphopt", "bench", "net.onnx", *QUICK[:6], "--seconds", "600", "-v", *writing]
    with subprocess.Popen(command, cwd=model.parent, env=_environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "loading" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130, rest
    assert [path.read_text() for path in documents] == ["of an earlier run"] * 3


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("width", [60, 80, 100, 130, 1000])
def test_the_table_fits(capsys, width):
    names = tuple(replace(v, name=v.name * 3) for v in CASE.variants)
    for case in (CASE, replace(CASE, variants=names)):
        out = drawn(lambda screen, case=case: benchtable.show_case(case, screen, 0.02), capsys, width)
        assert all(len(line) <= width for line in out.splitlines() if "import" not in line)
        heads = next(line for line in out.splitlines() if line.startswith("variant")).split()
        assert {"speed", "interval", "verdict", "P50"} <= set(heads)
    told = " ".join(out.split()).partition("not shown ")[2].partition(": a wider screen")[0].split(", ")
    assert {"P99", "opening", "file", "memory", "nodes"} <= {*heads, *told} and not {*heads} & {*told}
    if width == 1000:
        assert {"P99", "opening", "file", "memory", "nodes"} < set(heads)
    assert "import x" in out and '{"a": 1}' in out and "worth using: 2 threads: 1.250" in out
    assert "missing: not installed, sorry" in out and "noisy" in out
    assert "with batch=1, seq=8 (seq assumed; see --dim)" in " ".join(out.split())


def test_best_level_is_named(capsys):
    basic = replace(CASE.variants[1], ratio=Ratio(1.5, 1.4, 1.6, "faster"))
    case = replace(CASE, best_level="basic", variants=(CASE.variants[0], basic, *CASE.variants[2:]), tuning=None)
    out = " ".join(drawn(lambda screen: benchtable.show_case(case, screen, 0.02), capsys).split())
    assert "level basic beats all on this model (1.500); over it: graphopt greedy 1.250 (1.200 - 1.300)" in out
    out = drawn(lambda screen: benchtable.show_summary(replace(BENCH, cases=(case, case)), screen), capsys)
    assert "basic 1.500 +" in out and "missing" in out and "1.250 +" in out


def test_where_nodes_run_is_told(capsys):
    where = Placed({"openvino": 4}, {}, "cpu", False)
    case = replace(CASE, variants=(replace(CASE.variants[0], placed=where), *CASE.variants[1:]))
    out = " ".join(drawn(lambda screen: benchtable.show_case(case, screen, 0.02), capsys, 1000).split())
    assert "placement openvino 4 nodes placement graphopt greedy: openvino 3 nodes, cpu 1 node (NonZero)" in out
    assert "where the provider works" in out


def test_no_setting_is_worth_it(capsys):
    tuning = replace(CASE.tuning, advised=(), options={}, ratio=None, python="")
    out = drawn(lambda screen: benchtable.show_case(replace(CASE, tuning=tuning), screen, 0.02), capsys)
    assert "leave them as they are" in out


def test_judgement():
    _judge(Bench((CASE,), 0.02), None)
    ours = CASE.variants[-1]

    def bench(**changes):
        return Bench((replace(CASE, variants=(CASE.variants[0], replace(ours, **changes))),), 0.02)

    for ratio, limit, fails in ((ours.ratio, 1.3, False), (ours.ratio, 1.31, True), (None, 0.1, True)):
        if fails:
            with pytest.raises(TooSlowError):
                _judge(bench(ratio=ratio, message="why"), limit)
        else:
            _judge(bench(ratio=ratio), limit)
    with pytest.raises(KeyboardInterrupt):
        _judge(Bench((), 0.02, interrupted=True), None)
    with pytest.raises(GraphoptError, match="why"):
        _judge(
            Bench((replace(CASE, variants=(replace(CASE.variants[0], status="failed", message="why"),)),), 0.02), None
        )


def test_the_page(cli, model):
    done = cli("bench", "net.onnx", *QUICK[2:], "--budget", "2", "--strategy", "greedy", "--html", "page.html", "-q")
    assert done.code == 0, done.err
    page = model.with_name("page.html").read_text(encoding="utf-8")
    assert "Benchmark of net.onnx" in page and "graphopt greedy" in page
    # On a busy machine it may not be sure.
    assert "times as fast as ORT_ENABLE_ALL" in page or "found nothing that is surely faster" in page
    assert '"nodes"' in page  # the graph before and after came along
    assert cli("bench", "net.onnx", *QUICK, "--html", "net.onnx").code == 2
    assert cli("bench", "net.onnx", *QUICK, "--html", "no/such/page.html").code == 2
    assert cli("bench", "net.onnx", *QUICK, "--html", "-").code == 2
