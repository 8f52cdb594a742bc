"""Patterns that take any number of operands: which matches there are, and that a node of very many costs no more than it holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.rewrite.expr import Ref
from graphopt.rewrite.match import match_line
from graphopt.rewrite.pattern import parse_line
from graphopt.rewrite.sites import Sites
from graphopt.rewrite.symbols import OPERANDS
from tests.onnxio.models import INT, F, library, model, node, rule, weight


def concat(operands: Sequence[str], relus: Sequence[str] = ()) -> Graph:
    """A Concat of values, of which some are made by a Relu each, of the same input."""
    made = [node("Relu", ["x"], [name]) for name in relus]
    inputs = [(name, F, [2]) for name in ("x", *sorted({*operands} - {*relus, "x"}))]
    return load(model([*made, node("Concat", operands, ["y"], axis=0)], inputs, [("y", F, [2 * len(operands)])])).graph


@pytest.mark.parametrize(
    ("operands", "ways"),
    [
        ("xs...", [{"xs": "abca"}]),
        ("a, xs...", [{"a": "a", "xs": "bca"}]),
        ("xs..., z", [{"xs": "abc", "z": "a"}]),
        ("a, xs..., a", [{"a": "a", "xs": "bc"}]),
        ("a, xs..., c, z?", [{"a": "a", "xs": "b", "c": "c", "z": "a"}, {"a": "a", "xs": "bc", "c": "a"}]),
        ("xs..., m, zs...", [{"xs": "abca"[:i], "m": "abca"[i], "zs": "abca"[i + 1 :]} for i in range(4)]),
        ("xs..., m, m, zs...", []),
        ("xs..., xs...", []),
        ("m, xs..., m, zs...", [{"m": "a", "xs": "bc", "zs": ""}]),
        ("a, b, c, d, e, xs...", []),
    ],
)
def test_every_way_to_take_the_operands(operands: str, ways: list[dict[str, str]]) -> None:
    graph = concat("abca")
    (made,) = graph.nodes.values()
    line = parse_line(f"y = Concat<axis = 0>({operands})", "here")

    def named(value: Ref | tuple[Ref, ...]) -> str:
        refs = (value,) if isinstance(value, Ref) else value
        return "".join(graph.values[ref.key].name for ref in refs if ref.key is not None)

    found = [{k: named(v) for k, v in names.items() if k != "y"} for names in match_line(graph, line, made, {})]
    assert [{k: v for k, v in each.items() if v or k.endswith("s")} for each in found] == ways


def split(parts: str) -> Graph:
    """A Split whose parts have sizes that a caller gives, of which two are read."""
    nodes = [node("Split", ["x", "sizes"], [*parts], axis=0), node("Concat", ["a", "b"], ["t"], axis=0)]
    nodes.append(node("Exp", ["t"], ["y"]))
    return load(model(nodes, [("x", F, ["N", 2]), ("sizes", INT, [len(parts)])], [("y", F, ["M", 2])])).graph


@pytest.mark.parametrize(("parts", "found"), [("ab", {"together"}), ("abc", set())])
def test_a_part_that_nothing_reads_is_a_part(parts: str, found: set[str]):
    again = rule("together", ["a, b = Split<axis = 0>(x, sizes)", "y = Concat<axis = 0>(a, b)"], ["y = x"])
    assert {match.rule.id for match in Sites.of(split(parts), library(again)).matches.values()} == found


@pytest.mark.parametrize(("outputs", "found"), [(["z"], {"plain"}), (["z", "m", "v", "sm", "sv"], set())])
def test_a_normalisation_that_trains_is_no_other(outputs: list[str], found: set[str]):
    """Before operator set 14 it is told by its outputs, whether or not they are read."""
    nodes = [node("BatchNormalization", ["x", "a", "a", "a", "a"], outputs), node("Exp", ["z"], ["y"])]
    graph = load(model(nodes, [("x", F, ["N", 2]), ("a", F, [2])], [("y", F, ["N", 2])], opset=9)).graph
    plain = rule(
        "plain", ["y = BatchNormalization<*how>(x, s, b, m, v)"], ["y = BatchNormalization<*how>(x, b, s, m, v)"]
    )
    assert {match.rule.id for match in Sites.of(graph, library(plain)).matches.values()} == found


@pytest.mark.parametrize(
    ("x", "one", "found"),
    [(None, (), True), (None, (1,), False), (None, (1, 1), False), (["N"], (1,), True), (["N", 2], (1,), True), ([1, 2], (1,), True),
     (None, (2,), True), (None, (1, 2), False)],
)  # fmt: skip
def test_a_constant_that_may_add_dimensions_matches_nothing(
    x: list[int | str] | None, one: tuple[int, ...], found: bool
):
    """Nobody would notice where the ranks are unknown."""
    nodes = [node("Max", ["x", "zero"], ["z"]), node("Exp", ["z"], ["y"])]
    weights = [weight("zero", np.zeros(one, np.float32))]
    graph = load(model(nodes, [("x", F, x)], [("y", F, None)], weights)).graph
    relu = rule("relu", ["y = Max(x, 0)" if prod(one) == 1 else "y = Max(x, c)"], ["y = Relu(x)"])
    assert bool(Sites.of(graph, library(relu)).matches) == found


MANY = library(
    rule("any", ["y = Concat<axis = 0>(xs...)"], ["y = Concat<axis = 0>(xs...)"], where=["len(xs) == 0"]),
    rule("middle", ["m = Relu(x)", "y = Concat<axis = 0>(ks..., m, bs...)"], ["y = Concat<axis = 0>(ks..., x, bs...)"]),
    rule("loose", ["y = Concat<axis = 0>(ks..., m, bs...)"], ["y = m"], where=["len(ks) == 1"]),
)


def test_a_hundred_thousand_operands_take_their_time_once():
    graph = concat(["a"] * 99_990 + ["r", "a"] * 5, ["r"])
    began = time.process_time()
    sites = Sites.of(graph, MANY)
    assert time.process_time() - began < 5
    # Each of them could be the one that `loose` takes; the one that `middle` takes is known.
    assert {match.rule.id for match in sites.matches.values()} == {"middle"}


def test_a_node_of_few_operands_is_looked_through():
    for count, found in ((OPERANDS, 1), (OPERANDS + 1, 0)):
        sites = Sites.of(concat(["a", "b"] * (count // 2) + ["a"] * (count % 2)), MANY)
        assert sum(match.rule.id == "loose" for match in sites.matches.values()) == found
