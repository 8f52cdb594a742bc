"""Features of unchanged nodes are taken over, and are those that would be found from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.rewrite.library import load_library
from graphopt.rl.episode import Episode
from graphopt.rl.features import Batch, operator_bucket
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.task_environment import TaskEnvironment


def test_operators_of_the_shipped_rules_do_not_collide() -> None:
    names = {op for rule in load_library().rules for line in (*rule.match, *rule.replace) for op in line.ops}
    names |= {("graphopt", each) for each in ("number", "operand", "same", "any")}
    assert len({operator_bucket(*name) for name in names}) == len(names)


@pytest.mark.parametrize("seed", range(4))
def test_features_kept_up_to_date_equal_fresh_ones(demo_environment: TaskEnvironment, seed: int) -> None:
    rng = np.random.default_rng(seed)
    episode = Episode(demo_environment)
    while not episode.result.done:
        legal = np.flatnonzero(episode.observation.mask[1:])
        episode.step(1 + int(rng.choice(legal)) if len(legal) else 0)
        kept = episode.state.cached.features
        fresh = demo_environment.featurizer.featurize(kept.graph)
        assert kept.index == fresh.index
        for name in ("operators", "fixed", "links", "edges"):
            assert np.array_equal(getattr(kept, name), getattr(fresh, name)), name
        assert np.isfinite(episode.observation.nodes).all() and np.isfinite(episode.observation.edges).all()


def test_a_batch_keeps_each_graph_by_itself(
    demo_environment: TaskEnvironment, toy_environment: TaskEnvironment
) -> None:
    seen = [demo_environment.root.observation, demo_environment.after(demo_environment.root, 1).observation]
    batch = Batch.of(seen)
    second = len(seen[0].nodes)
    assert np.array_equal(batch.links[:, len(seen[0].edges) :] - second, seen[1].links)
    mine = batch.sites[batch.first[1] :]
    assert np.array_equal(np.where(mine < 0, -1, mine - second), seen[1].sites)
    assert (batch.sites[batch.first[:-1]] == -1).all() and (batch.rules[batch.first[:-1]] == -1).all()


def test_rules_are_drawn_with_both_sides() -> None:
    rules = load_library(["matmul"]).rules
    drawn = RuleBatch.of(rules)
    assert drawn.links.max() < len(drawn.nodes)
    assert (drawn.node_graph[drawn.links[0]] == drawn.node_graph[drawn.links[1]]).all()
    for i, rule in enumerate(rules):
        mine = drawn.nodes[drawn.node_graph == i]
        assert mine[:, 0].sum() == len(rule.match) and mine[:, 1].sum() == len(rule.replace)
