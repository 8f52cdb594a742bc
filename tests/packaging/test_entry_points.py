"""A package from outside adds a strategy, a cost model and an algorithm with one line each, and all of graphopt knows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo_regnet.onnx"
DESCENT, TABLE = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
TOY = ROOT / "tests" / "rl" / "toy" / "toy.yaml"

MODULE = '''
"""A strategy, a cost model and an algorithm that graphopt does not bring."""
from dataclasses import replace
from math import inf, nan

from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.models import CostModelSpec
from graphopt.rl.training.learners import PPO_SPEC, LearnerSpec
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Outcome
from graphopt.search.strategies import StrategySpec


class Hasty(Greedy):
    name = "hasty"



class Failing:
    name = "failing"

    def run(self, problem, start, budget, report=None):
        return 1 / 0


class Silent:
    name = "silent"

    def run(self, problem, start, budget, report=None):
        budget.spent += 1


class Unstated(Silent):
    def run(self, problem, start, budget, report=None):
        return Outcome("the best", (), 0, 0.0, "done")


class Leaving(Silent):
    def run(self, problem, start, budget, report=None):
        raise SystemExit(7)


class Dear(AnalyticCost):
    def of(self, graph):
        return "dear"


class Odd(AnalyticCost):
    def __init__(self, first, later, **kwargs):
        super().__init__(**kwargs)
        self.first, self.later = first, later

    def of(self, graph):
        return replace(super().of(graph), total=self.first)

    def total_after(self, costs, graph, delta):
        return self.later


class Stuck(AnalyticCost):
    def of(self, graph):
        return 1 / 0


class Doubled(AnalyticCost):
    name = "doubled"


HASTY = StrategySpec("hasty", "greedy in a hurry", lambda settings: Hasty(), trials={"hasty": {}})
FAILING = StrategySpec("failing", "divides by zero", lambda settings: Failing())
SILENT = StrategySpec("silent", "finds nothing", lambda settings: Silent())
UNMADE = StrategySpec("unmade", "can't be made", lambda settings: {}["nothing"])
DOUBLED = CostModelSpec("doubled", "twice the roofline", lambda wanted: Doubled(dims=wanted.dims))
UNSTATED = StrategySpec("unstated", "returns no state", lambda settings: Unstated())
LEAVING = StrategySpec("leaving", "ends the process", lambda settings: Leaving())
DEAR = CostModelSpec("dear", "no costs", lambda wanted: Dear(dims=wanted.dims))
NAN = CostModelSpec("nan", "no number", lambda wanted: Odd(nan, nan, dims=wanted.dims))
INFINITE = CostModelSpec("infinite", "for ever", lambda wanted: Odd(inf, inf, dims=wanted.dims))
NEGATIVE = CostModelSpec("negative", "before it begins", lambda wanted: Odd(1.0, -2.0, dims=wanted.dims))
STUCK = CostModelSpec("stuck", "divides by zero", lambda wanted: Stuck(dims=wanted.dims))
PRICELESS = CostModelSpec("priceless", "can't be made", lambda wanted: {}["nothing"])
UNTAUGHT = LearnerSpec("untaught", "can't be made", lambda *given: {}["nothing"])
COPYCAT = LearnerSpec("copycat", "PPO by another name", PPO_SPEC.make)
BROKEN = "no specification"
'''
ENTRIES = """\
[graphopt.strategies]
descent = descent:SPEC
hasty = outside:HASTY
broken = outside:BROKEN
failing = outside:FAILING
silent = outside:SILENT
unmade = outside:UNMADE
raising = raising:SPEC
misspelt = misspelt:SPEC
auto = outside:HASTY
unstated = outside:UNSTATED
leaving = outside:LEAVING

[graphopt.cost_models]
table = table:SPEC
doubled = outside:DOUBLED
dear = outside:DEAR
stuck = outside:STUCK
nan = outside:NAN
infinite = outside:INFINITE
negative = outside:NEGATIVE
priceless = outside:PRICELESS

[graphopt.learners]
copycat = outside:COPYCAT
unlearned = raising:SPEC
untaught = outside:UNTAUGHT
"""


BATCH = """
import contextlib, io, json, sys
from graphopt.cli.main import run
told = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(arguments)
    told.append([code, said.getvalue()])
print(json.dumps(told))
"""
BREAKS = ("raising", "misspelt", "failing", "unmade", "unstated", "leaving", "unlearned", "silent")
MODELS = ("dear", "stuck", "nan", "infinite", "negative", "priceless")
DRY = ("optimize", str(DEMO), "--dry-run", "--no-measure", "-q")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where a package is installed that adds the three."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "outside-1.0.dist-info"
    info.mkdir()
    (folder / "outside.py").write_text(MODULE, encoding="utf-8")
    (folder / "raising.py").write_text("raise RuntimeError('my bug')", encoding="utf-8")
    (folder / "misspelt.py").write_text("def spec(:", encoding="utf-8")
    (folder / "descent.py").write_text(DESCENT, encoding="utf-8")
    (folder / "table.py").write_text(TABLE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRIES, encoding="utf-8")
    return folder


def python(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture
def call(site, tmp_path):
    """Calls Python where the package is installed."""
    return partial(python, site, tmp_path)


@pytest.fixture(scope="module")
def told(site, tmp_path_factory) -> dict[str, tuple[int, list[str]]]:
    """Exit code and complaints of commands that name one thing of the package each, by what they name: one process runs them all."""
    commands = {name: [*DRY, "--strategy", name] for name in (*BREAKS, "untaught", "hasti", "broken")}
    commands |= {name: [*DRY, "--cost-model", name] for name in MODELS}
    done = python(site, tmp_path_factory.mktemp("told"), "-c", BATCH, json.dumps(list(commands.values())))
    assert done.returncode == 0, done.stderr
    return {
        name: (code, said.splitlines()) for name, (code, said) in zip(commands, json.loads(done.stdout), strict=True)
    }


def graphopt(call, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call("-m", "graphopt", *arguments)


def test_a_strategy_and_a_cost_model_from_outside(call):
    done = graphopt(
        call, "optimize", str(DEMO), "--dry-run", "--no-measure", "-q", "--json", "-", "--strategy", "hasty",
        "--cost-model", "doubled",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["strategy"] == "hasty" and report["steps"]
    help_ = " ".join(graphopt(call, "optimize", "--help").stdout.split())
    assert (
        "random, ils, mcts, egraph, none, descent, hasty, broken, failing, silent, unmade, raising, misspelt, unstated, leaving, rl, world-model, copycat, unlearned or untaught"
        in help_
        and "kernel (default), analytic, table, doubled, dear, stuck, nan, infinite, negative or priceless"
        in help_  # operators needs prices, which only a task names
    )


def test_a_name_from_outside_is_proposed(told):
    code, lines = told["hasti"]
    assert code == 2 and any("did you mean 'hasty'?" in line for line in lines)


def test_the_strategy_of_the_guide_searches_and_keeps_its_budget(call):
    done = graphopt(
        call, "optimize", str(DEMO), "--dry-run", "--no-measure", "-q", "--json", "-", "--strategy", "descent"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] and report["search"]["candidates"] >= len(report["steps"])
    assert report["search"]["stop_reason"] == "no rewrite saves anything"


def test_the_cost_model_of_the_guide_prices(call):
    code = (
        "import table\n"
        "from graphopt.onnxio.load import load\n"
        f"graph = load({str(DEMO)!r}).graph\n"
        "nodes = [node.op for node in graph.nodes.values() if not graph.is_lazy(node)]\n"
        "assert abs(table.Table().of(graph).total - sum(table.MS.get(op, 0.1) for op in nodes)) < 1e-6\n"
    )
    done = call("-c", code)
    assert done.returncode == 0, done.stderr
    done = graphopt(
        call, "optimize", str(DEMO), "--dry-run", "--no-measure", "-q", "--json", "-", "--cost-model", "table"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["search"]["candidates"] > 0


def test_what_is_no_specification_is_one_line(told):
    assert told["broken"] == (
        1,
        ["error: strategy 'broken' of package outside: outside:BROKEN is no StrategySpec of that name"],
    )


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("raising", ": raising:SPEC can't be imported: unexpected RuntimeError: my bug"),
        ("misspelt", ": misspelt:SPEC can't be imported: unexpected SyntaxError: invalid syntax (misspelt.py, line 1)"),
        ("failing", ": unexpected ZeroDivisionError: division by zero"),
        ("unmade", ": unexpected KeyError: 'nothing'"),
        ("unstated", " returned str, not a State"),
        ("leaving", ": unexpected SystemExit: 7"),
    ],
)
def test_what_breaks_is_told_with_its_name_and_its_package(told, strategy, said):
    code, lines = told[strategy]
    assert code == 1 and lines[0] == f"error: strategy {strategy!r} of package outside{said}"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("dear", " returned str, not a Costs"),
        ("stuck", ": unexpected ZeroDivisionError: division by zero"),
        ("nan", " predicts that a graph takes nan ms"),
        ("infinite", " predicts that a graph takes inf ms"),
        ("negative", " predicts that a graph takes -2.0 ms"),
        ("priceless", ": unexpected KeyError: 'nothing'"),
    ],
)
def test_a_cost_model_that_breaks_is_told_with_its_name_and_its_package(told, model, said):
    assert told[model] == (
        1,
        [
            f"error: cost model {model!r} of package outside{said}",
            "hint: this is a fault of that package; GRAPHOPT_DEBUG=1 shows the traceback",
        ],
    )


def test_the_strategy_of_an_algorithm_without_an_agent_says_what_is_missing(told):
    assert told["unlearned"] == (
        1,
        [
            "error: algorithm 'unlearned' of package outside: raising:SPEC can't be imported: unexpected RuntimeError: my bug"
        ],
    )
    assert told["untaught"] == (
        2,
        [
            "error: strategy 'untaught' needs an agent, and none comes with graphopt",
            "hint: train one: graphopt train-agent --algo untaught --out DIR, and give --agent DIR",
        ],
    )


@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="begins to train an agent")
def test_an_algorithm_that_breaks_is_told_with_its_name_and_its_package(call):
    done = graphopt(call, "train-agent", "--task", str(TOY), "--algo", "untaught", "--preset", "debug", "-q")
    assert done.returncode == 1
    assert "error: algorithm 'untaught' of package outside: unexpected KeyError: 'nothing'" in done.stderr.splitlines()


def test_a_strategy_that_returns_nothing_is_named(told):
    assert told["silent"] == (
        1,
        [
            "error: strategy 'silent' of package outside returned NoneType, not an Outcome",
            "hint: this is a fault of that package; GRAPHOPT_DEBUG=1 shows the traceback",
        ],
    )


def test_what_breaks_leaves_the_others_alone_and_what_is_called_like_ours_is_told(call):
    code = (
        "import warnings\n"
        "from graphopt.rl.training.learners import LEARNERS\n"
        "from graphopt.search.strategies import SEARCHES\n"
        "with warnings.catch_warnings(record=True) as heard:\n"
        "    warnings.simplefilter('always')\n"
        "    assert [spec.name for spec in LEARNERS.all()] == ['ppo', 'world-model', 'copycat', 'untaught']\n"
        "    assert {'auto', 'hasty', 'silent'} <= {spec.name for spec in SEARCHES.all()}\n"
        "print(*(each.message for each in heard), sep='\\n')\n"
    )
    done = call("-c", code)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert (
        "algorithm 'unlearned' of package outside: raising:SPEC can't be imported: unexpected RuntimeError: my bug"
        in told
    )
    assert "package outside adds a strategy 'auto', which is not used: graphopt has one of that name" in told


def test_tasks_and_evaluations_know_them(call):
    code = (
        "from graphopt.rl.evaluation.graph_runs import searches\n"
        "from graphopt.rl.task import parse_task\n"
        "from graphopt.rl.training.environments import cost_model\n"
        "from graphopt.cost.store import Store\n"
        "assert 'hasty' in [rival.label for rival in searches(chance=False)]\n"
        "task = parse_task('name: t\\npricing: {model: doubled}', 't.yaml')\n"
        "assert cost_model(task.pricing, Store(None)).name == 'doubled'\n"
    )
    done = call("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="trains an agent")
def test_an_algorithm_from_outside_trains_an_agent_that_is_used(call, tmp_path):
    trained = graphopt(
        call, "train-agent", "--task", str(TOY), "--algo", "copycat", "--preset", "debug", "--steps", "20", "--out", "agent",
        "-q",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    done = graphopt(
        call, "optimize", str(DEMO), "--dry-run", "--no-measure", "-q", "--json", "-", "--strategy", "copycat", "--agent",
        "agent",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["strategy"] == "copycat"
    evaluated = graphopt(call, "evaluate-agent", "agent", "--stages", "1", "--json", "-", "-q", "--rollouts", "1")
    assert evaluated.returncode == 0, evaluated.stderr
    assert {"copycat", "hasty"} <= {score["strategy"] for score in json.loads(evaluated.stdout)["scores"]}
