"""One rewrite of a graph: add nodes, redefine values, drop what dies.

The engine's guarantees live here, whatever a rule says: names, dtypes and shapes of redefined values survive, merging
makes no cycle, a node goes only when nothing reads it, and the cost is in proportion to the nodes changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from immutables import Map

from graphopt.ir import ops
from graphopt.ir.agreement import Below
from graphopt.ir.constants import known_of, tensor_of, typed
from graphopt.ir.content import Content, merged
from graphopt.ir.delta import Delta, RefusedError
from graphopt.ir.graph import Graph, Node, Value, expression_id, hash_outputs, output_key
from graphopt.ir.moved import MOVES, shortened
from graphopt.ir.ranks import Ranks
from graphopt.ir.types import ValueType, merge

_MASK = 2**64 - 1


class Edit:
    """Collects the changes of one rewrite, then makes the new graph; after a :class:`RefusedError` it is half done, and thrown away.

    Args:
        graph: The graph to start from; it stays as it is.
        rule: Name recorded on every new node.
        roots: Values that the rewrite redefines. They keep key, name and type.
        granted: What nodes may take for granted about dimensions, see :mod:`graphopt.ir.agreement`; ``None`` for any.
    """

    def __init__(
        self, graph: Graph, rule: str | None = None, roots: Sequence[int] = (), granted: Below | None = None
    ) -> None:
        self.graph = graph
        self.rule = rule
        self._granted = granted
        self._nodes = Map(graph.nodes).mutate()
        self._values = Map(graph.values).mutate()
        self._users = Map(graph.users).mutate()
        self._ranks = Ranks(self._nodes, self._values, self._users, Map(graph.order))
        self._outputs = graph.outputs
        self._hash = graph.hash
        self._added: dict[int, Node] = {}
        self._removed: dict[int, Node] = {}
        self._touched: set[int] = set()
        self._fresh: list[int] = []
        self._doubted: set[int] = set()
        self._suspects: list[int] = []
        self._defined: set[int] = set()
        self._learned: dict[int, None] = {}
        self._roots = tuple(roots)
        self._pending = set(roots)
        for root in roots:
            self._detach(root)

    # -- building -------------------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: Sequence[int | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: Sequence[int | None] = (None,),
        name: str = "",
        opaque: str = "",
    ) -> list[int]:
        """Add a node, or find the equal one that is there.

        Args:
            op: Operator type.
            inputs: Keys, ``None`` for an omitted operand.
            attributes: Attribute values.
            domain: Operator domain.
            outputs: For each output the root that it redefines, or ``None`` for a new value.
            name: Label of the node.
            opaque: Why rules may not look at it.

        Returns:
            The key of each output.

        Raises:
            RefusedError: A type contradicts the schema or the declared type of a root.
        """
        attributes = attributes or {}
        ins = tuple(inputs)
        while ins and ins[-1] is None:
            ins = ins[:-1]
        for key in ins:
            if key is not None and not self.readable(key):
                raise RefusedError("an operand is gone or is what the rewrite defines")
        if op in MOVES and not domain and not any(outputs) and all(k is None or self._values[k].const for k in ins):
            short = shortened(self, op, ins, attributes, lambda: self._infer(op, "", attributes, ins, len(outputs))[0])
            if short is not None:
                return short
        id = expression_id(op, domain, attributes, ins)
        twin = self._twin(id, len(outputs))
        if twin is not None and (len(twin.outputs) >= len(outputs) or twin.op in ops.RECURRENT):
            return self._reuse(twin, outputs)
        keys = [output_key(id, i) if root is None else root for i, root in enumerate(outputs)]
        if all(root is None and key in self._values for root, key in zip(outputs, keys, strict=True)):
            # The value exists under a better definition: a rewrite redefined it earlier.
            for key in keys:
                if key in self._pending:
                    raise RefusedError("a root would be defined by itself")
                self._depend(key)
            return keys
        types, elements = self._infer(op, domain, attributes, ins, len(outputs))
        const = not opaque and all(self._values[k].const for k in ins if k is not None)
        const = const and ops.pure(op, domain, attributes, len(ins))
        if op in ops.OF_SHAPES and ins and ins[0] is not None:
            const = const or self._values[ins[0]].type.static
        node = Node(op, ins, tuple(keys), attributes, domain=domain, name=name, rule=self.rule, opaque=opaque, id=id)
        for i, (root, type) in enumerate(zip(outputs, types, strict=True)):
            if root is None:
                self._make(name or op, id, i, type, const, elements)
            else:
                self._define(root, id, type, const, None if i else elements)
        self._append(node)
        return keys

    def adopt(self, node: Node, types: Sequence[ValueType], names: Sequence[str]) -> None:
        """Add a node of another graph that no rule may look at: it reads values of this one, and makes new ones of these types and names."""
        for key, type, name in zip(node.outputs, types, names, strict=True):
            if key is not None:
                self._values[key] = Value(key, name, type, producer=node.id)
                self._users[key] = ()
        self._append(node)

    def type(self, key: int) -> ValueType:
        """Type of a value of the graph under construction."""
        return self._values[key].type

    def maker(self, key: int) -> Node | None:
        """The node that computes a value, ``None`` for inputs, tensors and what is gone."""
        id = self._values[key].producer if key in self._values else None
        return None if id is None else self._nodes[id]

    def readable(self, key: int) -> bool:
        """Whether a new node may read a value: it is there, and not what the rewrite has yet to define."""
        return key in self._values and key not in self._pending

    def constant(self, array: np.ndarray[Any, Any], name: str = "", meant: float | None = None) -> int:
        """Key of a constant with this content; ``meant`` as in :class:`graphopt.ir.constants.ArrayData`."""
        tensor = tensor_of(array, meant)
        if tensor.key not in self._values:
            label = name or f"const_{tensor.key & 0xFFFFFFFF:08x}"
            self._values[tensor.key] = Value(tensor.key, label, tensor.type, True, tensor)
            self._users[tensor.key] = ()
        return tensor.key

    def alias(self, root: int, target: int) -> None:
        """Let every reader of ``root`` read ``target``, an equal value, instead.

        Raises:
            RefusedError: The types contradict each other, or the two are the same value.
        """
        if root == target:
            raise RefusedError("a value can't replace itself")
        old, new = self._values[root], self._values[target]
        both = merge(old.type, new.type)
        if both is None:
            raise RefusedError(f"{old.name}: {old.type} would become {new.type}")
        if both != new.type:
            self._values[target] = replace(new, type=both)
            self._learned.update(dict.fromkeys(self._users[target]))
        self._pending.discard(root)
        self._defined.add(root)
        self._depend(target)
        # One rewiring may bring another about, and with it new ids: so not over a copy of the list.
        while self._users[root]:
            self._rewire(self._nodes[self._users[root][0]], {root: target})
        if any(key == root for _, key in self._outputs):
            self._hash -= hash_outputs(self._outputs)
            self._outputs = tuple((name, target if key == root else key) for name, key in self._outputs)
            self._hash += hash_outputs(self._outputs)
        self._detach(root)

    def exchange(self, node: Node, new: Node) -> None:
        """Put an equal node in a node's place: it makes the same values, and reads no others."""
        rank = self._ranks.order[node.id]
        self._delete(node)
        self._succeed(new, rank)

    def publish(self, outputs: Sequence[tuple[str, int]]) -> None:
        """Make values graph outputs, in place of those there are."""
        self._hash -= hash_outputs(self._outputs)
        self._outputs = tuple(outputs)
        self._hash += hash_outputs(self._outputs)

    # -- finishing ------------------------------------------------------------------------------------------------

    def commit(self) -> tuple[Graph, Delta]:
        """The new graph and what changed.

        Raises:
            RefusedError: A root was left undefined, or the rewrite would make a cycle.
        """
        if not self._defined.issuperset(self._roots):
            raise RefusedError("a root has no new definition")
        self._sweep()
        self._ranks.settle([i for i in self._fresh if i in self._nodes], self._defined)
        self._settle()
        graph = Graph(
            nodes=self._nodes.finish(),
            values=self._values.finish(),
            users=self._users.finish(),
            order=self._ranks.order.finish(),
            inputs=self.graph.inputs,
            outputs=self._outputs,
            opsets=self.graph.opsets,
            hash=self._hash & _MASK,
            origin=self.graph.origin,
        )
        same = {i for i in self._added if i in self._removed and self._added[i].outputs == self._removed[i].outputs}
        added = tuple(n for i, n in self._added.items() if i not in same)
        removed = tuple(n for i, n in self._removed.items() if i not in same)
        touched = tuple(i for i in self._touched if i in self._nodes and i not in self._added)
        return graph, Delta(added, removed, touched + tuple(same))

    # -- parts ----------------------------------------------------------------------------------------------------

    def _infer(
        self, op: str, domain: str, attributes: Mapping[str, Any], inputs: tuple[int | None, ...], n: int
    ) -> tuple[tuple[ValueType, ...], Content | None]:
        """Types of a node's outputs, and what is known of the elements of the first."""
        return typed(self._view(), op, domain, attributes, inputs, n, self._granted)

    def _view(self) -> Graph:
        """The graph under construction, for reading constants."""
        # All that is done with a view is to look things up, which a mutation can.
        maps: tuple[Any, Any, Any, Any] = (self._nodes, self._values, self._users, self._ranks.order)
        return Graph(*maps, (), (), self.graph.opsets, 0, self.graph.origin)

    def _make(self, label: str, id: int, index: int, type: ValueType, const: bool, elements: Content | None) -> int:
        key = output_key(id, index)
        if key in self._values:
            raise RefusedError("a new value exists already")
        label = f"{label}_{id & 0xFFFFFF:06x}" + (f"_{index}" if index else "")
        self._values[key] = Value(key, label, type, const, None, id, None if index else elements)
        self._users[key] = ()
        return key

    def _define(self, root: int, node: int, type: ValueType, const: bool, elements: Content | None) -> None:
        old = self._values[root]
        both = merge(old.type, type)
        if both is None:
            raise RefusedError(f"{old.name}: {old.type} would become {type}")
        if root in self._defined:
            raise RefusedError("a root is defined twice")
        const = const or old.const
        known = None if const else merged(elements, old.content)
        if (const, both, known) != (old.const, old.type, old.content):
            self._learned.update(dict.fromkeys(self._users[root]))
        self._values[root] = Value(root, old.name, both, const, None, node, known)
        self._pending.discard(root)
        self._defined.add(root)

    def _twin(self, id: int, outputs: int) -> Node | None:
        """The node of this id, which computes the same if it has as many outputs as that matters."""
        found = self._nodes.get(id)
        if found is not None and found.op in ops.BY_OUTPUTS and len(found.outputs) != outputs:
            raise RefusedError("an equal node has another number of outputs")
        return found

    def _reuse(self, twin: Node, outputs: Sequence[int | None]) -> list[int]:
        """The outputs of an equal node, defining roots by them where asked."""
        slots = [*twin.outputs, *[None] * (len(outputs) - len(twin.outputs))]
        keys: list[int] = []
        for i, root in enumerate(outputs):
            slot = slots[i]
            if slot is None:
                slot = slots[i] = self._unread(twin, i) if root is None else root
                if root is not None:
                    # The output was detached (it was a root) or never read: it comes back to life.
                    self._values[root] = replace(self._values[root], producer=twin.id)
                    self._pending.discard(root)
                    self._defined.add(root)
            keys.append(slot)
        if tuple(slots) != twin.outputs:
            self._swap(twin, twin.with_outputs(tuple(slots)))
        for slot, root in zip(keys, outputs, strict=True):
            self._depend(slot)
            if root is not None and root != slot:
                self.alias(root, slot)
        return keys

    def _unread(self, node: Node, index: int) -> int:
        """A value for an output that nothing has read so far: recurrent layers have all of theirs, whichever are named."""
        if node.op not in ops.RECURRENT or node.opaque:
            raise RefusedError("an unread output would be needed")
        types, _ = self._infer(node.op, node.domain, node.attributes, node.inputs, index + 1)
        return self._make(node.op, node.id, index, types[index], False, None)

    def _detach(self, root: int) -> None:
        """Take a value from its producer; the producer goes in the sweep unless something still needs it."""
        if (producer := self._values[root].producer) is None:
            return
        node = self._nodes[producer]
        self._ranks.ceiling = min(self._ranks.ceiling, self._ranks.order[producer])
        self._swap(node, node.with_outputs(tuple(None if k == root else k for k in node.outputs)))
        self._values[root] = replace(self._values[root], producer=None, tensor=None)
        self._suspects.append(producer)

    def _depend(self, key: int) -> None:
        """Note that new nodes come after the producer of ``key``."""
        producer = self._values[key].producer
        if producer is not None and producer not in self._fresh:
            self._ranks.floor = max(self._ranks.floor, self._ranks.order.get(producer, self._ranks.floor))

    def _append(self, node: Node) -> None:
        """Insert a node that comes after all that it reads."""
        self._insert(node)
        self._fresh.append(node.id)
        for key in node.inputs:
            if key is not None:
                self._depend(key)

    def _insert(self, node: Node) -> None:
        self._nodes[node.id] = node
        self._added[node.id] = node
        self._hash += node.sig
        for key in dict.fromkeys(k for k in node.inputs if k is not None):
            self._users[key] += (node.id,)
            self._touch(key)

    def _delete(self, node: Node) -> None:
        del self._nodes[node.id]
        if self._added.pop(node.id, None) is None:
            self._removed[node.id] = node
        self._ranks.order.pop(node.id, None)
        self._hash -= node.sig
        for key in dict.fromkeys(k for k in node.inputs if k is not None):
            users = self._users[key]
            at = users.index(node.id)
            self._users[key] = users[:at] + users[at + 1 :]  # a constant may have a reader in each layer
            self._touch(key)

    def _swap(self, old: Node, new: Node) -> None:
        """Replace a node by one with the same id and other outputs."""
        self._nodes[new.id] = new
        if old.id not in self._added:
            self._removed[old.id] = old
        self._added[new.id] = new
        self._hash += new.sig - old.sig

    def _touch(self, key: int) -> None:
        if (producer := self._values[key].producer) is not None:
            self._touched.add(producer)
        self._doubted.add(key)

    def _rewire(self, node: Node, mapping: dict[int, int]) -> None:
        """Let a node read other values; where that makes it equal to another node, the two become one."""
        new = node.but(inputs=tuple(mapping.get(k, k) if k is not None else None for k in node.inputs))
        rank = self._ranks.order.get(node.id)
        fresh = node.id in self._fresh
        self._delete(node)
        twin = self._twin(new.id, len(node.outputs))
        if twin is not None:
            for mine, theirs in zip_longest(node.outputs, twin.outputs):
                if mine is None:
                    continue
                if theirs is None:
                    raise RefusedError("an unread output would be needed")
                self._values[mine] = replace(self._values[mine], producer=None)
                self.alias(mine, theirs)
                self._doubted.add(mine)
            return
        self._succeed(new, None if fresh else rank)
        if any(self._values[a].known != self._values[b].known for a, b in mapping.items()):
            self._learned[new.id] = None
        if fresh:
            self._fresh[self._fresh.index(node.id)] = new.id

    def _succeed(self, new: Node, rank: float | None) -> None:
        """Insert a node that makes the values of one that was deleted, at its rank if it had one."""
        for key in new.outputs:
            if key is not None:
                self._values[key] = replace(self._values[key], producer=new.id)
        self._insert(new)
        if rank is not None:
            self._ranks.order[new.id] = rank
            self._ranks.rewired.append(new.id)

    def _settle(self) -> None:
        """Carry on what is known better of a value to all that is computed of it: types, elements, and that it is constant."""
        view, done = self._view(), set[int]()
        self._touched.update(self._learned)  # rules may hold there now, whether or not it makes known what comes of it
        todo = sorted((self._ranks.order[i], i) for i in self._learned if i in self._nodes)
        while todo:
            _, id = heapq.heappop(todo)
            node = self._nodes[id]
            if id in done or node.opaque or node.salt:
                continue
            done.add(id)
            const, types, elements = known_of(
                view, node, [None if k is None else self._values[k] for k in node.outputs], self.graph.opsets
            )
            for i, (key, type) in enumerate(zip(node.outputs, types, strict=True)):
                if key is None:
                    continue
                old = self._values[key]
                now = old.const or const
                known = None if now else old.content if i else merged(elements, old.content)
                if (now, type, known) == old.known:
                    continue
                self._values[key] = replace(old, const=now, type=type, content=known)
                self._touched.add(id)
                self._touched.update(self._users[key])
                for user in self._users[key]:
                    heapq.heappush(todo, (self._ranks.order[user], user))

    def _sweep(self) -> None:
        """Remove what nothing reads any more."""
        outputs = {key for _, key in self._outputs}
        queue = [i for i in dict.fromkeys(self._suspects + self._fresh) if i in self._nodes]
        unread = [key for key in self._doubted if key in self._values and not self._users[key]]
        queue += [i for i in (self._values[key].producer for key in unread) if i is not None]
        while queue:
            node = self._nodes.get(queue.pop())
            if node is None or any(k is not None and (self._users[k] or k in outputs) for k in node.outputs):
                continue
            if node.acts:
                continue
            self._delete(node)
            for out in (key for key in node.outputs if key is not None):
                self._drop_value(out)
            for read in node.inputs:
                producer = None if read is None or self._users[read] else self._values[read].producer
                if producer is not None:
                    queue.append(producer)
        for key in (*self._doubted, *self._roots):
            gone = key in self._values and not self._users[key] and key not in outputs
            if gone and self._values[key].producer is None and key not in self.graph.inputs:
                self._drop_value(key)

    def _drop_value(self, key: int) -> None:
        self._values.pop(key, None)
        self._users.pop(key, None)
