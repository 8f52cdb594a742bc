"""The staged protocol: agents against search, on graphs ever farther from those that they were trained on, at equal budgets.

All see the same prices, which nobody may add to. The agents go first; what they used, on the mean over their seeds, is what each
search gets on the same graph. A search without chance runs once, since its result is the same for all seeds. Greedy always runs
to its end: of equal places it prices two, or all where these differ, and one that it takes again, where the others price one, so that its
candidates are no measure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from graphopt.cost.models import COST_MODELS
from graphopt.cost.store import Store
from graphopt.errors import GraphoptError, UsageError
from graphopt.rewrite.library import Library
from graphopt.rl.agent import ENCODER, Untrained
from graphopt.rl.evaluation.graph_runs import UNTRAINED, Agent, GraphRuns, StagedSearch, searches
from graphopt.rl.evaluation.learning_curves import Learning, curves, reaches, read_learning
from graphopt.rl.evaluation.scores import BUDGETS, SECONDS, STAGES, STEPS, TRAINING, Evaluation, Score, Timing
from graphopt.rl.manifest import PRICES, CheckpointError, read_manifest
from graphopt.rl.task import Graphs, Source, Task
from graphopt.rl.training.environments import kernel_prices, library_of, model_path, open_environment

Tell = Callable[[str], None]


@dataclass(frozen=True)
class EvaluationPlan:
    """How to evaluate.

    Attributes:
        stages: Some of :data:`graphopt.rl.evaluation.scores.STAGES`.
        seeds: Seeds for each graph, spread evenly over the training runs of an algorithm; at least one each.
        rollouts: Episodes of an agent by chance, besides the one of the likeliest actions.
        cap: Limit on the seconds of a search that has the training's time as well.
    """

    stages: tuple[int, ...] = tuple(STAGES)
    seeds: int = 5
    rollouts: int = 8
    cap: float = 10.0

    def check(self) -> None:
        """See that it makes sense.

        Raises:
            UsageError: It does not.
        """
        unknown = [stage for stage in self.stages if stage not in STAGES]
        if unknown or not self.stages:
            raise UsageError(f"no stage {unknown[0]}" if unknown else "no stage to evaluate", "stages are 1 to 5")
        for what, value, least in (("--seeds", self.seeds, 1), ("--rollouts", self.rollouts, 0)):
            if value < least:
                raise UsageError(f"{what} must be at least {least}, not {value}")
        if not (self.cap > 0 and math.isfinite(self.cap)):
            raise UsageError(f"--seconds must be above 0, not {self.cap}")


def read_agents(folders: Sequence[Path]) -> list[Agent]:
    """The agents of some folders, which must have learned the same task.

    Raises:
        CheckpointError: A folder holds no agent, or one that is not trained to the end.
        UsageError: The tasks differ, or a folder is given twice.
    """
    agents = [Agent(folder, read_manifest(folder)) for folder in folders]
    for i, agent in enumerate(agents):
        if any(agent.folder.resolve() == other.folder.resolve() for other in agents[:i]):
            raise UsageError(f"{agent.folder} is given twice")
        if not (agent.folder / ENCODER).is_file():
            raise CheckpointError(
                f"{agent.folder}: {ENCODER} is missing: training has not come to its end", "see --resume"
            )
        one, other = agents[0].manifest.task.json(), agent.manifest.task.json()
        if one != other:
            differs = next(name for name in one if one[name] != other[name])
            raise UsageError(
                f"{agents[0].folder} and {agent.folder} have learned different tasks: they differ in {differs}",
                "evaluate them one by one",
            )
    return agents


class Evaluator:
    """An evaluation under way.

    Args:
        agents: What to evaluate; those of one algorithm are taken for one agent that was trained with several seeds.
        plan: How.
        tell: Hears what was done.
        interrupted: Asked now and then; true ends it with what there is.

    Attributes:
        found: What was found so far.
        prices: Store of kernel prices by which all are judged; ``None`` for this machine's own.

    Raises:
        UsageError: The plan makes no sense, a model does not exist, or no stage has a graph.
        CheckpointError: An agent's progress can't be read.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        plan: EvaluationPlan,
        tell: Tell = lambda text: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        plan.check()
        self.agents, self.plan, self.tell, self.interrupted = agents, plan, tell, interrupted
        self.task: Task = agents[0].manifest.task
        self.task.graphs.check_names()
        self.began = time.monotonic()
        self._notices: dict[str, None] = {}
        self.prices = self._find_prices()
        self.stages = self._stages()
        if not self.stages:
            raise UsageError(f"task {self.task.name} has no graph for these stages", "; ".join(self._notices) or None)
        self.sources: dict[str, Source] = {s.name: s for sources in self.stages.values() for s in sources}
        for source in self.sources.values():
            model_path(source)  # find what is missing before anything takes its time
        learned = self._learned()
        self.found = Evaluation(
            self.task.name,
            tuple(agent.trained for agent in agents),
            curves=tuple(curves(learned)),
            reaches=tuple(reaches(learned)),
            graphs=len(self.sources),
            cap=plan.cap,
            notices=tuple(self._notices),
        )

    @property
    def groups(self) -> dict[str, list[Agent]]:
        """The agents by algorithm."""
        groups: dict[str, list[Agent]] = {}
        for agent in self.agents:
            groups.setdefault(agent.algorithm, []).append(agent)
        return groups

    @property
    def size(self) -> int:
        """How often ``tell`` is called if all goes well."""
        return sum(len(self.groups) * (1 + len(BUDGETS)) for sources in self.stages.values() for _ in sources)

    def run(self) -> Iterator[Evaluation]:
        """Evaluate graph by graph; yields what was found so far after each.

        Raises:
            GraphoptError: None of the graphs could be evaluated.
        """
        library, failed = library_of(self.task), list[GraphoptError]()
        for name, source in self.sources.items():
            if self.interrupted():
                break
            scores: list[Score] = []
            try:
                with Store() if self.prices is None else Store(self.prices) as store:
                    scores = self._graph(name, source, store, library)
            except GraphoptError as error:
                failed.append(error)
                self.note(f"{name} was left out: {error}")
            order = sorted([*self.found.scores, *scores], key=lambda s: s.stage)
            yield self._so_far(scores=tuple(order))
        if len(failed) == len(self.sources):
            raise failed[0]
        yield self._so_far()

    def note(self, text: str) -> None:
        """Tell the reader something."""
        self._notices[text] = None

    def add(self, timings: Sequence[Timing]) -> Evaluation:
        """Add what was measured."""
        return self._so_far(timings=tuple(timings))

    # -- parts ----------------------------------------------------------------------------------------------------

    def _so_far(self, **changes: object) -> Evaluation:
        self.found = replace(
            self.found,
            notices=tuple(self._notices),
            interrupted=self.interrupted(),
            seconds=time.monotonic() - self.began,
            **changes,  # type: ignore[arg-type]
        )
        return self.found

    def _find_prices(self) -> Path | None:
        """The first run's prices of this machine's kernels, by which all are judged."""
        pricing = self.task.pricing
        if "measure" not in COST_MODELS.get(pricing.model).options:
            return None
        found: dict[Path, dict[str, float]] = {}
        for agent in self.agents:
            path = agent.folder / PRICES
            if path.is_file():
                with Store(path) as store:
                    known = kernel_prices(store, pricing)
                if known:
                    found[path] = known
        if not found:
            self.note("no agent holds kernel prices of this machine: the machine's own are used")
            return None
        first, *others = found
        for path in others:
            if found[path] != found[first]:
                self.note(f"{path.parent} was trained with other prices than {first.parent}, which hold for all here")
        return first

    def _stages(self) -> dict[int, tuple[Source, ...]]:
        """The graphs of each stage."""
        graphs: Graphs = self.task.graphs
        sources = {1: graphs.train[:1], 2: graphs.train, 3: graphs.shapes, 4: graphs.family, 5: graphs.held_out}
        trained = {source.name for source in graphs.pool}
        stages: dict[int, tuple[Source, ...]] = {}
        for stage in sorted(set(self.plan.stages)):
            what = f"stage {stage} ({STAGES[stage]})"
            if not sources[stage]:
                self.note(f"{what} is left out: the task names no graph for it")
                continue
            stages[stage] = sources[stage]
            if stage > 2 and (known := [s.name for s in sources[stage] if s.name in trained]):
                self.note(f"{what} is not new to the agents: they were trained on {', '.join(known)}")
        return stages

    def _learned(self) -> list[Learning]:
        found: list[Learning] = []
        for agent in self.agents:
            learning = read_learning(agent.folder, agent.algorithm)
            if learning is None:
                self.note(f"{agent.folder} holds no progress of its training: it is in no curve")
            else:
                found.append(learning)
            if not agent.manifest.results:
                self.note(f"the training of {agent.folder} was stopped before its end")
        for algorithm, group in self.groups.items():
            presets = list(dict.fromkeys(str(a.manifest.settings.get("preset")) for a in group))
            if len(presets) > 1:
                self.note(f"runs of {algorithm} of different sizes are taken together: {', '.join(presets)}")
        return found

    def _graph(self, name: str, source: Source, store: Store, library: Library) -> list[Score]:
        """All runs on one graph."""
        environment = open_environment(self.task, source, store, library)
        runs = GraphRuns(name, environment.problem, environment.start, self.plan.rollouts, self.interrupted)
        scores: list[Score] = []
        for stage, sources in self.stages.items():
            if name not in (s.name for s in sources):
                continue
            for algorithm, group in self.groups.items():
                scores += self._comparison(runs, stage, algorithm, group)
        return scores

    def _comparison(self, runs: GraphRuns, stage: int, algorithm: str, group: Sequence[Agent]) -> Iterator[Score]:
        """An agent and the searches on a graph, as one of a stage."""
        where = f"stage {stage}: {runs.name}"
        each = math.ceil(self.plan.seeds / len(group))
        chosen = [(agent, each * i + k) for i, agent in enumerate(group) for k in range(each)]
        ours: list[Score] = []
        for agent, seed in chosen[:1] if stage == 1 else chosen:
            score = runs.agent(stage, agent, seed)
            if score is not None:
                ours.append(score)
        self.tell(f"{where}: {algorithm}")
        yield from ours
        if not ours or self.interrupted():
            return
        seconds = fmean(s.seconds for s in ours)
        share = self.found.training_seconds(algorithm) / self.found.graphs
        allowed = {
            STEPS: float(math.ceil(fmean(max(s.candidates, s.steps or 0) for s in ours))),
            SECONDS: seconds,
            TRAINING: max(seconds, min(self.plan.cap, seconds + share)),
        }
        trial = partial(StagedSearch, stage, algorithm)
        rivals = [trial(rival.label, rival.make(0), whole=rival.whole) for rival in searches(chance=False)]
        for s in ours:
            seed = s.seed or 0
            rivals += [trial(rival.label, rival.make(seed), s.seed, rival.whole) for rival in searches(chance=True)]
            rivals.append(trial(UNTRAINED, Untrained(self.task, self.plan.rollouts, seed), s.seed))
        for budget, most in allowed.items():
            for rival in rivals:
                score = runs.search(rival, budget, most)
                if score is not None:
                    yield score
            self.tell(f"{where}: searches, equal {budget}")
