"""The networks do not care about order, respect the mask, and know rules by what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from graphopt.rewrite.schema import Rule, parse_rules  # noqa: E402
from graphopt.rl.features import Batch, Observation  # noqa: E402
from graphopt.rl.play import choose, log_softmax, play  # noqa: E402
from graphopt.rl.rule_features import RuleBatch  # noqa: E402
from graphopt.rl.task import Task  # noqa: E402
from graphopt.rl.task_environment import TaskEnvironment  # noqa: E402
from graphopt.rl.training.controller import Controller, Shape, Tensors, TorchPolicy, symexp, symlog  # noqa: E402
from graphopt.rl.training.ppo import entropies  # noqa: E402
from graphopt.rl.training.ppo import log_softmax as torch_log_softmax  # noqa: E402
from graphopt.rl.training.pretrain import pretrain  # noqa: E402


def controller_for(task: Task, width: int = 16) -> Controller:
    torch.manual_seed(0)
    made = Controller(Shape.of(task, width, 2))
    with torch.no_grad():
        for parameter in made.parameters():  # a new policy is close to uniform, which would hide a great deal
            parameter += 0.2 * torch.randn_like(parameter)
    return made


def shuffled(seen: Observation, nodes: np.ndarray, actions: np.ndarray) -> Observation:
    """The same state with nodes and actions in another order; STOP stays first."""
    back = np.argsort(nodes)
    edges = np.random.default_rng(1).permutation(len(seen.edges))
    order = np.concatenate([[0], 1 + actions])
    sites = np.where(seen.sites < 0, -1, back[seen.sites])
    return Observation(
        seen.operators[nodes], seen.nodes[nodes], back[seen.links[:, edges]], seen.edges[edges], seen.graph,
        seen.rules[order], sites[order], seen.actions[order], seen.mask[order], seen.identities[order],
    )  # fmt: skip


def test_the_policy_is_equivariant(demo: Task, demo_environment: TaskEnvironment) -> None:
    rng = np.random.default_rng(0)
    seen = demo_environment.root.observation
    nodes, actions = rng.permutation(len(seen.nodes)), rng.permutation(len(seen.rules) - 1)
    policy = TorchPolicy(controller_for(demo), demo_environment.problem.library.rules)
    here = policy([seen], [0])
    there = policy([shuffled(seen, nodes, actions)], [0])
    assert np.allclose(here.logits[0][1:][actions], there.logits[0][1:], atol=1e-4)
    assert np.allclose(here.logits[0][0], there.logits[0][0], atol=1e-4)
    assert np.allclose(here.values, there.values, atol=1e-4)
    assert np.ptp(here.logits[0]) > 0.1


def test_states_of_a_batch_do_not_see_each_other(demo: Task, demo_environment: TaskEnvironment) -> None:
    policy = TorchPolicy(controller_for(demo), demo_environment.problem.library.rules)
    states = [demo_environment.root.observation, demo_environment.after(demo_environment.root, 1).observation]
    together, alone = policy(states, [0, 1]), [policy([state], [0]) for state in states]
    for i, single in enumerate(alone):
        assert np.allclose(together.logits[i], single.logits[0], atol=1e-4)
        assert together.values[i] == pytest.approx(single.values[0], abs=1e-4)


def test_a_graph_without_a_node_is_scored_by_itself_and_among_others(
    demo: Task, demo_environment: TaskEnvironment
) -> None:
    """Rewrites may leave nothing to compute; what is known of the whole then still counts."""
    seen = demo_environment.root.observation
    empty = Observation(
        seen.operators[:0], seen.nodes[:0], seen.links[:, :0], seen.edges[:0], seen.graph,
        seen.rules[:1], seen.sites[:1], seen.actions[:1], seen.mask[:1], seen.identities[:1],
    )  # fmt: skip
    controller = controller_for(demo)
    policy = TorchPolicy(controller, demo_environment.problem.library.rules)
    alone, among = policy([empty], [0]), policy([seen, empty], [0, 1])
    assert alone.logits[0].shape == (1,) and np.allclose(alone.logits[0], among.logits[1], atol=1e-4)
    assert alone.values[0] == pytest.approx(among.values[1], abs=1e-4)
    with torch.no_grad():
        cheap, dear = (
            controller.embed(Tensors.of(Batch.of([replace(empty, graph=seen.graph + more)])))[1] for more in (0, 1)
        )
    assert float(torch.abs(cheap - dear).max()) > 0.1


def test_the_mask_is_in_sampling_update_and_entropy() -> None:
    logits = torch.tensor([0.5, 9.0, -1.0, 0.0, 2.0], requires_grad=True)
    mask = torch.tensor([True, False, True, True, True])
    graph = torch.tensor([0, 0, 0, 1, 1])
    found = torch_log_softmax(logits, mask, graph, 2)
    first = torch.softmax(logits[[0, 2]], 0)
    assert torch.allclose(found[[0, 2]].exp(), first) and float(found[1].detach().exp()) == 0.0
    spread = entropies(found, mask, graph, 2)
    assert torch.allclose(spread[0], -(first * first.log()).sum())
    (found[0] + spread.sum()).backward()
    assert float(logits.grad[1]) == 0.0 and float(logits.grad[0]) != 0.0
    single = log_softmax(logits[:3].detach().double().numpy(), mask[:3].numpy())
    assert single[1] == -np.inf and np.allclose(single[[0, 2]], found[[0, 2]].detach().numpy())
    drawn = {choose(single, np.random.default_rng(i), 5.0) for i in range(200)}
    assert drawn == {0, 2} and choose(single, None) == 0


def test_the_update_agrees_with_the_policy_that_played(demo: Task, demo_environment: TaskEnvironment) -> None:
    controller = controller_for(demo)
    rules = demo_environment.problem.library.rules
    episodes = play(
        [demo_environment] * 4, TorchPolicy(controller, rules), [np.random.default_rng(i) for i in range(4)]
    )
    played = max(episodes, key=lambda t: sum(int((~o.mask).sum()) for o in t.observations))
    batch = Tensors.of(Batch.of(played.observations[:-1]))
    assert not batch.mask.all()
    with torch.no_grad():
        logits, values = controller(batch, controller.table(RuleBatch.of(rules)))
        found = torch_log_softmax(logits, batch.mask, batch.action_graph, played.steps)
    chosen = found[batch.first[:-1] + torch.from_numpy(played.actions)]
    assert np.allclose(chosen.numpy(), played.log_probs, atol=1e-4)
    assert np.allclose(symexp(values).numpy(), played.values[:-1], atol=1e-3)


def test_a_rule_is_what_it_says(toy: Task, toy_environment: TaskEnvironment) -> None:
    controller = controller_for(toy)
    rules = list(toy_environment.problem.library.rules)

    def table(of: list[Rule]) -> np.ndarray:
        with torch.no_grad():
            return controller.table(RuleBatch.of(of)).numpy()[1:]  # the first is STOP's

    before = table(rules)
    assert np.allclose(table(rules[::-1])[::-1], before, atol=1e-5)
    renamed = replace(rules[0], id="another-name", doc="Other words.")
    assert np.allclose(table([renamed])[0], before[0], atol=1e-5)
    text = (
        "family: toy\ndoc: Added.\nrules:\n  - id: added\n    doc: Added.\n    equal: real\n"
        "    match: ['y = Abs(x)']\n    replace: ['n = Neg(x)', 'y = Abs(n)']\n    examples: {accept: [{x: 3xf32}]}\n"
    )
    added = table([*rules, *parse_rules(text, "added.yaml")])
    assert np.allclose(added[:-1], before, atol=1e-5)
    assert min(np.abs(added[-1] - row).max() for row in before) > 1e-3
    other_claim = replace(rules[0], claim="exact")
    assert np.abs(table([other_claim])[0] - before[0]).max() > 1e-3


def test_pretraining_reconstructs_graphs_and_moves_the_encoder(demo: Task, demo_environment: TaskEnvironment) -> None:
    controller = controller_for(demo)
    before = {name: p.detach().clone() for name, p in controller.encoder.named_parameters()}
    losses = pretrain(controller, [demo_environment], 90, (0, 1))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    still = {name for name, p in controller.encoder.named_parameters() if torch.equal(p, before[name])}
    assert all("rounds.1.global_model" in name for name in still)  # what it says of the whole is not asked for


def test_returns_on_a_logarithmic_scale_come_back() -> None:
    x = torch.tensor([-50.0, -0.1, 0.0, 0.1, 30.0])
    assert torch.allclose(symexp(symlog(x)), x, atol=1e-4)
