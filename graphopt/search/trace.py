"""Traces: what a search did to a model, written down so that it can be done again, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from graphopt.config import Settings, check_arguments
from graphopt.documents import DocumentError, read_json, record
from graphopt.errors import GraphoptError, UsageError, expect_path, reason
from graphopt.files import write_text
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.types import digest
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Sites
from graphopt.search.cleaning import alone, rewritten
from graphopt.search.normal import within
from graphopt.search.problem import Step
from graphopt.wording import plural

SCHEMA = "graphopt.trace/2"

RECORDED = (
    "dims",
    "input_shapes",
    "freeze_initializers",
    "upgrade",
    "rules",
    "exclude",
    "portable",
    "max_error",
    "provider",
    "provider_options",
    "custom_ops",
    "threads",
    "rtol",
    "atol",
)
"""Settings that decide how a model is loaded and run, which rules there are, and which outputs are the same."""


def options_of(settings: Settings) -> dict[str, Any]:
    """What a trace says of some settings."""
    return {name: getattr(settings, name) for name in RECORDED}


class TraceError(GraphoptError):
    """A trace can't be read, or is not of this model or of these rules."""


@dataclass(frozen=True, repr=False)
class Trace:
    """What was done to a model.

    Attributes:
        model: Fingerprint of its graph as loaded.
        rules: Hash of the library.
        block: Channel block that the rules were told.
        max_bytes: How large the file may become; decides which constants are folded.
        options: How it was made, as arguments of :func:`graphopt.optimize`: see :data:`RECORDED`.
        steps: The rewrites, in order.
        result: Fingerprint of the graph after them.
        metadata: What was recorded in the written model.
        sizes: Those at which the dimensions that the model leaves open were measured, where any were.
        about: For people: strategy, seed, stop reason, predicted cost, environment.
    """

    model: str
    rules: str
    block: int
    max_bytes: int
    options: Mapping[str, Any]
    steps: tuple[Step, ...]
    result: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Trace of {plural(len(self.steps), 'step')}>"

    @property
    def settings(self) -> Settings:
        """How it was made."""
        return Settings(**check_arguments(**self.options))

    def write(self, path: str | Path) -> None:
        """Write it as JSON, whole or not at all.

        Raises:
            GraphoptError: The file can't be written.
            UsageError: ``path`` is no path.
        """
        expect_path("path", path)
        data = {"schema": SCHEMA, **asdict(self)}
        write_text(Path(path), json.dumps(data, indent=1) + "\n")


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        TraceError: It is no trace.
    """
    try:
        data = read_json(path)
    except OSError as error:
        raise TraceError(f"{path}: {reason(error)}") from error
    except DocumentError as error:
        raise TraceError(f"{path}: not a trace: {error}") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise TraceError(
            f"{path}: not a trace of this version: schema {schema!r} instead of {SCHEMA!r}",
            "make it again with graphopt optimize --trace",
        )
    try:
        trace = record(Trace, {k: v for k, v in data.items() if k != "schema"}, "the trace")
        _see_writable(trace)
    except (DocumentError, UsageError) as error:
        raise TraceError(f"{path}: not a whole trace: {error}", "was it edited?") from error
    return trace


def _see_writable(trace: Trace) -> None:
    """See that what types do not tell is as :func:`graphopt.optimize` writes it.

    Raises:
        DocumentError: It is not.
        UsageError: An option has a value that it can't have.
    """
    if wrong := sorted(trace.options.keys() ^ set(RECORDED)):
        raise DocumentError(f"'options': missing or unknown: {', '.join(wrong)}")
    check_arguments(**trace.options)
    for number, step in enumerate(trace.steps, 1):
        if len(step.inside) % 2:
            raise DocumentError(f"step {number}: 'inside' must name a node and an attribute for each body")
    try:
        "".join(text for item in trace.metadata.items() for text in item).encode()
    except UnicodeEncodeError:
        raise DocumentError("'metadata' must be text, which half a character is not") from None


def carry_out(graph: Graph, library: Library, block: int, steps: Sequence[Step], first: int = 1) -> Graph:
    """Make the steps of a trace again.

    Args:
        graph: Where they begin.
        library: The rules.
        block: Channel block that the rules are told.
        steps: The steps. Those within a body that follow each other are made together: it is opened once.
        first: Number of the first of them, for errors.

    Raises:
        TraceError: A step finds no such place.
    """
    if any(library.by_id[step.rule].last for step in steps if step.rule in library.by_id):
        library = library.whole
    sites, number = Sites.of(graph, library, block), first
    for path, group in groupby(steps, key=lambda step: step.inside):
        if path:
            inner = [replace(step, inside=()) for step in group]
            changed = within(graph, path, partial(carry_out, library=library, block=block, steps=inner, first=number))
            if changed is None:
                raise TraceError(f"step {number}: there is no body {' in '.join(path[::-1])}")
            graph, delta, _ = changed
            sites, number = sites.after(graph, delta), number + len(inner)
            continue
        for step in group:
            graph, sites = _carried_out(graph, library, block, sites, step, number)
            number += 1
    return graph


def _carried_out(
    graph: Graph, library: Library, block: int, sites: Sites, step: Step, number: int
) -> tuple[Graph, Sites]:
    match = find(sites, step)
    if match is None:
        raise TraceError(f"step {number}: {step.rule} does not apply at {step.node!r} ({step.site})")
    try:
        graph, delta = alone(graph, match, block) if step.alone else rewritten(graph, match, library, block)
    except RefusedError as error:
        raise TraceError(f"step {number}: {step.rule} at {step.node!r}: {error}") from error
    return graph, sites.after(graph, delta)


def fingerprint(graph: Graph) -> str:
    """What a trace calls a graph: the same in every process, on every machine, with every version of Python."""
    nodes = sorted((node.id, tuple(key or 0 for key in node.outputs)) for node in graph.nodes.values())
    return f"{digest(nodes, [key for _, key in graph.outputs]):016x}"


def find(sites: Sites, step: Step) -> Match | None:
    """The match that a step speaks of."""
    for key, match in sites.matches.items():
        if key[0] == step.rule and match.site == step.site:
            return match
    return None
