"""The evaluation of agents as a table of plain values and as Markdown."""

from __future__ import annotations

from dataclasses import asdict, fields

from graphopt.rl.evaluation.learning_curves import SMOOTHED_UPDATES
from graphopt.rl.evaluation.scores import (
    BUDGETS,
    EQUAL_SAVING_POINTS,
    STAGES,
    STEPS,
    TRAINING,
    Estimate,
    Evaluation,
    RatioInterval,
    Section,
)
from graphopt.wording import csv_table, plural, seconds


def to_csv(found: Evaluation) -> str:
    """A line for each run, with a head."""
    names = [f.name for f in fields(found.scores[0])] if found.scores else ["stage", "model", "strategy", "saving"]
    return csv_table(names, map(asdict, found.scores))


def to_markdown(found: Evaluation) -> str:
    """Everything as tables, with what one must know to read them."""
    parts = [f"# Agents for task {found.task}", *about(found), summary_words(found), _table(*summary(found))]
    stage = 0
    for section in found.sections():
        if section.stage != stage:
            stage = section.stage
            parts.append(f"## Stage {stage}: {STAGES[stage]}")
        parts += [
            f"### {section.algorithm}, {budget_words(found, section)}",
            _table(*savings(section)),
            _verdicts(section),
        ]
    if found.timings:
        note, heads, rows = timings(found)
        parts += ["## Measured", note, _table(heads, rows)]
    if found.reaches:
        note, heads, rows = reached(found)
        parts += ["## Sample efficiency", note, _table(heads, rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def saved(found: Estimate | None) -> str:
    """A saving in per cent, with half the width of its interval where there is one."""
    if found is None:
        return ""
    return f"{found.mean:.2f}" + (f" ± {found.high - found.mean:.2f}" if found.count > 1 else "")


def measured(ratio: RatioInterval, digits: int = 3) -> str:
    """A ratio with its interval."""
    return f"{ratio.value:.{digits}f} ({ratio.low:.{digits}f} to {ratio.high:.{digits}f})"


def allowed(section: Section, model: str) -> str:
    """What the searches got on a graph."""
    most = section.allowed(model)
    return "" if most is None else f"{most:.0f}" if section.budget == STEPS else seconds(most)


def budget_words(found: Evaluation, section: Section) -> str:
    """What the searches got, in words."""
    if section.budget != TRAINING:
        return f"equal {section.budget}"
    whole = found.training_seconds(section.algorithm)
    return f"equal {section.budget} ({seconds(whole)} over {plural(found.graphs, 'graph')}, at most {seconds(found.cap)} in all)"


def summary(found: Evaluation) -> tuple[list[str], list[list[str]]]:
    """A row for each stage and agent: what it saves, and on how many graphs at least as much as each kind of search at each budget.

    Where nothing ran there is a dash.

    Returns:
        The heads, and the rows.
    """
    rows: dict[tuple[int, str], list[str]] = {}
    kinds = list(dict.fromkeys(kind for section in found.sections() for kind in section.rivals))
    for section in found.sections():
        mean = saved(section.mean(section.algorithm))
        row = rows.setdefault((section.stage, section.algorithm), [str(section.stage), section.algorithm, mean])
        counts = [section.at_least(*section.rivals.get(kind, ())) for kind in kinds]
        row.append(" ".join(f"{n}/{m}" if m else "-" for n, m in counts) if any(m for _, m in counts) else "-")
    return ["stage", "agent", "saves, %", *BUDGETS], list(rows.values())


def summary_words(found: Evaluation) -> str:
    """How to read the summary."""
    kinds = list(dict.fromkeys(kind for section in found.sections() for kind in section.rivals))
    names = ", ".join(
        "backtracking with the best alpha of each graph" if kind == "backtracking" else kind for kind in kinds
    )
    return (
        f"Mean saving, and at equal budgets the number of graphs on which the agent saves at least as much as {names}."
    )


def _verdicts(section: Section) -> str:
    """On how many graphs the agent does at least as well as each search."""
    told = [(other, *section.at_least(other)) for others in section.rivals.values() for other in others]
    told += [
        (f"the best {kind}", *section.at_least(*others)) for kind, others in section.rivals.items() if len(others) > 1
    ]
    told = [entry for entry in told if entry[2]]
    return f"At least as much as {', '.join(f'{o}: {n} of {m}' for o, n, m in told)}." if told else ""


def about(found: Evaluation) -> list[str]:
    """What was compared, and how."""
    lines = [
        "Predicted saving in per cent of the model as it was, carried out at every place, all by the same prices. The searches get "
        "what the agent used on the same graph, on the mean over its seeds: as many candidates as it priced, or as many as it made "
        "environment steps where these are more; its seconds; or its seconds and a share of those of its training. Greedy and "
        "backtracking know no chance and run once, greedy always to its end. Search finishes an agent's best plans: `by itself` is "
        "what the agent saved before that. Intervals hold 95 % (Student's t)."
    ]
    rows = []
    for algorithm in found.algorithms:
        ours = [agent for agent in found.agents if agent.algorithm == algorithm]
        over = "training runs" if len(ours) > 1 else "the seeds of its episodes: it was trained once"
        steps = sum(agent.steps for agent in ours) / len(ours)
        rows.append(
            f"- {algorithm}: {plural(len(ours), 'training run')} of {steps:.0f} environment steps and "
            f"{seconds(found.training_seconds(algorithm))} on the mean; intervals are over {over}"
        )
    rows += [f"- {note}" for note in found.notices]
    if found.interrupted:
        rows.append("- the evaluation was ended early: what is here was found until then")
    return [*lines, "\n".join(rows)]


def savings(section: Section) -> tuple[list[str], list[list[str]]]:
    """What each strategy saves on each graph, the best in bold: the heads, and the rows."""
    names, alone = section.strategies, section.alone
    rows = []
    for model in section.models:
        savings = {name: section.saving(name, model) for name in names}
        best = max((s.mean for s in savings.values() if s is not None), default=0.0)
        cells = [_bold(saved(s), s is not None and s.mean >= best - EQUAL_SAVING_POINTS) for s in savings.values()]
        cells.insert(1, saved(alone.saving(section.algorithm, model)))
        used = [s for s in section.of(section.algorithm, model) if s.steps is not None]
        steps = sum(s.steps or 0 for s in used) / len(used) if used else 0
        rows.append([model, f"{steps:.0f}", allowed(section, model), *cells])
    if len(rows) > 1:
        means = [saved(section.mean(name)) for name in names]
        rows.append(["mean", "", "", means[0], saved(alone.mean(section.algorithm)), *means[1:]])
    budget = "candidates" if section.budget == STEPS else "time"
    return ["graph", "agent's steps", budget, names[0], "by itself", *names[1:]], rows


def timings(found: Evaluation) -> tuple[str, list[str], list[list[str]]]:
    """Measured plans: how to read them, the heads, and the rows."""
    heads = ["graph", "agent", "speed", "speed of auto", "over auto", "searched", "auto searched", "share"]
    rows = [
        [
            t.model,
            t.algorithm,
            measured(t.speedup),
            measured(t.auto),
            measured(t.over_auto),
            seconds(t.seconds),
            seconds(t.auto_seconds),
            f"{t.seconds / t.auto_seconds:.2f}",
        ]
        for t in found.timings
    ]
    for algorithm, means, times in found.timing_means():
        share = f"**{times[0] / times[1]:.2f}**"
        rows.append(["geometric mean", algorithm, *(f"**{m:.3f}**" for m in means), *map(seconds, times), share])
    note = (
        "Latency of the original over that of the best predicted plan, and of auto's plan over the agent's, from interleaved rounds over "
        "several sessions, with 95 % intervals. auto had the time that `graphopt optimize` gives its search; "
        "neither asked the clock."
    )
    return note, heads, rows


def reached(found: Evaluation) -> tuple[str, list[str], list[list[str]]]:
    """How soon agents were good: how to read it, the heads, and the rows."""
    heads = ["measure", "agent", "within 1 % of", "after steps", "runs that did", "fewer than ppo"]
    rows = [
        [
            r.measure,
            r.algorithm,
            f"{r.target:.2f}",
            "never" if r.steps is None else str(r.steps),
            f"{r.reached} of {r.runs}",
            measured(r.fewer, 1),
        ]
        for r in found.reaches
    ]
    note = (
        f"Real environment steps until the mean of an agent's runs first came within one per cent of what ppo's had in the end. `saving` is the "
        f"mean of the last {SMOOTHED_UPDATES} updates' episodes, `best` the best saving met so far, mean over the models; see curves.svg. How many times "
        "fewer: bootstrap over the runs of both, 0 where they never came there."
    )
    return note, heads, rows


def _bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted and text else text


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
