"""The world model: what becomes of actions, dreams without the engine, and that it learns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import graphopt.rl.training.dreamer  # noqa: E402
import graphopt.search.problem  # noqa: E402
from graphopt.rl.features import SAVING, scaled  # noqa: E402
from graphopt.rl.play import ScriptedPolicy, UniformPolicy, play  # noqa: E402
from graphopt.rl.task import Source, Task  # noqa: E402
from graphopt.rl.task_environment import TaskEnvironment  # noqa: E402
from graphopt.rl.training.controller import Shape, symlog  # noqa: E402
from graphopt.rl.training.dream import Start, dream  # noqa: E402
from graphopt.rl.training.dreamer import DreamerLearner, Dreaming, losses  # noqa: E402
from graphopt.rl.training.ppo import METRICS, PPO, advantages  # noqa: E402
from graphopt.rl.training.replay_buffer import Record, Replay, Windows, shared, windows  # noqa: E402
from graphopt.rl.training.train import sources_of, train  # noqa: E402
from graphopt.rl.training.training_run import DYNAMICS, Run  # noqa: E402
from graphopt.rl.training.world_model import TwoHotHead, WorldShape, saving_percent  # noqa: E402

SMALL = Dreaming(fits=3, windows=6, episodes=6, rounds=2, dreams=16, horizon=5)


def records_of(environment: TaskEnvironment, count: int) -> list[Record]:
    played = play([environment] * count, UniformPolicy(), [np.random.default_rng(i) for i in range(count)])
    return [Record(t, environment.task.graphs.train[0], (0, 0, i)) for i, t in enumerate(played)]


def replayed(task: Task, environment: TaskEnvironment, models: int, count: int, iterations: int) -> Replay:
    """The episodes of some iterations over so many models, as training plays them."""
    pool = tuple(Source(f"{n}.onnx") for n in range(models))
    task, replay = replace(task, graphs=replace(task.graphs, train=pool)), Replay(10**9)
    played = play([environment], UniformPolicy(), [np.random.default_rng(0)])[0]
    for k in range(iterations):
        for i, source in enumerate(sources_of(task, k, count)):
            replay.add(Record(replace(played, model=source.name), source, (0, k, i)))
    return replay


def learner_of(task: Task, environment: TaskEnvironment, dynamics: str) -> DreamerLearner:
    torch.manual_seed(0)
    shape = WorldShape(Shape.of(task, 16, 2), memory=32, dynamics=dynamics)
    learner = DreamerLearner(shape.network(), environment.problem.library.rules, SMALL, PPO(learning_rate=1e-2))
    learner.remember(records_of(environment, 8))
    return learner


def test_what_becomes_of_actions_is_what_the_next_state_offers(demo_environment: TaskEnvironment) -> None:
    fates = gone = fresh = 0
    for record in records_of(demo_environment, 4):
        seen = record.played.observations
        for t, (kept, born) in enumerate(record.fates):
            before, after = seen[t], seen[t + 1]
            for i, j in enumerate(kept):
                if j >= 0:
                    assert before.identities[i] == after.identities[j] and after.mask[j]
                    assert before.rules[i] == after.rules[j]
                else:
                    there = np.flatnonzero(after.identities == before.identities[i])
                    assert not after.mask[there].any()
                    gone += 1
            for j in born:
                assert after.identities[j] not in before.identities and after.mask[j]
            assert len(set(after.rules[born].tolist())) == len(born)
            fates, fresh = fates + len(kept), fresh + len(born)
    assert fates > gone > 0 and fresh > 0


def test_windows_hold_consecutive_steps(demo_environment: TaskEnvironment) -> None:
    records = records_of(demo_environment, 3)
    found = windows(records, np.random.default_rng(0), 5, 4)
    assert list(found.counts) == sorted(found.counts, reverse=True) and sum(found.counts) == len(found.before)
    at = 0
    for k, going in enumerate(found.counts):
        for w in range(going):
            record, first, steps = found.parts[w]
            assert k < steps <= 4
            assert found.observations[found.before[at]] is record.played.observations[first + k]
            assert found.observations[found.after[at]] is record.played.observations[first + k + 1]
            assert found.rewards[at] == record.played.rewards[first + k]
            at += 1
    assert not set(found.slot_step) & set(np.flatnonzero(found.done))


@pytest.mark.parametrize("models", [1, 2, 6, 7, 8])
@pytest.mark.parametrize("count", [6, 8])
def test_of_each_model_some_episodes_are_learned_from_and_some_held_out(
    toy: Task, toy_environment: TaskEnvironment, models: int, count: int
) -> None:
    replay = replayed(toy, toy_environment, models, count, 300)
    seen, unseen = Counter(r.played.model for r in replay.learned), Counter(r.played.model for r in replay.unseen)
    for model in {r.played.model for r in replay.records}:
        assert 0.05 < unseen[model] / (seen[model] + unseen[model]) < 0.2


def test_of_many_models_each_gives_its_newest_episode(toy: Task, toy_environment: TaskEnvironment) -> None:
    replay = replayed(toy, toy_environment, 24, 6, 40)
    picked = replay.pick(np.random.default_rng(0), 24)
    newest = {r.played.model: r for r in replay.learned}
    assert len(picked) == 24 and {id(r) for r in picked} == {id(r) for r in newest.values()}


def test_half_of_the_windows_begin_where_the_prices_were_wrong(demo_environment: TaskEnvironment) -> None:
    (record,) = records_of(demo_environment, 1)
    last = record.played.steps - 1
    told = np.array(
        [
            saving_percent(torch.tensor(o.actions[a, SAVING]))
            for o, a in zip(record.played.observations, record.played.actions, strict=False)
        ]
    )
    told[-2] = -5.0 - told[-2]
    wrong = Record(replace(record.played, rewards=told), record.source, record.seed)
    assert wrong.reward_error[-2] > 0.5 and np.delete(wrong.reward_error, -2) == pytest.approx(0.0, abs=1e-3)
    found = windows([wrong], np.random.default_rng(0), 200, 1)
    assert sum(first == last - 1 for _, first, _ in found.parts) >= 100
    assert {first for _, first, _ in found.parts} == set(range(last + 1))


def test_actions_that_share_a_node_are_known(demo_environment: TaskEnvironment) -> None:
    seen = demo_environment.root.observation
    near = shared(seen)
    sets = [{int(x) for x in row if x >= 0} for row in seen.sites]
    for i in range(len(sets)):
        for j in range(len(sets)):
            assert near[i, j] == bool(sets[i] & sets[j])


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_fitting_moves_every_part_of_the_model_and_the_encoder(
    demo: Task, demo_environment: TaskEnvironment, dynamics: str
) -> None:
    learner = learner_of(demo, demo_environment, dynamics)
    model = learner.network.model
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    metrics = learner.learn([r.played for r in learner.remembered], np.random.default_rng(0), 0.5)
    still = [n for n, p in learner.network.named_parameters() if torch.equal(p, before[n])]
    assert not still
    assert any(n.startswith("model.encoder.rounds.0") for n in before)
    assert all(np.isfinite(v) for v in metrics.values())
    told = {"model_loss", "latent_loss", "reward_loss", "done_loss", "legal_loss", "birth_loss", "reward_error", "gap"}
    told |= {"legal_accuracy", "birth_accuracy", "dream_return"}
    assert set(metrics) == told | set(METRICS)
    assert all(f"``{name}``" in (graphopt.rl.training.dreamer.__doc__ or "") for name in told)
    w = windows(learner.replay.learned, np.random.default_rng(1), 4, 3)
    assert set(losses(model, w, learner.rules, None)) >= {"latent_loss", "birth_loss", "decoder_loss"}


def test_the_gap_is_that_of_the_policy_that_played(demo: Task, demo_environment: TaskEnvironment) -> None:
    """Later dreams are of a policy that has learned from the first."""
    gaps, dreamt = [], []
    for rounds in (1, 3):
        learner = learner_of(demo, demo_environment, "deterministic")
        learner.settings = replace(SMALL, rounds=rounds)
        metrics = learner.learn([r.played for r in learner.remembered], np.random.default_rng(0), 0.5)
        gaps.append(metrics["gap"])
        dreamt.append(metrics["dream_return"])
    assert gaps[0] == pytest.approx(gaps[1]) and dreamt[0] != pytest.approx(dreamt[1])


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_the_dream_calls_no_engine(
    demo: Task, demo_environment: TaskEnvironment, dynamics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(demo, demo_environment, dynamics)
    calls = {"rewritten": 0, "after": 0, "featurize": 0}

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: object, **kwargs: object) -> object:
            calls[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)

    counted(graphopt.search.problem, "rewritten")
    counted(TaskEnvironment, "after")
    counted(type(demo_environment.featurizer), "featurize")
    learner.learn([r.played for r in learner.remembered], np.random.default_rng(0), 0.5)
    assert calls == {"rewritten": 0, "after": 0, "featurize": 0}
    demo_environment.forget()
    records_of(demo_environment, 1)
    assert all(count > 0 for count in calls.values())


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_dreams_keep_to_the_mask_and_bootstrap_where_they_are_cut(
    demo: Task, demo_environment: TaskEnvironment, dynamics: str
) -> None:
    learner = learner_of(demo, demo_environment, dynamics)
    starts, roots = learner.starts(learner.replay.learned)
    assert len(roots) == len(learner.replay.learned)
    found = dream(learner.network, starts, learner.table(), 5, 1.0, torch.Generator().manual_seed(0))
    assert len(found.episodes) == len(starts.models)
    at = cut = 0
    for episode in found.episodes:
        for action in episode.actions:
            assert 0 <= action < int(found.legal[found.rows[at]].sum())
            at += 1
        assert len(episode.values) == len(episode.actions) + 1 and len(episode.actions) <= 5
        if len(episode.actions) < 5:
            assert episode.values[-1] == 0.0
        elif episode.values[-1] != 0.0:
            cut += 1
            found_advantages, _ = advantages(episode, 1.0, 0.0)
            assert found_advantages[-1] == pytest.approx(episode.rewards[-1] + episode.values[-1] - episode.values[-2])
    assert cut > 0 and at == len(found.rows)
    # The update sees what the dream saw: the same log-probabilities.
    policy = found.policy(learner.network)
    part = np.arange(min(64, len(found.rows)))
    with torch.no_grad():
        now = policy(part)
        from graphopt.rl.training.ppo import log_softmax

        log_probs = log_softmax(now.logits, now.mask, now.graph, len(part))
    actions = np.concatenate([e.actions for e in found.episodes])[part]
    wanted = np.concatenate([e.log_probs for e in found.episodes])[part]
    assert np.allclose(log_probs[now.first + torch.from_numpy(actions)].numpy(), wanted, atol=1e-4)


def test_at_temperature_zero_a_dream_depends_on_the_choices_alone(
    demo: Task, demo_environment: TaskEnvironment
) -> None:
    learner = learner_of(demo, demo_environment, "mdn-lstm")
    starts, _ = learner.starts(learner.replay.learned[:1])
    one = Start(*(x[:1] for x in (
        starts.models, starts.latent, starts.memory, starts.actions, starts.features, starts.near, starts.legal
    )))  # fmt: skip
    by_choices: dict[tuple[int, ...], set[float]] = {}
    for seed in range(30):
        (episode,) = dream(learner.network, one, learner.table(), 2, 0.0, torch.Generator().manual_seed(seed)).episodes
        by_choices.setdefault(tuple(episode.actions), set()).add(round(float(episode.rewards.sum()), 5))
    assert len(by_choices) > 1 and all(len(sums) == 1 for sums in by_choices.values())


def test_written_actions_play_the_same_episode_again(demo_environment: TaskEnvironment) -> None:
    for record in records_of(demo_environment, 3):
        (again,) = play(
            [demo_environment], ScriptedPolicy([record.played.actions.tolist()]), [np.random.default_rng(record.seed)]
        )
        assert np.array_equal(again.actions, record.played.actions)
        assert np.array_equal(again.rewards, record.played.rewards)


def test_bins_tell_amounts_between_them() -> None:
    head = TwoHotHead(3)
    amounts = symlog(torch.tensor([-40.0, -0.3, 0.0, 0.02, 7.0, 60.0]))
    assert torch.allclose(head.mean(head(torch.zeros(6, 3), amounts)), amounts, atol=0.05)
    # A guess can be far off: what is met then outweighs it.
    nats = head.loss(head(torch.zeros(1, 3), symlog(torch.tensor([30.0]))), symlog(torch.tensor([-45.0])))
    assert 5.0 < nats.item() < 15.0
    logits = torch.zeros_like(head.edges).unsqueeze(0).requires_grad_()
    optimizer = torch.optim.Adam([logits], 0.1)
    for _ in range(400):
        loss = head.loss(logits, torch.tensor([1.3])).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(head.mean(logits.detach())) == pytest.approx(1.3, abs=0.02)


def test_the_feature_of_a_saving_can_be_read_back(demo_environment: TaskEnvironment) -> None:
    x = np.array([-30.0, -0.1, 0.0, 0.5, 12.0], np.float32)
    assert np.allclose(saving_percent(torch.from_numpy(scaled(x))).numpy(), x, rtol=1e-3, atol=1e-4)
    # And it is what the step pays, where an action has one place.
    seen = demo_environment.root.observation
    for action in np.flatnonzero(seen.mask)[1:]:
        if demo_environment.root.choices[action - 1].times == 1:
            after = demo_environment.after(demo_environment.root, int(action))
            paid = 100 * (demo_environment.root.cost - after.cost) / demo_environment.start.cost
            if len(after.steps) == 1:
                assert float(saving_percent(torch.from_numpy(seen.actions[action, :1]))[0]) == pytest.approx(
                    paid, abs=1e-2
                )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_it_finds_what_lies_behind_a_costly_step(toy: Task, tmp_path: Path, seed: int) -> None:
    run = Run(toy, tmp_path / "agent", "world-model", preset="debug", seed=seed, steps=400, dynamics="deterministic")
    manifest = train(run)
    assert manifest.results["model"]["best"] == pytest.approx(25.0)


def test_windows_of_an_episode_that_ends_at_once(demo_environment: TaskEnvironment) -> None:
    (stopped,) = play([demo_environment], ScriptedPolicy([[0]]), [None])
    found = Windows.of([(Record(stopped, demo_environment.task.graphs.train[0], (0, 0, 0)), 0, 1)])
    assert found.done.tolist() == [True] and len(found.slots) == len(found.births) == 0
