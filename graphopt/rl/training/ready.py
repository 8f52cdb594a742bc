"""What a run needs before its first episode: a device, prices that do not change under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.cost.models import COST_MODELS
from graphopt.cost.store import Store
from graphopt.errors import UsageError
from graphopt.rewrite.library import Library
from graphopt.rl.manifest import PRICES
from graphopt.rl.training.environments import cost_model, start_of
from graphopt.rl.training.training_run import Run, Status
from graphopt.runtime.environment import block_size, fingerprint, machine_of
from graphopt.runtime.session import SessionConfig
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget

Report = Callable[[Status], None]


def device_of(name: str) -> str:
    """The device of torch that a run names.

    Raises:
        UsageError: This torch has none of that kind.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("this torch sees no CUDA device", "install a torch built for CUDA, or use --device cpu")
    return name


def environment_facts() -> dict[str, Any]:
    """Where a run learns, for its manifest."""
    import torch

    config = SessionConfig()
    return {"fingerprint": fingerprint(config).digest, "torch": torch.__version__, "block": block_size()}


def keep_prices(run: Run, library: Library, tell: Report) -> None:
    """Copy the prices known now into the run's folder: all workers and a resumed run then see the same ones."""
    pricing = run.task.pricing
    if "measure" in COST_MODELS.get(pricing.model).options and pricing.measure:
        for source in run.task.graphs.pool:
            tell(Status(f"measuring kernels of {source.name}"))
            with Store() as store:
                _, problem, start = start_of(source, library, cost_model(pricing, store, measure=True))
                Greedy().run(problem, start, Budget(2 * pricing.measure))
    path = run.out / PRICES
    path.unlink(missing_ok=True)
    with Store() as known, Store(path) as kept:
        name = machine_of(SessionConfig(threads=pricing.threads))
        kept.put_many(name, known.all(name))
        kept.put_corrections(name, known.corrections(name))
