"""What agents gain by the clock on graphs that they were not trained on, against `auto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from graphopt.cost.store import Store
from graphopt.pipeline.opening import first_run, open_sizes
from graphopt.pipeline.prepare import effort_for
from graphopt.rl.agent import Learned
from graphopt.rl.evaluation.scores import RatioInterval, Timing
from graphopt.rl.task import Source, Task
from graphopt.rl.training.environments import library_of, open_environment
from graphopt.runtime.rounds import Sampling
from graphopt.runtime.session import SessionConfig
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.backtracking import Auto
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Strategy
from graphopt.verification.ranges import input_ranges

_PRECISION = 0.01  # half of the interval that is asked for: plans of agents differ by a few per cent
AUTO = "auto"
SAME = RatioInterval(1.0, 1.0, 1.0)


def time_agents(
    task: Task,
    source: Source,
    agents: Mapping[str, Path],
    prices: Path | None,
    seconds: float,
    *,
    rollouts: int = 8,
    tell: Callable[[str], None] = lambda text: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[Timing]:
    """Measure the best plan of agents and of `auto` in the same interleaved rounds; all search by the same prices and ask no clock.

    ``tell`` hears a line for each strategy and one more. Without ``prices`` this machine's own hold.

    Returns:
        An entry for each agent; none when it was interrupted.

    Raises:
        GraphoptError: The graph can't be loaded or run.
    """
    outcomes: dict[str, Outcome] = {}
    took: dict[str, float] = {}
    with Store() if prices is None else Store(prices) as store:
        library = library_of(task)
        environment = open_environment(task, source, store, library)
        model, config = environment.model, SessionConfig(threads=task.pricing.threads)
        _, feeds = first_run(model, config, input_ranges(model.graph), (), {}, 0)
        allowed = effort_for(model, open_sizes(model, feeds)).searching()
        strategies: dict[str, Strategy] = {AUTO: Auto(), **{a: Learned(f, rollouts) for a, f in agents.items()}}
        # What a process learns once is no time of the first one's.
        Greedy().run(environment.problem, environment.start, Budget(interrupted=interrupted))
        for name, strategy in strategies.items():
            tell(f"{source.name}: {name} searches")
            # Nobody finds prices at hand that another has looked up.
            fresh = open_environment(task, source, store, library)
            budget = Budget(None, allowed.candidates if name == AUTO else None, interrupted)
            outcomes[name] = strategy.run(fresh.problem, fresh.start, budget)
            took[name] = budget.elapsed
            if interrupted():
                return []
    tell(f"{source.name}: measuring")
    found = Arena(model, model, config, feeds, most_bytes(model)).compare(
        {name: outcome.state.graph for name, outcome in outcomes.items()},
        Sampling(seconds, precision=_PRECISION),
        interrupted,
    )
    if found is None:
        return []

    def over(one: str | None, other: str) -> RatioInterval:
        ratio = found.over(one, other, _PRECISION)
        return SAME if ratio is None else RatioInterval(ratio.value, ratio.low, ratio.high)

    return [
        Timing(source.name, name, over(None, name), over(None, AUTO), over(AUTO, name), took[name], took[AUTO])
        for name in agents
    ]
