"""Which lazy constants a model is written with as arrays, and which the runtime computes when it builds its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from graphopt.ir import ops
from graphopt.ir.constants import evaluate_all
from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import Array
from graphopt.onnxio.load import Model

_REMEMBERED = 1 << 22  # bytes; larger constants are computed again for each graph rather than held for all of them
_SLACK = 4096  # bytes; what the original model computes is folded when the file grows by no more than this,
_ROOM = 1 << 20  # or by no more than this where the size of the file has a limit


def fold(model: Model, graph: Graph, max_bytes: int | None = None) -> tuple[dict[int, Array], tuple[int, ...]]:
    """Compute the lazy constants that a file has room for.

    Args:
        model: What the graph came from; remembers what was computed.
        graph: The graph.
        max_bytes: How large the whole model may be. ``None`` folds whatever a rule made and leaves what was computed in the original model,
            but for a few bytes.

    Returns:
        The arrays of those that are folded, and the keys that nodes read of those that stay computed. Of these what takes no
        more room than what it is computed from is folded as well: a transposed weight, but not the larger tiles made of it.
    """
    failed: set[int] = set()
    while True:
        # What turns out not to be foldable stays, with all it reads, so that less of the rest may be affordable.
        chosen, unfolded = _affordable(model, graph, max_bytes, failed)
        arrays = _arrays(model, graph, chosen)
        missing = set(chosen) - set(arrays)
        if not missing:
            return arrays, tuple(unfolded)
        failed |= missing


def _affordable(model: Model, graph: Graph, max_bytes: int | None, failed: set[int]) -> tuple[list[int], list[int]]:
    """The lazy constants to fold, and those that nodes read and that stay computed."""
    outputs = graph.output_keys
    frontier = [
        key
        for node in graph.in_order()
        if graph.is_lazy(node)
        for key in node.outputs
        if key is not None and (key in outputs or any(not graph.is_lazy(graph.nodes[u]) for u in graph.users[key]))
    ]
    budget = None if max_bytes is None else max_bytes - model.nbytes
    sizes = {k: _size(v) for k, v in graph.values.items() if v.const}
    cones = {key: _cone(graph, key) for key in dict.fromkeys(frontier)}
    # A tensor leaves the file when the last constant that is computed from it has been folded.
    readers = Counter(k for read, _ in cones.values() for k in read)
    readers.update(k for n in graph.nodes.values() if not graph.is_lazy(n) for k in n.inputs if k is not None)
    readers.update(outputs)
    slack = _SLACK if budget is None else _ROOM
    chosen: list[int] = []
    unfolded: list[int] = []
    for key in sorted(cones, key=lambda k: (sizes[k] - sum(sizes[r] for r in cones[k][0]), k)):
        read, ruled = cones[key]
        growth = sizes[key] - sum(sizes[k] for k in read if readers[k] == 1)
        affordable = budget is None or growth <= max(budget, 0)
        if key in failed or _shapes_nothing(graph, key) or not affordable or (growth > slack and not ruled):
            unfolded.append(key)
            continue
        chosen.append(key)
        readers.subtract(read)
        if budget is not None:
            budget -= growth
    made = [key for key in unfolded if cones[key][1]]
    return chosen + _for_nothing(graph, made, sizes, {*chosen, *failed}), unfolded


def _for_nothing(graph: Graph, made: Iterable[int], sizes: dict[int, int], known: set[int]) -> list[int]:
    """Of what some constants that rules made are computed from, the last that takes no more room than its own tensors, which then leave the file."""
    found: list[int] = []
    stack, seen = list(made), set(known)
    while stack:
        maker = graph.producer(stack.pop())
        for key in () if maker is None or maker.op in ops.OF_SHAPES else maker.inputs:
            if key is None or key in seen or not graph.values[key].const or graph.values[key].tensor is not None:
                continue
            seen.add(key)
            read, ruled = _cone(graph, key)
            if ruled and sizes[key] <= sum(sizes[k] for k in read & _only_for(graph, key)):
                found.append(key)
            else:
                stack.append(key)
    return found


def _only_for(graph: Graph, key: int) -> set[int]:
    """What is read for nothing but to compute a constant."""
    found: set[int] = set()
    stack = [key]
    while stack:
        maker = graph.producer(stack.pop())
        for k in () if maker is None else maker.inputs:
            if k is None or k in found or k in graph.output_keys:
                continue
            users = [graph.nodes[user] for user in graph.users[k]]
            if all(out is None or out == key or out in found for user in users for out in user.outputs):
                found.add(k)
                stack.append(k)
    return found


def _shapes_nothing(graph: Graph, key: int) -> bool:
    """Whether a constant is the target of a Reshape of an empty tensor: a -1 beside a 0 runs, but only where it is computed."""
    return any(
        node.op == "Reshape"
        and not node.domain
        and node.inputs[1:2] == (key,)
        and node.inputs[0] is not None
        and 0 in (graph.type(node.inputs[0]).shape or ())
        for node in (graph.nodes[user] for user in graph.users[key])
    )


def _arrays(model: Model, graph: Graph, keys: Sequence[int]) -> dict[int, Array]:
    """The contents of lazy constants, of those that can be computed; small ones are remembered."""
    known = model.arrays
    found = {key: known[key] for key in keys if key in known}
    missing = [key for key in keys if key not in found]
    made = evaluate_all(graph, missing, {k: a for k, a in known.items() if k in graph.values})
    known.update({key: array for key, array in made.items() if array.nbytes <= _REMEMBERED})
    return found | made


def _cone(graph: Graph, key: int) -> tuple[set[int], bool]:
    """Tensors that a lazy constant is computed from, and whether a rule had a hand in it."""
    read: set[int] = set()
    ruled = False
    stack, seen = [key], {key}
    while stack:
        node = graph.producer(stack.pop())
        if node is None or node.op in ops.OF_SHAPES:
            continue
        ruled = ruled or node.rule is not None
        for k in node.inputs:
            if k is None or k in seen:
                continue
            seen.add(k)
            if graph.values[k].tensor is not None:
                read.add(k)
            else:
                stack.append(k)
    return read, ruled


def _size(value: Value) -> int:
    """Bytes of a constant; more than any budget when its shape is not known."""
    n = value.type.nbytes
    if n is None and value.tensor is not None:
        n = value.tensor.data.nbytes
    return 1 << 60 if n is None else n
