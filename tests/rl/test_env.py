"""The environment keeps Gymnasium's contract, its masks and its books."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

import graphopt.rl  # noqa: E402
from graphopt.cost.store import Store  # noqa: E402
from graphopt.errors import GraphoptError, UnknownNameError, UsageError  # noqa: E402
from graphopt.ir.delta import RefusedError  # noqa: E402
from graphopt.retrace import replay  # noqa: E402
from graphopt.rl.agent import AgentNotice  # noqa: E402
from graphopt.rl.episode import Episode  # noqa: E402
from graphopt.rl.reward import TERMS, EpisodeEnd, memory  # noqa: E402
from graphopt.rl.task import RewardTerm, Source, Task  # noqa: E402
from graphopt.rl.task_environment import TaskEnvironment  # noqa: E402
from graphopt.rl.training.env import GraphRewrite  # noqa: E402
from graphopt.rl.training.environments import open_environment  # noqa: E402
from graphopt.runtime.environment import machine_of  # noqa: E402
from graphopt.runtime.session import SessionConfig  # noqa: E402
from graphopt.search.greedy import Greedy  # noqa: E402
from graphopt.search.plans import PlanSearch  # noqa: E402
from graphopt.search.problem import Budget  # noqa: E402
from tests.rl.conftest import DEMO  # noqa: E402


def walk(env: GraphRewrite, seed: int, stop: bool = True) -> tuple[list[float], dict, bool, bool]:
    """An episode of random legal actions: rewards, the last info, terminated, truncated."""
    rng = np.random.default_rng(seed)
    seen, info = env.reset(seed=seed)
    rewards, terminated, truncated = [], False, False
    while not terminated and not truncated:
        legal = np.flatnonzero(seen["mask"])
        legal = legal if stop or len(legal) == 1 else legal[1:]
        seen, reward, terminated, truncated, info = env.step(int(rng.choice(legal)))
        rewards.append(reward)
    return rewards, info, terminated, truncated


@pytest.mark.parametrize("places", ["class", "site"])
def test_gymnasium_accepts_it(demo: Task, places: str) -> None:
    task = replace(demo, actions=replace(demo.actions, places=places))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(graphopt.rl.ENVIRONMENT, task=task)
        check_env(env.unwrapped, skip_render_check=True)
        seen, _ = env.reset(seed=0)
        assert seen in env.observation_space
        seen, *_ = env.step(int(env.action_space.sample(mask=seen["mask"])))
        assert seen in env.observation_space
        assert (env.unwrapped.action_masks() == seen["mask"]).all()


def test_with_a_fixed_size_every_library_takes_its_observations(demo: Task) -> None:
    given = {"task": demo, "fixed_size": (100, 150)}
    env = gymnasium.make(graphopt.rl.ENVIRONMENT, **given)
    check_env(env.unwrapped, skip_render_check=True)
    kinds = {type(space) for space in env.observation_space.values()}
    assert kinds == {gymnasium.spaces.Box, gymnasium.spaces.MultiBinary}
    seen, _ = env.reset(seed=0)
    free = GraphRewrite(demo)
    graph = free.reset(seed=0)[0]["graph"]
    n, e = len(graph.nodes), len(graph.edges)
    assert np.array_equal(seen["nodes"][:n], graph.nodes) and not seen["nodes"][n:].any()
    assert np.array_equal(seen["edges"][:e], graph.edges) and not seen["edges"][e:].any()
    assert np.array_equal(seen["links"][:e], graph.edge_links) and (seen["links"][e:] == -1).all()
    assert (seen["operators"][:n] >= 0).all() and (seen["operators"][n:] == -1).all()
    flat = gymnasium.wrappers.FlattenObservation(env)
    assert flat.reset(seed=0)[0] in flat.observation_space and len(flat.observation_space.shape) == 1
    many = gymnasium.make_vec(graphopt.rl.ENVIRONMENT, num_envs=2, vectorization_mode="async", **given)
    assert np.array_equal(many.reset(seed=[0, 0])[0]["nodes"][1], seen["nodes"])
    many.close()


def test_a_graph_that_outgrows_a_fixed_size_is_told(demo: Task) -> None:
    env = GraphRewrite(demo, fixed_size=(20, 100))
    with pytest.raises(
        GraphoptError, match="44 nodes and 48 edges by now, and observations have room for 20 and 100"
    ) as error:
        env.reset()
    assert error.value.hint == "fixed_size=(88, 100)"


def test_what_a_filter_leaves_has_a_fixed_size(toy: Task) -> None:
    """As the guide to agents says it for libraries that know no graphs."""
    env = gymnasium.wrappers.FilterObservation(
        gymnasium.make(graphopt.rl.ENVIRONMENT, task=toy), ["whole", "rules", "actions", "mask"]
    )
    assert {type(space) for space in env.observation_space.values()} == {
        gymnasium.spaces.Box,
        gymnasium.spaces.MultiBinary,
    }
    seen, _ = env.reset(seed=0)
    assert seen in env.observation_space and (env.get_wrapper_attr("action_masks")() == seen["mask"]).all()


def test_several_at_once(toy: Task) -> None:
    many = gymnasium.make_vec(graphopt.rl.ENVIRONMENT, num_envs=3, vectorization_mode="sync", task=toy)
    seen, _ = many.reset(seed=1)
    assert seen["mask"].shape == (3, 9)
    for _ in range(20):
        seen, rewards, *_ = many.step([int(np.flatnonzero(mask)[-1]) for mask in seen["mask"]])
        assert rewards.shape == (3,)
    many.close()


@pytest.mark.parametrize("places", ["class", "site"])
def test_rewards_add_up_to_the_saving_and_episodes_replay(demo: Task, places: str, tmp_path: Path) -> None:
    env = GraphRewrite(replace(demo, actions=replace(demo.actions, places=places)))
    ends = set()
    for seed in range(4):
        rewards, info, terminated, truncated = walk(env, seed, stop=seed > 1)
        ends.add((terminated, truncated))
        if terminated:  # an episode that is cut off has no final correction
            assert sum(rewards) == pytest.approx(info["saving"], abs=1e-6)
        env.trace().write(tmp_path / "t.json")
        replayed = replay(tmp_path / "t.json", DEMO)
        assert replayed.steps == replayed.of == len(info["trace"])
    assert (True, False) in ends


def test_the_budget_truncates_and_stop_terminates(toy: Task) -> None:
    env = GraphRewrite(replace(toy, budget=2))
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step(1)
    assert not terminated and not truncated
    *_, terminated, truncated, _ = env.step(1)
    assert truncated and not terminated
    with pytest.raises(ValueError, match="reset"):
        env.step(0)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(0)
    assert terminated and not truncated and reward == 0.0 and info["saving"] == 0.0 and info["trace"] == []


def test_a_masked_action_changes_nothing(toy: Task) -> None:
    env = GraphRewrite(toy)
    before, _ = env.reset(seed=0)
    assert not before["mask"][-1]
    after, reward, terminated, truncated, info = env.step(8)
    assert reward == 0.0 and not terminated and not truncated and info["trace"] == [] and info["steps"] == 1
    assert all(np.array_equal(before[name], after[name]) for name in ("rules", "sites", "actions", "mask"))


def test_the_progress_that_is_seen_counts_masked_actions(toy: Task) -> None:
    env = GraphRewrite(replace(toy, budget=10, features=replace(toy.features, graph=("size", "progress", "cost"))))
    env.reset(seed=0)
    seen = [env.step(action)[0]["whole"][3] for action in (8, 1, 8)]
    assert seen == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("action", [np.int64(1), np.array(1), np.uint8(1), True])
def test_a_whole_number_of_any_kind_is_an_action(toy: Task, action: object) -> None:
    env = GraphRewrite(toy)
    env.reset(seed=0)
    assert len(env.step(action)[4]["trace"]) == 1


@pytest.mark.parametrize(
    ("action", "error"),
    [(1.7, TypeError), ("1", TypeError), (np.float32(1), TypeError), (-1, ValueError), (9, ValueError)],
)
def test_what_is_no_action_is_an_error(toy: Task, action: object, error: type[Exception]) -> None:
    env = GraphRewrite(toy)
    env.reset(seed=0)
    with pytest.raises(error):
        env.step(action)
    assert env.episode.used == 0


@pytest.mark.parametrize("models", ["a.onnx", Path("a.onnx")])
def test_a_lone_model_is_no_list_of_them(models: str | Path) -> None:
    with pytest.raises(UsageError, match="models must be a list") as error:
        GraphRewrite(models=models)
    assert error.value.hint == "models=['a.onnx']"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": 3}, "task must be a task, its file or its name, not int"),
        ({"task": None}, "task must be a task, its file or its name, not NoneType"),
        ({"task": ""}, "task must be a task, its file or its name, not ''"),
        ({"models": 3}, "models must be a list of paths and names of the zoo, not int"),
        ({"models": {}}, "models must be a list of paths and names of the zoo, not dict"),
        ({"models": [3]}, "each of models must be a path or a name of the zoo, not int"),
        ({"prices": 3}, "prices must be a path, not int"),
        ({"fixed_size": 3}, "fixed_size must be a number of nodes and one of edges, not int"),
        ({"fixed_size": (3, 0)}, "fixed_size must be a number of nodes and one of edges, not (3, 0)"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        gymnasium.make(graphopt.rl.ENVIRONMENT, **arguments)


def test_graphs_of_one_name_are_refused(toy: Task, tmp_path: Path) -> None:
    same = replace(toy.graphs.train[0], model=str(tmp_path / "model.onnx"))
    named = f"two graphs are called model: {toy.graphs.train[0].model} (train) and {same.model} (held_out)"
    with pytest.raises(UsageError, match=re.escape(named)):
        GraphRewrite(replace(toy, graphs=replace(toy.graphs, held_out=(same,))))
    GraphRewrite(replace(toy, graphs=replace(toy.graphs, held_out=toy.graphs.train)))


@pytest.mark.parametrize("seed", range(3))
def test_a_rewrite_back_to_a_graph_of_the_episode_is_masked(demo_environment: TaskEnvironment, seed: int) -> None:
    rng = np.random.default_rng(seed)
    episode = Episode(demo_environment)
    hashes = [episode.state.search_state.graph.hash]
    masked = 0
    while not episode.result.done:
        mask = episode.observation.mask
        masked += int((~mask).sum())
        legal = np.flatnonzero(mask[1:])
        episode.step(1 + int(rng.choice(legal)) if len(legal) else 0)
        if len(episode.state.steps) == len(hashes):
            hashes.append(episode.state.search_state.graph.hash)
    assert len(set(hashes)) == len(hashes) > 5
    assert masked > 0


def test_what_is_remembered_changes_nothing(demo: Task) -> None:
    env = GraphRewrite(demo)
    first = [walk(env, seed)[:2] for seed in range(4)]
    for seed in range(4):
        env.episode.environment.forget()
        assert walk(env, seed)[:2] == first[seed]


def test_an_agent_counts_candidates_as_a_search_does(demo: Task) -> None:
    start = GraphRewrite(demo)
    start.reset()
    known = start.episode.environment
    search = PlanSearch(known.problem, known.start, budget := Budget(), 1)
    found = next(iter(search.candidates(search.root)))
    assert budget.spent == 1 and search.make(found) is not None and budget.spent == 2

    environment = TaskEnvironment(demo, known.problem, known.start)
    priced = len(environment.root.priced_actions)
    assert environment.candidates == priced > 0
    after = environment.after(environment.root, 1)
    assert after.steps and environment.candidates == priced + 1 + len(after.priced_actions)
    spent = environment.candidates
    assert environment.after(environment.root, 1) is after and environment.candidates == spent
    environment.forget()
    assert environment.candidates == spent + priced
    environment.after(environment.root, 1)
    assert environment.candidates == 2 * spent


def test_the_guide_compares_an_agent_with_a_search(demo: Task, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (DEMO.parents[1] / "docs" / "agents.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(from graphopt.search.backtracking .*?)^```", guide, re.DOTALL | re.MULTILINE)
    env = gymnasium.make(graphopt.rl.ENVIRONMENT, task=demo)
    env.reset(seed=0)
    model = env.unwrapped.episode.environment
    exec(example, {"env": env})
    saving, candidates, reason = capsys.readouterr().out.split(maxsplit=2)
    assert reason == "candidate budget used up\n" and int(candidates) == len(model.root.priced_actions)
    assert 0 <= float(saving) < 100


def test_random_starts_belong_to_a_stage(toy: Task) -> None:
    env = GraphRewrite(replace(toy, graphs=replace(toy.graphs, stage="start", start_steps=3)))
    starts = {len(env.reset(seed=seed)[1]["trace"]) for seed in range(12)}
    assert starts == {0, 1, 2, 3}
    rewards, info, *_ = walk(env, 5)
    assert info["steps"] == len(rewards)


def test_of_too_many_actions_those_that_save_most_are_offered(demo: Task) -> None:
    full = GraphRewrite(demo)
    full.reset(seed=0)
    everything = full.observed
    few = GraphRewrite(replace(demo, actions=replace(demo.actions, limit=5)))
    few.reset(seed=0)
    savings = np.sort(everything.actions[1:, 0][everything.mask[1:]])[::-1]
    assert len(few.observed.rules) == 6 and np.allclose(np.sort(few.observed.actions[1:, 0])[::-1], savings[:5])


def test_models_are_chosen_by_name(toy: Task, demo: Task) -> None:
    env = GraphRewrite(toy)
    assert env.reset(options={"model": "model"})[1]["model"] == "model"
    assert env.reset(options={"model": toy.graphs.train[0].model})[1]["model"] == "model"
    with pytest.raises(UnknownNameError, match="unknown model of this task 'modle'"):
        env.reset(options={"model": "modle"})
    with pytest.raises(UsageError, match="names no graph"):
        GraphRewrite(replace(toy, graphs=replace(toy.graphs, train=())))
    with pytest.raises(UsageError, match="neither a file nor a model of the zoo"):
        GraphRewrite(toy, models=["nothing.onnx"]).reset()


def test_options_of_reset_are_named(toy: Task) -> None:
    graphs = replace(toy.graphs, shapes=(Source(str(DEMO)),))
    env = GraphRewrite(replace(toy, graphs=graphs))
    assert env.reset(options={"model": "demo_regnet"})[1]["model"] == "demo_regnet"  # of a stage that is not reached
    with pytest.raises(UnknownNameError, match="unknown option of reset 'modle'"):
        env.reset(options={"modle": "model"})
    with pytest.raises(UnknownNameError, match=re.escape("""unknown model of this task "['model']\"""")):
        env.reset(options={"model": ["model"]})
    with pytest.raises(UsageError, match="options must be a dict, not str"):
        env.reset(options="model")  # type: ignore[arg-type]


def test_models_take_the_place_of_all_that_a_task_trains_on(toy: Task) -> None:
    others = (Source(str(DEMO)),)
    task = replace(toy, graphs=replace(toy.graphs, shapes=others, family=others, stage="family"))
    env = GraphRewrite(task, models=[toy.graphs.train[0].model])
    assert {env.reset(seed=seed)[1]["model"] for seed in range(8)} == {"model"}


def test_an_environment_is_pickled_without_its_episode(demo: Task) -> None:
    env = gymnasium.make(graphopt.rl.ENVIRONMENT, task=replace(demo, graphs=replace(demo.graphs, stage="start")))
    fresh = pickle.loads(pickle.dumps(env))
    assert env.reset(seed=3)[1] == fresh.reset(seed=3)[1]
    other = pickle.loads(pickle.dumps(env))
    with pytest.raises(UsageError, match="reset the environment"):
        other.unwrapped.step(0)
    ours, theirs = ([each.reset() for _ in range(3)] for each in (env, other))  # chance goes on where it was
    assert [info for _, info in ours] == [info for _, info in theirs]
    assert all(seen in other.observation_space for seen, _ in theirs)


def test_a_copy_shares_the_rules(demo: Task) -> None:
    env = GraphRewrite(demo)
    env.reset(seed=0)
    other = copy.deepcopy(env)
    assert other._library is env._library and other.episode is not env.episode
    assert other.np_random is not env.np_random


def test_a_copy_goes_on_by_itself(toy: Task) -> None:
    env = gymnasium.make(graphopt.rl.ENVIRONMENT, task=toy)
    env.reset(seed=0)
    env.step(1)
    other = copy.deepcopy(env)
    ahead = other.step(1)
    assert (env.unwrapped.episode.used, other.unwrapped.episode.used) == (1, 2)
    same = env.step(1)
    assert same[1:] == ahead[1:] and np.array_equal(same[0]["actions"], ahead[0]["actions"])


def written(path: Path, op: str, shapes: tuple[list[int], list[int]], **attributes: object) -> Path:
    """A model of one node, in a file."""
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s)
        for name, s in zip("xy", shapes, strict=True)
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"], **attributes)], "one", [x], [y])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, path)
    return path


def test_prices_of_another_machine_are_told(demo: Task, tmp_path: Path) -> None:
    task, path = replace(demo, pricing=replace(demo.pricing, model="kernel")), tmp_path / "prices.sqlite"
    here = machine_of(SessionConfig(threads=1))
    with Store(path) as store:
        store.put_many("another", {"kernel": 1.0})
        store.put_many(here, {"speedup:1:2": 1.5})  # of whole graphs, which a reward measured
    with pytest.warns(AgentNotice, match=re.escape(f"{path} holds no kernel prices of this machine, but of another")):
        GraphRewrite(task, prices=path).reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphRewrite(demo, prices=path).reset()  # a roofline asks for no prices
        with Store(path) as store:
            store.put_many(here, {"kernel": 1.0})
        GraphRewrite(replace(task, name="again"), prices=path).reset()
        with Store(path) as store:
            store.clear()
        GraphRewrite(
            replace(task, name="none"), prices=path
        ).reset()  # a run that began with estimates goes on with them


def test_a_model_that_was_exported_again_is_another(toy: Task, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    shutil.copy(toy.graphs.train[0].model, path)
    before = GraphRewrite(toy, models=[path]).reset()[1]["cost"]
    written(path, "Abs", ([3], [3]))
    assert (before, GraphRewrite(toy, models=[path]).reset()[1]["cost"]) == (12.0, 4.0)


def test_rules_that_were_edited_are_those_of_who_read_them(toy: Task, tmp_path: Path) -> None:
    copied = shutil.copytree(Path(toy.graphs.train[0].model).parent, tmp_path / "toy")
    before = GraphRewrite(copied / "toy.yaml")
    before.reset()
    text = (copied / "rules.yaml").read_text()
    middle, last = text.index("  - id: sign-to-max"), text.index("  - id: abs-by-square")
    (copied / "rules.yaml").write_text(text[:middle] + text[last:])
    after = GraphRewrite(copied / "toy.yaml")
    for env, rules in ((after, 2), (before, 3)):
        assert env.reset()[0] in env.observation_space
        assert len(env.episode.environment.problem.library.rules) == rules


@pytest.mark.parametrize("stride", [3_000_000, 2**62])
def test_any_attribute_lies_in_the_space(demo: Task, tmp_path: Path, stride: int) -> None:
    shapes = ([1, 1, 8, 8], [1, 1, 1, 8])
    path = written(tmp_path / "long.onnx", "MaxPool", shapes, kernel_shape=[1, 1], strides=[stride, 1])
    env = GraphRewrite(demo, models=[path])
    assert env.reset()[0] in env.observation_space


def test_what_a_model_has_none_of_is_no_share(toy: Task, demo_environment: TaskEnvironment, tmp_path: Path) -> None:
    env = GraphRewrite(toy, models=[written(tmp_path / "bare.onnx", "Abs", ([3], [3]))])
    env.reset()
    bare, final = env.episode.environment.start.graph, TERMS["weights"].final
    assert final is not None and final(EpisodeEnd(bare, bare, lambda: 1.0)) == 0.0
    assert final(EpisodeEnd(bare, demo_environment.start.graph, lambda: 1.0)) == -100.0


def test_what_nobody_reads_takes_no_memory_afterwards(toy: Task, tmp_path: Path) -> None:
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, width])
        for name, width in (("x", 6), ("y", 12))
    )
    nodes = [
        onnx.helper.make_node("Sin", ["x"], ["a"]),
        onnx.helper.make_node("Split", ["a"], ["half", "unread"], axis=1),
        onnx.helper.make_node("Concat", ["half"] * 4, ["y"], axis=1),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "split.onnx")
    env = GraphRewrite(toy, models=[tmp_path / "split.onnx"])
    env.reset()
    # At the end one half of 48 bytes and y of four of them: the other half is gone.
    assert memory(env.episode.environment.start.graph) == 5 * 48


def test_terms_of_a_reward(demo: Task, tmp_path: Path) -> None:

    terms = tuple(RewardTerm(name) for name in ("memory", "weights", "nodes", "steps", "latency"))
    task = replace(demo, reward=terms, pricing=replace(demo.pricing, seconds=0.2))
    with Store(tmp_path / "s.sqlite") as store:
        environment = open_environment(task, task.graphs.train[0], store)
        episode = Episode(environment)
        assert episode.step(1).reward == -1.0
        result = episode.step(0)
        assert result.terminated and np.isfinite(result.reward)
        # Measured once: whoever asks again hears the same.
        again = Episode(environment)
        again.step(1)
        assert again.step(0).reward == result.reward


def test_greedy_misses_the_best_of_the_toy(toy_environment: TaskEnvironment) -> None:
    found = Greedy().run(toy_environment.problem, toy_environment.start, Budget())
    assert toy_environment.start.cost == pytest.approx(12.0) and found.state.cost == pytest.approx(10.8)
    costs, todo, seen = [], [toy_environment.start], set()
    while todo:  # every state there is
        state = todo.pop()
        if state.graph.hash not in seen:
            seen.add(state.graph.hash)
            costs.append(state.cost)
            todo += [toy_environment.problem.step(state, match) for match in state.actions()]
    assert len(seen) == 64 and min(costs) == pytest.approx(9.0)


def test_importing_the_package_imports_no_torch() -> None:
    code = (
        "import sys, gymnasium, graphopt.rl\n"
        "assert 'graphopt/GraphRewrite-v0' in gymnasium.registry\n"
        "assert not {'torch', 'torch_geometric', 'onnx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("seed", range(3))
def test_prices_and_masks_are_those_of_the_graph_as_it_is(demo_environment: TaskEnvironment, seed: int) -> None:
    rng = np.random.default_rng(seed)
    episode, problem, seen = Episode(demo_environment), demo_environment.problem, 0
    while not episode.result.done:
        state = episode.state
        for choice in state.choices:
            try:
                graph, cost = problem.price(state.search_state, state.search_state.sites.matches[choice.key])
                legal = graph.hash not in state.visited
            except RefusedError:
                legal = False
            known = state.priced_actions[choice.key].saving_ms
            # A rewrite that leads back to a graph of the episode may turn out to do so only when it is chosen.
            assert known is None or (legal and known == pytest.approx(state.cost - cost, abs=1e-4 * state.start_ms))
            assert known is not None or not legal or choice.key in state.path
            seen += 1
        legal = np.flatnonzero(episode.observation.mask[1:])
        episode.step(1 + int(rng.choice(legal)) if len(legal) else 0)
    assert seen > 50
