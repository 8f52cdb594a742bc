"""The document of a benchmark: everything comes back from JSON, and what is something else is refused."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

from graphopt.benchmark.results import (
    Bench,
    Case,
    Check,
    Family,
    Latency,
    Operator,
    Placed,
    Ratio,
    Search,
    Step,
    Trial,
    Tuning,
    Variant,
    to_csv,
)
from tests.bench.again import read_bench

RATIO = Ratio(1.25, 1.2, 1.3, "faster")
CASE = Case(
    model="net.onnx",
    path="net.onnx",
    provider="cpu",
    threads=2,
    variants=(
        Variant(
            "original",
            "level",
            status="measured",
            latency=Latency(4.0, 5.0, 6.0, 7.0, (3.5, 4.0)),
            open_ms=12.0,
            size=100,
        ),
        Variant("original (basic)", "level", "basic", "measured", ratio=Ratio(0.5, 0.4, 0.6, "slower")),
        Variant("onnxsim", "peer", status="missing", message="not installed, sorry"),
        Variant(
            "graphopt greedy",
            "graphopt",
            status="measured",
            ratio=RATIO,
            over_best=RATIO,
            peak=5,
            nodes=7,
            optimise_s=1.5,
            version="0.1",
            check=Check(True, 3, 1e-6, None, "fine"),
            operators=(Operator("Conv", 3, 1.5, 0.75),),
            placed=Placed({"openvino": 3, "cpu": 1}, {"NonZero": 1}, "cpu", True),
            search=Search(
                "greedy",
                5,
                0.5,
                "done",
                False,
                (Step("r", "n", 2.0, 1.0, "f"),),
                (Family("f", None, None, None, True),),
                ((0, 0.1, 2.0), (1, 0.4, 1.0)),
            ),
        ),
    ),
    best_level="all",
    sessions=8,
    rounds=40,
    measured_s=1.5,
    noisy=("original (basic)",),
    environment={"cpu": "x", "isa": ["avx2"]},
    tuning=Tuning(
        "original",
        (Trial("2 threads", {"intra_op_num_threads": 2}, RATIO, "no"),),
        ("2 threads",),
        {"a": 1},
        RATIO,
        "import x",
    ),
    sizes={"batch": 1, "seq": 8},
    assumed=("seq",),
)
BENCH = Bench((CASE, Case("b", "b", "cpu", 1, ())), precision=0.02, interrupted=True, seconds=3.0, version="0.1.0")


def test_round_trip(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH.to_dict()), encoding="utf-8")
    assert read_bench(path.read_text()) == BENCH
    assert BENCH.to_dict()["schema"] == "graphopt.bench/1"
    told = json.loads(path.read_text())["cases"][0]
    assert told["sizes"] == {"batch": 1, "seq": 8} and told["assumed"] == ["seq"]


def test_csv():
    rows = list(csv.DictReader(io.StringIO(to_csv(BENCH))))
    assert [row["variant"] for row in rows] == [v.name for v in CASE.variants]
    first, basic, peer, ours = rows
    assert first["ratio"] == "" and first["p99_ms"] == "7.0" and first["open_ms"] == "12.0"
    assert (basic["level"], basic["verdict"]) == ("basic", "slower")
    assert (peer["status"], peer["message"]) == ("missing", "not installed, sorry")
    assert (ours["ratio"], ours["same"], ours["max_rel"], ours["threads"]) == ("1.25", "True", "", "2")
    assert all(row["sizes"] == "batch=1, seq=8" for row in rows)
    assert to_csv(Bench((), 0.02)).startswith("model,provider,threads,variant,")


def test_a_model_named_like_a_formula_is_text_in_a_table() -> None:
    variant = Variant("original", "level", level="all", status="measured", ratio=Ratio(1.0, -0.5, 1.0, "equal"))
    case = Case("=cmd|' /C calc'!A0", "net.onnx", "cpu", 1, (variant,))
    row = next(csv.DictReader(io.StringIO(to_csv(Bench((case,), 0.01)))))
    assert row["model"] == "'=cmd|' /C calc'!A0"
    assert float(row["low"]) == -0.5


def test_the_page_calls_a_run_a_run(tmp_path) -> None:
    """A benchmark's samples are single runs; the page of an optimisation shows turns, and both had one caption."""
    from graphopt.benchmark.page import write_bench_page
    from graphopt.report import view
    from graphopt.report.render import render

    timed = Latency(4.0, 4.2, 5.0, 5.3, (3.5, 4.0, 4.5))
    where = {"onnxruntime": "1", "cpu": "c", "isa": "", "cores": 1, "threads": 1, "provider": "cpu", "level": "all"}
    original = Variant("original", "level", level="all", status="measured", latency=timed)
    write_bench_page(Bench((Case("n", "n", "cpu", 1, (original,), environment=where),), 0.02), {}, tmp_path / "b.html")
    text = (tmp_path / "b.html").read_text()
    assert "Each dot is one run;" in text and "the speed-up is that of turns" in text and "one turn" not in text
    turns = view.Subject("n", "s", variants=(view.Variant("original", True, (3.5, 4.0)),))
    assert "Each dot is one turn;" in render(view.Page("t", (turns,), ()))


def test_the_page_knows_the_families_of_steps(tmp_path) -> None:
    from graphopt.benchmark.page import write_bench_page

    search = Search(
        "greedy", 3, 1.0, "done", False, (Step("merge", "node", 4.0, 3.0, "grouped-conv"),),
        (Family("grouped-conv", 1.3, 1.2, 1.4, True),),
    )  # fmt: skip
    ours = Variant("graphopt greedy", "graphopt", status="measured", ratio=RATIO, search=search)
    environment = {
        "onnxruntime": "1",
        "cpu": "c",
        "isa": "",
        "cores": 1,
        "threads": 1,
        "provider": "cpu",
        "level": "all",
    }
    original = Variant("original", "level")
    case = Case(
        "net.onnx", "net.onnx", "cpu", 1, (original, ours), environment=environment, sizes={"batch": 1, "seq": 8}
    )
    write_bench_page(Bench((case,), 0.02), {}, tmp_path / "b.html")
    text = (tmp_path / "b.html").read_text()
    assert '<th scope="row">merge</th><td>grouped-conv</td>' in text
    assert '<th scope="row">grouped-conv</th><td class="n">+25.00 %</td>' in text
    assert "graphopt greedy runs net.onnx" in text and "2 variants took turns with batch=1, seq=8 over" in text
    kept = dataclasses.replace(case, variants=(case.variants[0], dataclasses.replace(ours, search=dataclasses.replace(search, kept_original=True))))  # fmt: skip
    write_bench_page(Bench((kept,), 0.02), {}, tmp_path / "b.html")
    text = (tmp_path / "b.html").read_text()
    assert "left net.onnx unchanged" in text and "graphopt greedy runs net.onnx" not in text
