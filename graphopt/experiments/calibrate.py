"""Recipe: how well the predicted prices of a model's rewritten graphs agree with the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphopt.cost.fit import remember_scale, remembered_scale
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.experiments.calibration import Point, calibrate
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import first_run, session_config
from graphopt.rewrite.library import load_library
from graphopt.runtime.environment import machine_of
from graphopt.search.arena import Arena, most_added
from graphopt.search.normal import Normal
from graphopt.search.problem import Problem
from graphopt.verification.ranges import input_ranges

ENOUGH = 5
"""Models that a calibration needs to be kept."""
_MEASURING = 60.0  # seconds for the kernels of all graphs of a model


def calibrate_model(
    path: str | Path,
    *,
    graphs: int = 12,
    seconds: float = 2.0,
    rules: Sequence[str] = (),
    exclude: Sequence[str] = (),
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    threads: int = 0,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    on_graph: Callable[[int], None] | None = None,
) -> list[Point]:
    """Rewrite a model at random and compare what each graph is predicted to take with what it takes.

    Each of so many ``graphs`` is measured for so many ``seconds``; ``on_graph`` hears how many are done.

    Raises:
        GraphoptError: The model can't be loaded or run.
    """
    config = session_config(provider, provider_options, threads)
    library = load_library(rules, exclude, provider)
    model = load(path, dims=dims)
    _, feeds = first_run(model, config, input_ranges(model.graph), (), {}, seed)
    arena = Arena(model, model, config, feeds, seed=seed)
    with Store() as store:
        cost = KernelCost(store, config, seconds=_MEASURING, growth=most_added(model))
        problem = Problem.where(library, cost, config)
        start = problem.start(Normal.of(model.graph, problem).graph)
        return calibrate(
            Path(path).name,
            problem,
            start,
            arena,
            graphs=graphs,
            seconds=seconds,
            seed=seed,
            slowdown=cost.slowdown,
            on_graph=on_graph,
        )


def keep_scale(
    factor: float, *, provider: str = "cpu", provider_options: Mapping[str, str] | None = None, threads: int = 0
) -> float:
    """Multiply later predictions by a factor; what graphs then take over the sum of their windows."""
    with Store() as store:
        place = machine_of(session_config(provider, provider_options, threads))
        scale = factor * remembered_scale(store, place)
        remember_scale(store, place, scale)
        return scale
