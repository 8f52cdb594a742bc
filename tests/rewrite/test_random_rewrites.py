"""Random rewrites by the shipped rules: the graph stays valid, the matches up to date, the outputs the same."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphopt.ir.delta import RefusedError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from tests.ir.check import problems
from tests.ir.graphs import Sample, samples

LIBRARY = load_library()
QUIET = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def walk(graph, seed: int, steps: int = 8):
    """Apply random matches; yields each graph with its matches kept up to date."""
    rng = random.Random(seed)
    sites = Sites.of(graph, LIBRARY)
    for _ in range(steps):
        actions = [sites.matches[key] for key in sorted(sites.matches)]
        if not actions:
            return
        try:
            graph, delta = apply(graph, rng.choice(actions))
        except RefusedError:
            continue
        sites = sites.after(graph, delta)
        yield graph, sites


def running(graph):
    """Operator and operand names of every node that is not a lazy constant, in order."""
    return [
        (n.op, [graph.values[k].name if k is not None else "" for k in n.inputs])
        for n in graph.in_order()
        if not graph.is_lazy(n)
    ]


def outputs(proto, feeds):
    model = LoadableModel(proto.SerializeToString())
    with Session(model, SessionConfig(level="disabled")) as session:
        names = {spec.name for spec in session.input_specs}
        return [np.asarray(a) for a in session.run({k: v for k, v in feeds.items() if k in names})]


@QUIET
@given(samples(), st.integers(0, 1000))
def test_graph_stays_valid_and_matches_stay_complete(sample: Sample, seed: int):
    for graph, sites in walk(simplify(load(sample.model).graph), seed):
        assert problems(graph) == []
        assert set(sites.matches) == set(Sites.of(graph, LIBRARY).matches)


@QUIET
@given(samples(), st.integers(0, 1000))
def test_outputs_stay_the_same(sample: Sample, seed: int):
    model = load(sample.model)
    graph = simplify(model.graph)
    for rewritten, _ in walk(graph, seed):
        graph = rewritten
    after = to_proto(emit(model, graph))
    for a, b in zip(outputs(sample.model, sample.feeds), outputs(after, sample.feeds), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(a).max(initial=0.0))))


@QUIET
@given(samples())
def test_round_trip_gives_the_same_graph(sample: Sample):
    model = load(sample.model)
    untouched = to_proto(emit(model, model.graph))
    assert untouched.SerializeToString(deterministic=True) == sample.model.SerializeToString(deterministic=True)
    again = load(to_proto(emit(model, dataclasses.replace(model.graph)))).graph
    assert running(again) == running(model.graph)  # constants may have been folded, what runs is the same
    assert [name for name, _ in again.outputs] == [name for name, _ in model.graph.outputs]


@QUIET
@given(samples())
def test_hash_does_not_depend_on_the_order_of_independent_rewrites(sample: Sample):
    graph = simplify(load(sample.model).graph)
    sites = Sites.of(graph, LIBRARY)
    actions = [sites.matches[key] for key in sorted(sites.matches)]
    for first in actions[:6]:
        for second in actions[:6]:
            if set(first.nodes) & set(second.nodes):
                continue
            try:
                one, delta = apply(graph, first)
                both = sites.after(one, delta).matches.get((second.rule.id, second.nodes))
                other, delta = apply(graph, second)
                mirror = sites.after(other, delta).matches.get((first.rule.id, first.nodes))
                if both is not second or mirror is not first:
                    continue  # the first rewrite changed what the second one sees
                assert apply(one, second)[0].hash == apply(other, first)[0].hash
            except RefusedError:
                continue
