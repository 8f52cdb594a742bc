"""Windows: a node with the neighbours that the runtime will fuse it with.

The runtime turns MatMul + Add into one Gemm, Conv + BatchNormalization + Relu into one kernel, x * sigmoid(x) into
QuickGelu. The price of a single node therefore means little; what has a price is the group that becomes one kernel, or
a few. Groups are drawn a little too large rather than too small: a group is measured as a whole, so a fusion that the
runtime does not do costs nothing but some sharing, while a fusion that is cut in two is priced wrongly.

Each node may have one *link*, to the node into which its result flows (the only reader, or, when several readers meet
again a few steps on as in x * sigmoid(x), the node where they meet). Windows are the trees that links make. A link
depends only on a few nodes around it, so an edit changes few of them, and :func:`update` finds which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphopt.ir import ops
from graphopt.ir.delta import Delta
from graphopt.ir.graph import UNIT, Graph, Node

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv"})
PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Einsum", "MatMulInteger"})
NORMALISATIONS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})
POINTWISE = ops.UNARY | frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Clip", "Sum", "Mean", "PRelu", "Where", "BatchNormalization",
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Dropout", "Not", "QuickGelu",
        "FastGelu", "BiasGelu", "Softsign", "IsNaN",
    }
)  # fmt: skip
IN_PLACE = POINTWISE | {"Softmax", "LogSoftmax"}
"""Operators whose kernels may write their result where they read an operand, if nothing else reads it and it was computed."""
REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2"})
LOOKUPS = frozenset({"Gather", "GatherND", "GatherElements"})
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_DOMAINS = frozenset({"", "com.microsoft"})
_PADDED = frozenset({"Conv", "MaxPool", "AveragePool"})

DIAMOND = 8  # steps within which the readers of a value must meet again
READERS = 4  # a value with more readers is no diamond
LIMIT = 24  # nodes; a larger tree is no fusion but a long run of elementwise operators, priced one by one

_KINDS = (("u8", False), ("i8", False), ("i8", True), ("u8", True), ("i32", True))
"""What is dequantised: its type, and whether it is a constant."""
_FIRST = -2


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes that have one price.

    Attributes:
        nodes: Ids in canonical order, which depends on the wiring alone; the last one is the node that all flow into.
        head: The node that carries the price.
        link: Of a node in a tree too large for one window, the node it has a link to: when the link goes, what lies beyond may be
            small enough.
    """

    nodes: tuple[int, ...]
    head: int
    link: int | None = None


Partition = Mapping[int, Window]
"""The window of each node that runs."""


def partition(graph: Graph) -> dict[int, Window]:
    """The windows of a graph, from scratch."""
    found: dict[int, Window] = {}
    links = _Links(graph)
    for node in graph.nodes.values():
        if node.id not in found and links.runs(node.id):
            window = links.window(node.id)
            found.update(dict.fromkeys(window.nodes, window))
    return found


def update(graph: Graph, old: Partition, delta: Delta) -> tuple[dict[int, Window | None], list[Window], list[Window]]:
    """How the windows change by an edit.

    Returns:
        The window of each node that has another one now (``None`` where it has none any more), the old windows that are
        gone, and those that are new or hold a value that may have changed.
    """
    links = _Links(graph)
    gone: list[Window] = []
    fresh: dict[int, Window] = {}
    dissolved: dict[int, Window | None] = {}
    near = _near(graph, links, delta)
    todo = [n.id for n in delta.removed] + list(near)
    todo += [to for id in near if links.runs(id) and (to := links.link(id)) is not None]

    def dissolve(id: int) -> None:
        window = old.get(id)
        if window is not None and id not in dissolved:
            gone.append(window)
            dissolved.update(dict.fromkeys(window.nodes))
            todo.extend(window.nodes)
            if window.link is not None:
                todo.append(window.link)

    while todo:
        id = todo.pop()
        dissolve(id)
        if id in fresh or not links.runs(id):
            continue
        window = links.window(id)
        for member in window.nodes:
            # Whoever shared a window with a node that now belongs elsewhere has to be looked at again.
            dissolve(member)
            fresh[member] = window
    return dissolved | fresh, gone, list({w.nodes[-1]: w for w in fresh.values()}.values())


def _near(graph: Graph, links: _Links, delta: Delta) -> set[int]:
    """Nodes whose link may have changed, or that read or make a value whose type or constness may have."""
    changed = {n.id for n in delta.removed} | {n.id for n in delta.added} | set(delta.touched)
    edge = [id for id in changed if id in graph.nodes]
    readers = {u for id in edge for key in graph.nodes[id].outputs if key is not None for u in graph.users[key]}
    start = readers.union(edge)
    near = set(start)
    # Links look ahead as far as a diamond reaches ...
    step: Iterable[int] = start
    for _ in range(DIAMOND + 2):
        back = {p for id in step for p in links.producers(graph.nodes[id])} - near
        near |= back
        step = [id for id in back if links.follower(graph.nodes[id])]
        if not step:
            break
    # ... and back along the followers of a matrix product.
    step = start
    for _ in range(DIAMOND):
        ahead = {u for id in step for u in links.readers(graph.nodes[id])} - near
        step = [id for id in ahead if links.single(graph.nodes[id]) is not None]
        near.update(step)
        if not step:
            break
    return near


class _Links:
    """The links of a graph, each found when it is asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._found: dict[int, int | None] = {}
        self._large: set[int] = set()  # nodes of trees too large for a window

    # -- what a node is -------------------------------------------------------------------------------------------

    def runs(self, id: int) -> bool:
        """Whether a node is there, and does more than compute constants or what a unit of quantisation pays for."""
        node = self.graph.nodes.get(id)
        return node is not None and not self.graph.is_lazy(node) and not is_edge(self.graph, node)

    def producers(self, node: Node) -> list[int]:
        """The running nodes that a node reads."""
        values = self.graph.values
        found = []
        for key in node.inputs:
            if key is not None:
                value = values[key]
                if value.producer is not None and not value.const:
                    found.append(value.producer)
        return found

    def readers(self, node: Node) -> tuple[int, ...]:
        """The nodes that read a node's result, none when it has several results."""
        key = result(node)
        return () if key is None else self.graph.users[key]

    def single(self, node: Node) -> int | None:
        """The one operand of an elementwise node that is not constant."""
        if node.op not in POINTWISE or node.opaque:
            return None
        values = self.graph.values
        varying = {key for key in node.inputs if key is not None and not values[key].const}
        return varying.pop() if len(varying) == 1 else None

    def follower(self, node: Node) -> bool:
        """Whether a link may lead through a node."""
        return (node.op in POINTWISE or node.op in REDUCTIONS) and plain(node)

    def base(self, node: Node) -> Node:
        """The node that a run of single-operand elementwise operators starts from."""
        for _ in range(DIAMOND):
            key = self.single(node)
            if key is None or len(self.graph.users[key]) != 1:
                break
            before = self.graph.producer(key)
            if before is None or not plain(before):
                break
            node = before
        return node

    # -- links ----------------------------------------------------------------------------------------------------

    def link(self, id: int) -> int | None:
        """The node that shares a window with this one and into which its result flows."""
        if id not in self._found:
            self._found[id] = self._link(self.graph.nodes[id])
        return self._found[id]

    def _link(self, node: Node) -> int | None:
        key = result(node)
        if key is None or not plain(node):
            return None
        graph = self.graph
        users = graph.users[key]
        if node.op in ("Add", "Sum"):
            # The sum itself may have other readers: the fused kernel can return it too.
            norms = [u for u in users if graph.nodes[u].op in NORMALISATIONS and graph.nodes[u].inputs[0] == key]
            if len(norms) == 1:
                return norms[0]
        if not users or len(users) > READERS or key in graph.output_keys:
            return None
        if len(users) == 1:
            return users[0] if self._joins(node, graph.nodes[users[0]]) else None
        return self._meet(node, users)

    def _joins(self, node: Node, reader: Node) -> bool:
        """Whether the runtime may fuse a node with its only reader."""
        if not plain(reader):
            return False
        if reader.op in POINTWISE:
            if self.base(node).op in PRODUCTS:
                return self._follows_product(node, reader)
            return node.op in CONVOLUTIONS or node.op in POINTWISE or node.op in REDUCTIONS
        if reader.op in REDUCTIONS:
            return node.op == "Pow" or (node.op == "Mul" and len(set(node.inputs)) == 1)  # of squares: a variance
        if reader.op == "MatMul":
            return node.op == "Transpose" or (node.op in ("Mul", "Div") and self._scales(node))
        return node.op == "Pad" and reader.op in _PADDED

    def _follows_product(self, node: Node, reader: Node) -> bool:
        """Bias, scale and one-operand activations go with a product; what mixes in other values is a matter of its own."""
        return self.single(reader) is not None and (
            node.op in PRODUCTS or reader.op in ops.UNARY or reader.op == "Clip" or self._scales(reader)
        )

    def _scales(self, node: Node) -> bool:
        """Whether all constant operands are single numbers."""
        values = self.graph.values
        consts = [values[key] for key in node.inputs if key is not None and values[key].const]
        return len(consts) == 1 and consts[0].type.elements == 1

    def _meet(self, node: Node, users: tuple[int, ...]) -> int | None:
        """Where all readers of a node's result flow together within a few steps."""
        if not (node.op in CONVOLUTIONS or self.follower(node)) or self.base(node).op in PRODUCTS:
            return None
        nodes = self.graph.nodes
        if not all(self.follower(nodes[u]) for u in users):
            return None
        paths = [self._path(nodes[u]) for u in users]
        return next((id for id in paths[0] if all(id in path for path in paths)), None)

    def _path(self, node: Node) -> list[int]:
        """A reader and the nodes it flows into, one after the other."""
        path = [node.id]
        for _ in range(DIAMOND):
            key = result(node)
            users = () if key is None or key in self.graph.output_keys else self.graph.users[key]
            if len(users) != 1:
                break
            reader = self.graph.nodes[users[0]]
            if not self.follower(reader) or not self._joins(node, reader):
                break
            node = reader
            path.append(node.id)
        return path

    # -- windows --------------------------------------------------------------------------------------------------

    def window(self, id: int) -> Window:
        """The window of a node: the tree that it stands in, or itself where that is too large."""
        members = self._members(id)
        if len(members) > LIMIT or not self._large.isdisjoint(members):
            self._large.update(members)
            return Window((id,), id, self.link(id))
        root = next(m for m in members if self.link(m) is None)
        nodes: list[int] = []
        self._sort(root, members, nodes)
        heads = (n for n in nodes if self.graph.nodes[n].op in CONVOLUTIONS or self.graph.nodes[n].op in PRODUCTS)
        return Window(tuple(nodes), next(heads, root))

    def _members(self, id: int) -> dict[int, None]:
        """The nodes of a tree, or some of them as soon as they are too many."""
        members = {id: None}
        stack = [id]
        while stack and len(members) <= LIMIT and stack[-1] not in self._large:
            member = stack.pop()
            found = [p for p in self.producers(self.graph.nodes[member]) if self._leads(member, self.link(p))]
            onward = self.link(member)
            if onward is not None:
                found.append(onward)
            for other in found:
                if other not in members:
                    members[other] = None
                    stack.append(other)
        return members

    def _leads(self, id: int, target: int | None) -> bool:
        """Whether links lead from a node to another; a diamond is entered at its sides, but its link goes to the end."""
        step: int | None = id
        for _ in range(DIAMOND + 1):
            if step is None or target is None:
                return False
            if step == target:
                return True
            step = self.link(step)
        return False

    def _sort(self, id: int, members: dict[int, None], done: list[int]) -> None:
        """Post-order along the operands: an order that equal windows share, whatever their nodes' ids."""
        for before in self.producers(self.graph.nodes[id]):
            if before in members and before not in done:
                self._sort(before, members, done)
        done.append(id)


def result(node: Node) -> int | None:
    """The key of a node's only result, ``None`` when it has several or none."""
    outputs = node.outputs
    if len(outputs) == 1:
        return outputs[0]
    made = [key for key in outputs if key is not None]
    return made[0] if len(made) == 1 else None


def plain(node: Node) -> bool:
    """Whether the runtime's fusions know a node."""
    return not node.opaque and node.domain in _DOMAINS


def is_edge(graph: Graph, node: Node) -> bool:
    """Whether a node quantises or dequantises for a unit, which pays for it."""
    if node.domain or node.op not in ("QuantizeLinear", "DequantizeLinear"):
        return False
    if node.op == "QuantizeLinear":
        maker = graph.producer(node.inputs[0]) if node.inputs[0] is not None else None
        return maker is not None and maker.opaque == UNIT
    made = node.outputs[0]
    users = () if made is None or made in graph.output_keys else graph.users[made]
    return bool(users) and all(graph.nodes[u].opaque == UNIT for u in users)


def quantised_ends(graph: Graph, node: Node) -> tuple[tuple[int, int], ...]:
    """The operands of a unit's operator that were dequantised, and its results that are quantised: key and mark (see :func:`kind`)."""
    if node.opaque != UNIT:
        return ()
    found = dict[int, int]()
    for key in node.inputs:
        maker = None if key is None else graph.producer(key)
        if key is not None and maker is not None and (maker.domain, maker.op) == ("", "DequantizeLinear"):
            whole = maker.inputs[0]
            if whole is not None:
                _mark(found, key, graph.type(whole).dtype, graph.values[whole].const)
    for key in node.outputs:
        users = () if key is None else [graph.nodes[u] for u in graph.users[key]]
        if key is not None and users and {(user.domain, user.op) for user in users} == {("", "QuantizeLinear")}:
            made = users[0].outputs[0]
            if made is not None:
                _mark(found, key, graph.type(made).dtype, False)
    return tuple(found.items())


def kind(mark: int) -> tuple[str, bool] | None:
    """What a mark says is dequantised, or quantised: its type, and whether it is a constant; ``None`` for a mark of another sort."""
    return _KINDS[_FIRST - mark] if mark <= _FIRST else None


def _mark(found: dict[int, int], key: int, dtype: str | None, const: bool) -> None:
    if (dtype, const) in _KINDS:
        found[key] = _FIRST - _KINDS.index((dtype or "", const))
