"""Evaluate a small graph over a domain of elements."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping

import numpy as np

from graphopt.ir.graph import Graph
from graphopt.ir.types import FLOATS, Array
from graphopt.prover import attention, linear, movement, quantisation, resizing, spectral, windows
from graphopt.prover.domains import QUANTISE, Domain, Floats, RandomOrder, fresh
from graphopt.prover.semantics import OPERATORS, Call, ContradictionError, UnsupportedError, WindowError
from graphopt.prover.values import SHAPES, rng_of

# Importing them registers their operators.
_REGISTERED = (attention, linear, movement, quantisation, resizing, spectral, windows)

BEYOND = "integers beyond what a float64 holds"


def evaluate(
    graph: Graph,
    domain: Domain,
    inputs: Mapping[int, Array],
    symbolic: Collection[int],
    whole: Collection[int] = (),
) -> list[Array]:
    """The graph's outputs.

    Args:
        graph: A graph of pure nodes.
        domain: Where to compute.
        inputs: Elements, or concrete integers, of each graph input by key.
        symbolic: Keys of constants that stand for any content: floats, and the integers that ``whole`` names. The
            others are what they are.
        whole: Keys of integers that are elements of the domain, not numbers.

    Raises:
        UnsupportedError: An operator has no semantics here.
        ContradictionError: The shapes contradict each other.
    """
    held: dict[int, Array] = dict(inputs)
    known: dict[int | None, Array] = {}
    for key, value in graph.values.items():
        if value.tensor is None:
            continue
        content = np.asarray(value.tensor.numpy())
        if value.type.dtype == "f16" and (meant := getattr(value.tensor.data, "meant", None)) is not None:
            content = np.asarray(meant)  # the law is compared, and a float16 is too coarse to tell what it stands for
        if value.type.dtype not in FLOATS and not (key in symbolic and key in whole):
            held[key] = known[key] = content
        elif key in symbolic:
            held[key] = fresh(domain, value.name, content.shape, str(value.type.dtype))
        elif domain.name == "order" and not np.isfinite(content).all():
            known[key] = content  # no term, but an operator may know what it means
        else:
            known[key] = content
            held[key] = domain.constant(content)
    for node in graph.in_order():
        operands = _alike(node.op, domain, [None if key is None else held.get(key) for key in node.inputs])
        to = [None if key is None else graph.type(key).dtype for key in node.outputs]
        of = [None if key is None else graph.type(key).dtype for key in node.inputs]
        told = [known.get(key) for key in node.inputs]
        call = Call(node.op, domain, operands, node.attributes, graph.opset, to, of, told, node.domain)
        for out, array in zip(node.outputs, compute(call), strict=False):
            if out is not None:
                held[out] = np.asarray(array)
    if any(key not in held for _, key in graph.outputs):
        raise UnsupportedError("an output has no semantics here")
    return [held[key] for _, key in graph.outputs]


def _alike(op: str, domain: Domain, operands: list[Array | None]) -> list[Array | None]:
    """Operands of an operator, numbers made elements where integers that they meet are elements."""
    if not isinstance(domain, RandomOrder) or not any(x is not None and domain.holds(x) for x in operands):
        return operands
    kept = SHAPES.get(op, ())
    found: list[Array | None] = []
    for i, x in enumerate(operands):
        if x is None or x.dtype.kind not in "iu" or i in kept:
            found.append(x)
            continue
        if np.any(np.abs(x.astype(np.float64)) >= 2.0**53):
            raise UnsupportedError(BEYOND)
        found.append(domain.constant(x))
    return found


def compute(call: Call) -> list[Array]:
    """The results of one operator.

    Args:
        call: The operator, its operands and attributes.

    Raises:
        UnsupportedError: The operator has no semantics here.
        ContradictionError: The operands do not fit it.
    """
    semantics = OPERATORS.get((call.domain, call.op))
    if semantics is None:
        raise UnsupportedError(f"{call.op} has no semantics here")
    try:
        made = semantics(call)
    except (ValueError, IndexError, TypeError) as error:
        # z3's terms support less than numbers do, and say so with a TypeError.
        kind = UnsupportedError if call.d.name == "order" else ContradictionError
        raise kind(f"{call.op}: {error}") from error
    except (KeyError, ArithmeticError, _z3_error()) as error:
        raise UnsupportedError(f"{call.op}: {error}") from error
    return made if isinstance(made, list) else [made]


def _z3_error() -> type[Exception]:
    """z3's exception where z3 is loaded; one that nothing raises elsewhere."""
    found: type[Exception] | None = getattr(sys.modules.get("z3"), "Z3Exception", None)
    return StopAsyncIteration if found is None else found


_TIE = 2.0**-20  # how far what is rounded to a whole number is moved, in proportion


class _Given(Floats):
    """float64 numbers, those of constants of any content as given.

    In a ``draw`` other than 0 what is rounded to a whole number is moved by a few last places of a float32 first: at a tie the kernel decides.
    """

    def __init__(self, contents: Mapping[str, Array], draw: int = 0) -> None:
        super().__init__(0)
        self.contents, self.draw = contents, draw

    def func(self, name: str, *operands: Array) -> Array:
        if self.draw and name.startswith(QUANTISE):
            signs = rng_of(name, self.seed, self.draw).choice([-1.0, 1.0], operands[0].shape)
            operands = (operands[0] * (1 + _TIE * signs), *operands[1:])
        return super().func(name, *operands)

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        return self.contents[name]


def at_contents(graph: Graph, symbolic: Collection[int], feeds: Mapping[int, Array], draw: int = 0) -> list[Array]:
    """The graph's outputs in float64 at given contents of inputs and of constants of any content, by key; ``draw`` as of :class:`_Given`.

    Raises:
        UnsupportedError: An operator has no semantics here.
        ContradictionError: The shapes contradict each other.
    """
    exact = {k: a.astype(np.float64) if a.dtype.kind == "f" else a for k, a in feeds.items()}
    domain = _Given({graph.values[k].name: exact[k] for k in symbolic if k in graph.values}, draw)
    with np.errstate(all="ignore"):
        return evaluate(graph, domain, {k: exact[k] for k in graph.inputs}, symbolic, symbolic)


def overhangs(graph: Graph, symbolic: Collection[int], feeds: Mapping[int, Array]) -> bool:
    """Whether a graph has a window larger than its image: ONNX makes nothing of it, the runtime something, as it divides towards 0."""
    try:
        at_contents(graph, symbolic, feeds)
    except WindowError:
        return True
    except (UnsupportedError, ContradictionError):
        return False
    return False
