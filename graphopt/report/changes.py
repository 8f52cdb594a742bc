"""What became of a graph: the two laid over each other, and the places where they differ.

Nodes are the same when they compute the same expression, or when they have the same name of output, operator, attributes
and weights: the second holds for models that other tools wrote, too. Places where nodes went or came are *changes*: connected
sets of them, which share their borders with both graphs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from graphopt.ir.graph import Graph, Node, Value, expression_id
from graphopt.ir.text import describe_attributes, operator, reference
from graphopt.onnxio.emit import rule_of
from graphopt.report.layout import columns, lanes
from graphopt.report.view import ChangeView, GraphView, NodeView, ValueView, Wiring
from graphopt.search.problem import Step

LONGEST = 160
"""Characters of an attribute list or of a type; the middle of longer ones is left out."""


def compare(
    before: Graph, after: Graph, steps: Sequence[Step] = (), *, names: tuple[str, str] = ("original", "optimised")
) -> GraphView:
    """Two graphs of one model laid over each other.

    Args:
        before: The original.
        after: What was made of it; loaded from a file, or derived from ``before``.
        steps: How it was made: they tell which rule took a node away and left none in its place.
        names: What the two are called.
    """
    return _Comparison(before, after, steps).view(names)


class _Comparison:
    def __init__(self, before: Graph, after: Graph, steps: Sequence[Step]) -> None:
        self.graphs = before, after
        self.rules_at: dict[str, Counter[str]] = defaultdict(Counter)
        for step in steps:
            self.rules_at[step.node][step.rule] += 1
        self.values: list[ValueView] = []
        self.index: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.of_name = {value.name: key for key, value in before.values.items()}
        # Each row is a node in the first graph, in the second, or the same node in both.
        self.rows: list[tuple[Node | None, Node | None]] = _pairs(before, after)

    def view(self, names: tuple[str, str]) -> GraphView:
        wires = [
            (None if b is None else self._wiring(0, b), None if a is None else self._wiring(1, a)) for b, a in self.rows
        ]
        readers = _readers(wires)
        column = columns(readers)
        lane = lanes(column, readers)
        groups = _components(wires)
        groups.sort(key=lambda group: min((column[i], lane[i], i) for i in group))
        change_of = {i: number for number, group in enumerate(groups) for i in group}
        nodes = tuple(self._node(i, *wires[i], change_of.get(i), column[i], lane[i]) for i in range(len(self.rows)))
        return GraphView(tuple(self.values), nodes, tuple(self._changes(groups, nodes)), *names)

    def _node(
        self, row: int, before: Wiring | None, after: Wiring | None, change: int | None, column: int, lane: int
    ) -> NodeView:
        old, new = self.rows[row]
        node, side = (new, 1) if old is None else (old, 0)
        assert node is not None
        # The name that a node made by a rule gets when it is written.
        name = node.name or ("" if node.source is not None else f"{_label(self.graphs[side], node)}/{node.op}")
        rule = _rule(node) if old is None else None
        return NodeView(
            name, operator(node), clip(describe_attributes(node)), before, after, rule, change, column, lane
        )

    def _wiring(self, side: int, node: Node) -> Wiring:
        inputs, outputs = (
            tuple(None if key is None else self._value(side, key) for key in keys)
            for keys in (node.inputs, node.outputs)
        )
        return Wiring(inputs, outputs)

    def _value(self, side: int, key: int) -> int:
        """Index of a value; one that both graphs have is one value."""
        found = self.index[side].get(key)
        if found is not None:
            return found
        value = self.graphs[side].values[key]
        if side == 1:
            twin = key if key in self.graphs[0].values else self.of_name.get(value.name)
            if twin is not None and (twin == key or twin not in self.graphs[1].values):
                found = self._value(0, twin)
        if found is None:
            found = len(self.values)
            self.values.append(self._value_view(side, value))
        self.index[side][key] = found
        return found

    def _value_view(self, side: int, value: Value) -> ValueView:
        shown = str(value.type)
        if value.tensor is not None:
            content = reference(value)
            shown = shown if content == f"@{value.name}" else "".join(content.split())
        before, after = (value.key in each.output_keys for each in self.graphs)
        return ValueView(value.name, clip(shown), value.key in self.graphs[side].inputs, (before, after))

    def _changes(self, groups: list[list[int]], nodes: Sequence[NodeView]) -> Iterable[ChangeView]:
        kinds: dict[object, int] = {}
        for group in groups:
            removed = tuple(i for i in group if nodes[i].before is not None)
            added = tuple(i for i in group if nodes[i].before is None)
            rules = Counter(rule for i in added if (rule := nodes[i].rule) is not None)
            for name in {self.values[v].name for i in group for v in _outputs(nodes[i]) if v is not None}:
                rules |= self.rules_at.get(name, Counter())
            ordered = tuple(sorted(rules, key=lambda rule: (-rules[rule], rule)))
            form = (
                tuple(sorted(ordered)),
                tuple(sorted(nodes[i].op for i in removed)),
                tuple(sorted(nodes[i].op for i in added)),
            )
            yield ChangeView(ordered, removed, added, kinds.setdefault(form, len(kinds)))


def places(view: GraphView) -> dict[str, int]:
    """The change that each value is made in, by its name; values that no change touches are not in it."""
    return {
        view.values[value].name: node.change
        for node in view.nodes
        if node.change is not None
        for value in _outputs(node)
        if value is not None
    }


def clip(text: str, limit: int = LONGEST) -> str:
    """`text` without its middle where it is longer than ``limit``: both ends of a long name tell most."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[head + 1 - limit :]}"


def _pairs(before: Graph, after: Graph) -> list[tuple[Node | None, Node | None]]:
    """The nodes that run: of both graphs, of the first alone, of the second alone."""
    old = [node for node in before.in_order() if not before.is_lazy(node)]
    new = [node for node in after.in_order() if not after.is_lazy(node)]
    by_id = {node.id: node for node in new}
    by_name = {_label(after, node): node for node in new}
    taken: set[int] = set()
    rows: list[tuple[Node | None, Node | None]] = []
    for node in old:
        twin = by_id.get(node.id) or by_name.get(_label(before, node))
        if twin is None or twin.id in taken or not _same(before, node, after, twin):
            rows.append((node, None))
        else:
            taken.add(twin.id)
            rows.append((node, twin))
    rows.extend((None, node) for node in new if node.id not in taken)
    return rows


def _same(before: Graph, node: Node, after: Graph, twin: Node) -> bool:
    """Whether a node of one graph is a node of the other, but for what comes before it."""
    if node.id == twin.id:
        return True
    if twin.rule is not None or len(node.inputs) != len(twin.inputs):
        return False
    one, other = (expression_id(n.op, n.domain, n.attributes, ()) for n in (node, twin))
    operands = zip(node.inputs, twin.inputs, strict=True)
    return one == other and all(_content(before, a) == _content(after, b) for a, b in operands)


def _content(graph: Graph, key: int | None) -> int | None:
    """What an operand contributes to a node's identity: of a constant the content, under whatever name; else nothing."""
    if key is None or not graph.is_const(key):
        return None if key is None else 0
    tensor = graph.values[key].tensor
    return key if tensor is None else tensor.key


def _label(graph: Graph, node: Node) -> str:
    """The name of a node's first output: within a model no two nodes have the same."""
    return next((graph.values[key].name for key in node.outputs if key is not None), node.name)


def _rule(node: Node) -> str | None:
    """The rule that made a node; of a model read from a file its note says so."""
    return node.rule or (None if node.source is None else rule_of(node.source))


def _outputs(node: NodeView) -> tuple[int | None, ...]:
    return tuple(value for wiring in (node.before, node.after) if wiring for value in wiring.outputs)


def _readers(nodes: Sequence[tuple[Wiring | None, Wiring | None]]) -> list[list[int]]:
    """For each node those that read its outputs, in either graph."""
    found: list[dict[int, None]] = [{} for _ in nodes]
    for side in (0, 1):
        maker = {
            value: i for i, both in enumerate(nodes) if (w := both[side]) for value in w.outputs if value is not None
        }
        for i, both in enumerate(nodes):
            wiring = both[side]
            for value in wiring.inputs if wiring else ():
                if value in maker:
                    found[maker[value]][i] = None
    return [list(each) for each in found]


def _components(nodes: Sequence[tuple[Wiring | None, Wiring | None]]) -> list[list[int]]:
    """Connected sets of nodes that one graph alone has: by a value that one makes and another reads, or that both make."""
    changed = [i for i, (before, after) in enumerate(nodes) if before is None or after is None]
    parent = {i: i for i in changed}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    makers: list[dict[int, int]] = []
    for side in (0, 1):
        own = [(i, w) for i in changed if (w := nodes[i][side])]
        maker = {value: i for i, w in own for value in w.outputs if value is not None}
        makers.append(maker)
        for i, w in own:
            for value in w.inputs:
                if value in maker:
                    parent[root(i)] = root(maker[value])
    for value, i in makers[0].items():
        if value in makers[1]:
            parent[root(i)] = root(makers[1][value])
    groups: dict[int, list[int]] = {}
    for i in changed:
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())
