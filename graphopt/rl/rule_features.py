"""What an agent sees of a rule: the graphs of its two sides, its family, its claim and its conditions.

A rule is known by its content, not by its place in a list: an edited rule is seen a little differently, and one that a user adds
is seen as what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.ir.types import digest
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import CLAIMS, Rule
from graphopt.rl.features import Floats, Integers, operator_bucket

NODE_WIDTH = 12
EDGE_WIDTH = 5
CALLS = 32
"""Buckets for the functions that conditions call."""
GRAPH_WIDTH = 3 + 8 + CALLS
FAMILIES = 64
"""Buckets for the names of families."""


@dataclass(frozen=True, eq=False)
class RuleBatch:
    """Rules laid end to end, as a network takes them.

    Both sides of a rule are one graph: the operands are nodes that the sides share, and the lines that define the same name on
    the two sides are joined.

    Attributes:
        operators: Bucket of each node's operator, (nodes,).
        nodes: (nodes, :data:`NODE_WIDTH`).
        links: (2, edges), indices into all nodes.
        edges: (edges, :data:`EDGE_WIDTH`).
        graphs: Claim, sizes and what conditions call, (rules, :data:`GRAPH_WIDTH`).
        families: Bucket of the family, (rules,).
        node_graph: Rule of each node, (nodes,).
    """

    operators: Integers
    nodes: Floats
    links: Integers
    edges: Floats
    graphs: Floats
    families: Integers
    node_graph: Integers

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> RuleBatch:
        """Lay rules end to end."""
        operators: list[int] = []
        nodes: list[list[float]] = []
        links: list[tuple[int, int]] = []
        edges: list[list[float]] = []
        node_graph: list[int] = []
        for number, rule in enumerate(rules):
            drawn = _Drawn(rule)
            offset = len(nodes)
            operators += drawn.operators
            nodes += drawn.nodes
            links += [(a + offset, b + offset) for a, b in drawn.links]
            edges += drawn.edges
            node_graph += [number] * len(drawn.nodes)
        return cls(
            np.array(operators, np.int64),
            np.array(nodes, np.float32).reshape(-1, NODE_WIDTH),
            np.array(links, np.int64).reshape(-1, 2).T.copy(),
            np.array(edges, np.float32).reshape(-1, EDGE_WIDTH),
            np.array([_whole(rule) for rule in rules], np.float32).reshape(-1, GRAPH_WIDTH),
            np.array([digest("family", rule.family) % FAMILIES for rule in rules], np.int64),
            np.array(node_graph, np.int64),
        )


class _Drawn:
    """One rule as nodes and edges."""

    def __init__(self, rule: Rule) -> None:
        self.operators: list[int] = []
        self.nodes: list[list[float]] = []
        self.links: list[tuple[int, int]] = []
        self.edges: list[list[float]] = []
        self._roots = frozenset(rule.roots)
        made: dict[str, int] = {}
        leaves: dict[str, int] = {}
        for line in rule.match:
            self._line(line, 0, made, made, leaves)
        redefined: dict[str, int] = {}
        for line in rule.replace:
            # A name that the replacement has not redefined yet still means the pattern's.
            self._line(line, 1, redefined, {**made, **redefined}, leaves)
        for name in rule.roots:
            if name in made and name in redefined:
                self._link(made[name], redefined[name], 4, 0)

    def _line(self, line: Line, side: int, made: dict[str, int], known: dict[str, int], leaves: dict[str, int]) -> None:
        sources: list[tuple[int, int]] = []
        names = [(o.name, o.kind) for o in line.operands] if not line.alias else [(line.alias, "value")]
        for position, (name, kind) in enumerate(names):
            if kind == "none":
                continue
            if name and name in known:
                source = known[name]
            elif name and name in leaves:
                source = leaves[name]
            else:
                kinds = (float(kind == known) for known in ("number", "variadic", "optional"))
                operator = operator_bucket("graphopt", "number" if kind == "number" else "operand")
                source = self._node(operator, [0, 0, 1, 0, *kinds, *[0] * 5])
                if name:
                    leaves[name] = source
            sources.append((source, position))
        domain, op = line.ops[0] if line.ops else ("graphopt", "same" if line.alias else "any")
        here = self._node(
            operator_bucket(domain, op),
            [
                float(side == 0),
                float(side == 1),
                0,
                float(any(o in self._roots for o in line.outputs)),
                0,
                float(line.variadic is not None),
                float(line.each),
                len(line.attributes) / 4,
                (len(line.captures) + len(line.lists)) / 4,
                float(bool(line.rest)),
                len(line.ops) / 4,
                len(line.outputs) / 4,
            ],
        )
        for source, position in sources:
            self._link(source, here, side, position)
        for out in line.outputs:
            if out != "_":
                made[out] = here

    def _node(self, operator: int, row: list[float]) -> int:
        self.operators.append(operator)
        self.nodes.append(row)
        return len(self.nodes) - 1

    def _link(self, source: int, target: int, kind: int, position: int) -> None:
        self.links.append((source, target))
        self.edges.append([float(kind == 0), float(kind == 1), float(kind == 4), position / 4, float(position == 0)])


def _whole(rule: Rule) -> list[float]:
    calls = [0.0] * CALLS
    for condition in (*rule.where, *rule.prefer):
        for name in condition.calls:
            calls[digest("call", name) % CALLS] += 0.5
    return [
        *(float(rule.claim == claim) for claim in CLAIMS),
        len(rule.match) / 4,
        len(rule.replace) / 4,
        len(rule.where) / 4,
        len(rule.prefer) / 4,
        len(rule.let) / 4,
        len(rule.roots) / 4,
        float(rule.unordered),
        float(rule.contributed),
        *calls,
    ]
