"""What a page shows: plain data that knows neither who measured it nor how it is drawn.

Times are milliseconds, sizes bytes. Whatever is ``None`` or empty was not measured, and the page leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.runtime.profile import OpTime
from graphopt.runtime.timing import Ratio

Facts = tuple[tuple[str, str], ...]
"""Labels and texts, in the order in which they are listed."""


@dataclass(frozen=True)
class Variant:
    """One of the models that were run against each other.

    Attributes:
        name: What it is called in tables and charts; one name for one thing all over the page.
        baseline: Whether the others are compared with it.
        samples: Milliseconds of single runs or turns, in the order measured.
        ratio: Against the baseline; ``None`` for the baseline itself and where nothing was measured.
        nodes: In the file.
        file_bytes: Of the model with its weights.
        session_ms: To open it in the runtime.
        peak_bytes: Of memory, while it ran.
        made_s: Seconds that it took to make it.
        operators: Time by operator as the runtime runs it.
        note: What has to be said of it, such as why it failed.
    """

    name: str
    baseline: bool = False
    samples: tuple[float, ...] = ()
    ratio: Ratio | None = None
    nodes: int | None = None
    file_bytes: int | None = None
    session_ms: float | None = None
    peak_bytes: int | None = None
    made_s: float | None = None
    operators: tuple[OpTime, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class SearchCurve:
    """The best cost that a search knew, over time.

    Attributes:
        name: Of the strategy.
        points: Seconds and predicted milliseconds of one inference; the first is the original's.
        seconds: When the search ended.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    seconds: float


@dataclass(frozen=True)
class StepRow:
    """One rewrite on the way to the result.

    Attributes:
        rule: The rule.
        family: Its family; empty where that is not known.
        place: Name of the first value that it redefined.
        before: Predicted milliseconds of the model before it.
        after: Predicted milliseconds after it.
        change: Index of the change in the subject's graph that it became a part of.
    """

    rule: str
    family: str
    place: str
    before: float
    after: float
    change: int | None = None


@dataclass(frozen=True)
class FamilyRow:
    """What the clock said of a family of rules.

    Attributes:
        name: The family.
        measured: The model with its rewrites against the model without them.
        fate: What became of them: ``kept``, or why they were taken back.
    """

    name: str
    measured: Ratio | None
    fate: str = "kept"


@dataclass(frozen=True)
class ValueView:
    """A value that flows between nodes.

    Attributes:
        name: Its name in the model.
        type: Dtype and shape; of a constant of a few elements the content.
        input: Whether the model is given it.
        output: Whether the original and whether the result returns it.
    """

    name: str
    type: str
    input: bool = False
    output: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Wiring:
    """How a node stands in one of the two graphs: indices of values, ``None`` for what is left out."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


@dataclass(frozen=True)
class NodeView:
    """A node of one graph or of both.

    Attributes:
        name: Its name, may be empty.
        op: Its operator, with the domain unless that is ONNX's own.
        attributes: As text, clipped.
        before: How it stands in the original, ``None`` for a node that a rule made.
        after: How it stands in the result, ``None`` for a node that is gone.
        rule: The rule that made it.
        change: Index of the change that it belongs to, ``None`` for a node that stayed.
        column: Where it is drawn: its topological depth in both graphs laid over each other.
        lane: Where it is drawn across that.
    """

    name: str
    op: str
    attributes: str
    before: Wiring | None
    after: Wiring | None
    rule: str | None = None
    change: int | None = None
    column: int = 0
    lane: int = 0


@dataclass(frozen=True)
class ChangeView:
    """Nodes that went and nodes that came in one connected place.

    Attributes:
        rules: Rules that had a hand in it, the most frequent first; none when the graph was only cleaned up.
        removed: Indices of nodes of the original.
        added: Indices of nodes of the result.
        kind: Equal for changes by the same rules, of the same operators into the same operators.
    """

    rules: tuple[str, ...]
    removed: tuple[int, ...]
    added: tuple[int, ...]
    kind: int


@dataclass(frozen=True)
class GraphView:
    """Two graphs laid over each other.

    Nodes that only compute constants are left out, because they don't run: a value that no node makes and that is no input
    is a constant.

    Attributes:
        values: All values of both.
        nodes: All nodes of both.
        changes: Where they differ, in the order of the graph.
        before: What the first graph is called.
        after: What the second graph is called.
    """

    values: tuple[ValueView, ...]
    nodes: tuple[NodeView, ...]
    changes: tuple[ChangeView, ...]
    before: str = "original"
    after: str = "optimised"


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        title: Its heading.
        heads: Of the columns.
        rows: Cells; the first of each row is its head.
        note: How to read it.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Subject:
    """A model and all that was found out about it.

    Attributes:
        name: Of the model.
        summary: One sentence: what was measured, and how.
        facts: Figures at a glance.
        variants: What was run, the baseline first.
        curves: How each search went.
        steps: The rewrites.
        families: What measurement said of the rewrites' families.
        graph: What the rewrites did to the graph.
        notes: What a reader must know before believing a figure.
        tables: Further figures.
        drawing: An SVG image.
        single: Whether samples are single runs, not turns: their medians need not divide to the ratio, which is of turns.
    """

    name: str
    summary: str
    facts: Facts = ()
    variants: tuple[Variant, ...] = ()
    curves: tuple[SearchCurve, ...] = ()
    steps: tuple[StepRow, ...] = ()
    families: tuple[FamilyRow, ...] = ()
    graph: GraphView | None = None
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    drawing: str = ""
    single: bool = False


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        title: What it is about.
        subjects: The models; a table over all of them comes first where there are several.
        environment: Where this was measured.
        notes: What holds for all subjects.
    """

    title: str
    subjects: Sequence[Subject]
    environment: Facts = ()
    notes: tuple[str, ...] = ()
