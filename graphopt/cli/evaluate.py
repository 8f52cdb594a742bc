"""``graphopt evaluate-agent``: trained agents against search, stage by stage."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import console, each, facts, table, write_json
from graphopt.errors import GraphoptError, UsageError, reason
from graphopt.files import write_text
from graphopt.wording import one_line, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from graphopt.rl.evaluation.protocol import Evaluator
    from graphopt.rl.evaluation.scores import Evaluation, Timing

_STAGES = "1,2,3,4,5"
_FILES = ("results.csv", "table.md", "index.html", "curves.svg")  # in the order in which they are written
_GAP = 3  # what rich puts between two columns
_NAME = 12  # characters of a graph's name that a line has room for at least


def evaluate_agent(
    folder: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders that `train-agent` wrote.", show_default=False)
    ],
    stages: Annotated[
        str,
        option(
            "--stages",
            metavar="NUMBERS",
            help="1 one graph and seed, 2 many seeds, 3 new shapes, 4 new graphs of the families, 5 unseen families "
            f"(default {_STAGES}).",
        ),
    ] = _STAGES,
    seeds: Annotated[
        int, option(metavar="N", help="Seeds for each graph, over all runs of an algorithm (default 5).")
    ] = 5,
    rollouts: Annotated[int, option(metavar="N", help="Episodes by chance of each plan (default 8).")] = 8,
    limit: Annotated[
        float,
        option("--seconds", metavar="S", help="Limit of a search that has the training's time as well (default 10)."),
    ] = 10.0,
    measure: Annotated[
        float | None,
        option(
            "--measure", metavar="S", help="Also measure agents and auto on the unseen families, S seconds a graph."
        ),
    ] = None,
    out: Annotated[Path, option(metavar="DIR", help="Folder for the results (default: evaluation).")] = Path(
        "evaluation"
    ),
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare agents at equal budgets with greedy, backtracking, local, tree and random search, and with an agent that has learned nothing.

    Runs of one algorithm count as one agent that was trained with several seeds. Writes index.html, results.csv, table.md and curves.svg;
    Ctrl-C ends it with what was found so far.
    """
    from graphopt.cli.progress import Interrupt, StepProgress, Waiting

    with Waiting("loading the libraries", shown=not quiet):
        from graphopt.rl.evaluation.protocol import EvaluationPlan, Evaluator, read_agents

    if measure is not None and not (measure > 0 and math.isfinite(measure)):
        raise UsageError(f"--measure must be above 0, not {measure}")
    plan = EvaluationPlan(_numbers(stages), seeds, rollouts, limit)
    plan.check()
    agents = read_agents(folder)
    graphs = agents[0].manifest.task.graphs
    files = [source.model for source in (*graphs.train, *graphs.shapes, *graphs.family, *graphs.held_out)]
    models = {f"the model {name}": Path(name) for name in files if Path(name).is_file()}
    writes = {f"{name} of the evaluation": out / name for name in _FILES}
    paths.report_file(json, models, {f"the agent {each}": each for each in folder}, writes)
    with Interrupt("what was found so far") as interrupt:
        with Waiting("making the models ready", shown=not quiet):
            evaluator = Evaluator(agents, plan, interrupted=interrupt)
        if measure is not None and 5 not in evaluator.stages:
            raise UsageError("--measure is for the unseen families, and there are none", "see held_out in the task")
        made = _folder(out)
        screen = console()
        size = evaluator.size + (0 if measure is None else len(evaluator.stages[5]) * (2 + len(evaluator.groups)))
        with StepProgress(size, shown=not quiet) as bar:
            evaluator.tell = bar
            found = evaluator.found
            for found in evaluator.run():
                if not found.scores:  # what an earlier evaluation has found is worth more than nothing
                    continue
                with suppress(GraphoptError, OSError, ExceptionGroup):  # what fails is said in the end
                    _write(found, out)
            if measure is not None and not interrupt():
                found = _measure(evaluator, measure)
    if found.interrupted and not found.scores:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise KeyboardInterrupt

    def write() -> None:
        _write(found, out)
        if not quiet:
            screen.print(f"written {one_line(str(out))}: index.html, results.csv, table.md, curves.svg", soft_wrap=True)

    each(
        None if quiet else lambda: _show(found, console(stderr=json == "-")),
        None if json is None else lambda: write_json(found.json(), json),
        write,
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--stages must be numbers with commas, such as 1,2,5, not {text!r}") from None


def _folder(out: Path) -> list[Path]:
    """Make the folder; which ones had to be made, the innermost first.

    Raises:
        UsageError: Files of others would be overwritten there.
        GraphoptError: It can't be made.
    """
    missing = [path for path in (out, *out.parents) if not path.exists()]
    there = next((out / name for name in _FILES if (out / name).is_file()), None)
    if there is not None and not _is_evaluation(out):
        raise UsageError(f"{there} is there and not of an evaluation", "choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphoptError(f"{out}: can't be made: {reason(error)}") from error
    return missing


def _is_evaluation(folder: Path) -> bool:
    """Whether an evaluation has written there: the first of its files begins as we begin it."""
    path = folder / _FILES[0]
    if not path.is_file():
        return False  # opening a pipe would wait for a writer
    with suppress(OSError), path.open("rb") as file:
        return file.readline(1000).startswith(b"stage,")
    return False


def _measure(evaluator: Evaluator, seconds: float) -> Evaluation:
    """Measure the first run of each algorithm and `auto` on the held-out graphs."""
    from graphopt.benchmark.agents import time_agents

    folders = {algorithm: group[0].folder for algorithm, group in evaluator.groups.items()}
    timings: list[Timing] = []
    for source in evaluator.stages[5]:
        if evaluator.interrupted():
            break
        try:
            timings += time_agents(
                evaluator.task,
                source,
                folders,
                evaluator.prices,
                seconds,
                rollouts=evaluator.plan.rollouts,
                tell=evaluator.tell,
                interrupted=evaluator.interrupted,
            )
        except GraphoptError as error:
            evaluator.note(f"{source.name} was not measured: {error}")
    return evaluator.add(timings)


def _write(found: Evaluation, out: Path) -> None:
    """Write the files, each whole or not at all, and whatever became of the others."""
    from graphopt.report.evaluation import to_csv, to_markdown
    from graphopt.report.evaluation_page import write_evaluation_page
    from graphopt.report.plots import draw_curves

    each(
        lambda: write_text(out / "results.csv", to_csv(found)),
        lambda: write_text(out / "table.md", to_markdown(found)),
        lambda: write_evaluation_page(found, out / "index.html"),
        lambda: write_text(out / "curves.svg", draw_curves(found.curves)) if found.curves else None,
    )


def _fitting(heads: Sequence[str], lines: Sequence[Sequence[str]], width: int, texts: int) -> Table:
    """A table whose heads, and cells of several figures, break at spaces where there is no room: no figure does, a name at last.

    Args:
        heads: Of the columns.
        lines: Cells.
        width: The room.
        texts: How many columns, counted from the first, are names.
    """
    result = table(*heads, whole=True, numbers=len(heads) - texts)
    least = _least(heads, lines, texts)
    for index, column in enumerate(result.columns):
        column.min_width, column.no_wrap = least[index], index < texts
    missing = _needed(least) - width
    if missing > 0:
        first = result.columns[0]
        for column, needed in zip(result.columns, least, strict=True):
            column.width = needed
        first.no_wrap, first.min_width, first.width = False, None, max(len(heads[0]), least[0] - missing)
    for line in lines:
        result.add_row(*line)
    return result


def _least(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: int) -> list[int]:
    """How narrow each column can be; see :func:`_fitting`."""
    found = []
    for index, head in enumerate(heads):
        cells = [line[index] for line in lines]
        pieces = cells if index < texts else [word for cell in cells for word in cell.split()]
        found.append(max(map(len, [*head.split(), *pieces]), default=1))
    return found


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _savings(heads: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> Table:
    """A line for each graph: its name, the candidates, what each strategy saves; where these find no room, a line for each strategy."""
    name, *others = _least(heads, lines, texts=1)
    if _needed([min(name, _NAME), *others]) <= width:
        return _fitting(heads, lines, width, texts=1)
    turned = [
        [graph if not index else "", kind, candidates if not index else "", saving]
        for graph, candidates, *savings in lines
        for index, (kind, saving) in enumerate(zip(heads[2:], savings, strict=True))
    ]
    return _fitting(["graph", "strategy", heads[1], "saves"], turned, width, texts=2)


def _show(found: Evaluation, screen: Console) -> None:
    """Print a table for each stage at equal real steps, what came of all budgets, and what to know about it."""
    from graphopt.report.evaluation import allowed, measured, saved, summary, summary_words
    from graphopt.rl.evaluation.scores import STAGES, STEPS

    stage = 0
    for section in found.sections():
        if section.budget != STEPS:
            continue
        if section.stage != stage:
            stage = section.stage
            screen.print()
            screen.print(f"Stage {stage}, {STAGES[stage]}: predicted saving in per cent", style="bold")
        kinds = section.rivals
        heads = [kind if len(names) == 1 else f"best {kind}" for kind, names in kinds.items()]
        lines: list[list[str]] = []
        for model in section.models:
            cells = []
            for names in kinds.values():
                best = section.best(names, model)
                which = f" at {best[1].partition(' ')[2]}" if best is not None and len(names) > 1 else ""
                cells.append("" if best is None else f"{saved(best[0])}{which}")
            own = saved(section.saving(section.algorithm, model))
            lines.append([one_line(model), allowed(section, model), own, *cells])
        screen.print(_savings(["graph", "candidates", section.algorithm, *heads], lines, screen.width))
    screen.print()
    screen.print(summary_words(found), style="bold")
    screen.print(_fitting(*summary(found), screen.width, texts=2))
    if found.timings:
        screen.print()
        screen.print("Measured on the unseen families", style="bold")
        heads = ["graph", "agent", "speed", "speed of auto", "over auto", "searched", "auto searched"]
        lines = []
        for t in found.timings:
            ratios = (measured(r) for r in (t.speedup, t.auto, t.over_auto))
            lines.append([one_line(t.model), t.algorithm, *ratios, seconds(t.seconds), seconds(t.auto_seconds)])
        for algorithm, means, times in found.timing_means():
            lines.append(["geometric mean", algorithm, *(f"{m:.3f}" for m in means), *map(seconds, times)])
        screen.print(_fitting(heads, lines, screen.width, texts=2))
    told = facts()
    for reach in found.reaches:
        if "/" in reach.measure:
            continue
        target = f"ppo's {reach.target:.2f} %"
        if reach.steps is None:
            said = f"never within 1 % of {target}"
        else:
            fewer = "" if reach.algorithm == "ppo" else f", {measured(reach.fewer, 1)} times fewer"
            said = f"{target} after {reach.steps} real steps{fewer}"
        told.add_row(f"{reach.algorithm}, {reach.measure}", said)
    for note in found.notices:
        told.add_row("note", one_line(note))
    if found.interrupted:
        told.add_row("note", "ended early: this is what was found until then")
    screen.print()
    screen.print(told)
