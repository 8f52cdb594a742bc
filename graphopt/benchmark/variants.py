"""The variants of a model: the file itself, what peers and graphopt make of it, and what is known of each before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphopt import api
from graphopt.benchmark import peers
from graphopt.benchmark.peers import PeerRun
from graphopt.benchmark.plan import ORIGINAL, Plan
from graphopt.benchmark.results import Check, Family, Operator, Search, Step, Variant, finite
from graphopt.benchmark.rivals import RIVALS
from graphopt.documents import parse_json
from graphopt.errors import GraphoptError, ModelError, OutputsDifferError, UsageError
from graphopt.onnxio.bodies import all_nodes
from graphopt.onnxio.load import load
from graphopt.onnxio.save import OURS
from graphopt.pipeline.strategies import AGENT, takes_agent
from graphopt.pipeline.write import Result
from graphopt.runtime.environment import Environment
from graphopt.runtime.profile import by_op, profile
from graphopt.runtime.session import SessionConfig
from graphopt.verification.numeric import Verification
from graphopt.version import __version__
from graphopt.wording import one_line, plural

Tell = Callable[[str], None]
Interrupted = Callable[[], bool]


@dataclass(frozen=True)
class Made:
    """A variant and its file.

    Attributes:
        variant: What is known of it.
        path: The file; None if there is none to run.
        recorded: Where graphopt measured it when it made it, as its metadata says; empty where graphopt did not, or where nobody knows.
    """

    variant: Variant
    path: Path | None = None
    recorded: str = ""

    def beside(self, here: Environment) -> Made:
        """With a word on it where graphopt made the file for something else than what it runs on here: what gains there may lose here."""
        try:
            there = parse_json(self.recorded)
            told = {
                "threads": plural(int(there["threads"]), "thread"),
                "provider": f"provider {there['provider']}",
                "cpu": str(there["cpu"]),
            }
        except (KeyError, OverflowError, TypeError, ValueError):
            return self
        others = [one_line(text, 40) for name, text in told.items() if there[name] != getattr(here, name)]
        message = f"graphopt made it for {', '.join(others)}" if others else ""
        return replace(self, variant=replace(self.variant, message=message))

    def failed(self, status: Any, message: str) -> Made:
        """The same without a file to run."""
        return Made(replace(self.variant, status=status, message=message))


def originals(source: Path, levels: Sequence[str]) -> list[Made]:
    """The original, at level ``all`` first and then at the other levels."""
    first = described(Made(Variant(ORIGINAL, "level"), source))
    others = [level for level in dict.fromkeys(levels) if level != "all"]
    return [
        first,
        *(
            replace(first, variant=replace(first.variant, name=f"{ORIGINAL} ({level})", level=level))
            for level in others
        ),
    ]


def opponents(source: Path, plan: Plan, folder: Path, tell: Tell, interrupted: Interrupted) -> list[Made]:
    """Peers' files and others: they depend on neither provider nor threads."""
    made = []
    for number, name in enumerate(name for name in plan.opponents if name not in RIVALS):
        if name not in peers.PEERS:
            made.append(described(Made(Variant(name, "file"), Path(name))))
            continue
        tell(f"running {name}")
        run = (
            PeerRun(error="interrupted")
            if interrupted()
            else peers.run_peer(name, source, folder / f"peer{number}", interrupted=interrupted)
        )
        variant = Variant(name, "peer", optimise_s=run.seconds, version=run.version)
        if run.path is not None:
            made.append(described(Made(variant, run.path)))
        else:
            status = "missing" if run.missing else "skipped" if interrupted() else "failed"
            made.append(Made(variant).failed(status, run.error))
    return made


def optimised(
    source: Path, strategy: str, config: SessionConfig, plan: Plan, target: Path, tell: Tell, interrupted: Interrupted
) -> tuple[Made, Result | None]:
    """What graphopt makes of a model, with its result; the input's own file where it keeps that.

    Raises:
        UsageError: The plan does not fit the model.
    """
    made = Made(Variant(f"graphopt {strategy}", "graphopt", version=__version__))
    if interrupted():
        return made.failed("skipped", "interrupted"), None
    # An agent is for those of the strategies that take one; where none does, that is a mistake.
    elsewhere = not takes_agent(strategy) and any(map(takes_agent, plan.strategies))
    more = {name: value for name, value in plan.optimize.items() if not (elsewhere and name == AGENT)}
    try:
        result = api.optimize(
            source,
            strategy=strategy,
            provider=config.provider,
            provider_options=config.provider_options,
            custom_ops=config.custom_ops,
            threads=config.threads,
            dims=plan.dims,
            input_shapes=plan.input_shapes,
            inputs=plan.inputs,
            seed=plan.seed,
            progress=lambda p: tell(f"graphopt {strategy}: {p.message}"),
            interrupted=interrupted,
            **more,
        )
        report = result.report
        if not report["kept_original"]:
            result.save(target)
    except UsageError:
        raise
    except OutputsDifferError as error:
        return made.failed("differs", str(error)), None
    except GraphoptError as error:
        return made.failed("failed", str(error)), None
    variant = replace(made.variant, optimise_s=report["seconds"], search=_search(report, result.found.curve))
    return described(Made(variant, source if report["kept_original"] else target)), result


def described(made: Made) -> Made:
    """With the size and the nodes of its file, where that can be read."""
    assert made.path is not None
    try:
        model = load(made.path)
    except ModelError:  # the runtime may take what we don't
        return made
    file = made.path.resolve()
    elsewhere = [t for t in model.tensors.values() if hasattr(t, "path") and Path(t.path).resolve() != file]
    size = file.stat().st_size + sum(int(t.nbytes) for t in elsewhere)
    recorded = next((e.value for e in model.proto.metadata_props if e.key == f"{OURS}environment"), "")
    return replace(
        made, variant=replace(made.variant, size=size, nodes=all_nodes(model.proto.graph)), recorded=recorded
    )


def checked(made: Made, verification: Verification) -> Made:
    """With the outcome of the comparison; without a file if it computes something else."""
    v = verification
    check = Check(v.passed, v.trials, finite(v.max_abs), finite(v.max_rel), v.message)
    made = replace(made, variant=replace(made.variant, check=check))
    if v.passed:
        return made
    # Without a single trial it did not run at all, or is not a model of the same inputs and outputs.
    return made.failed("differs" if v.trials else "failed", v.message)


def operators(path: Path, feeds: Any, config: SessionConfig) -> tuple[Operator, ...]:
    """Where the time of a model goes, most expensive first."""
    return tuple(Operator(o.op_type, o.count, o.ms, o.share) for o in by_op(profile(path, feeds, config)))


def _search(report: dict[str, Any], curve: Sequence[tuple[float, ...]]) -> Search:
    """What the report of an optimisation says of its search."""
    families = [(f["family"], f["ratio"], *(f["ci95"] or (None, None)), f["kept"]) for f in report["families"]]
    return Search(
        strategy=report["strategy"],
        candidates=report["search"]["candidates"],
        seconds=report["search"]["seconds"],
        stop_reason=report["search"]["stop_reason"],
        kept_original=report["kept_original"],
        steps=tuple(
            Step(s["rule"], str(s["site"]), s["cost_before"] or 0.0, s["cost_after"] or 0.0, s["family"])
            for s in report["steps"]
        ),
        families=tuple(Family(*f) for f in families),
        curve=tuple(curve),
    )
