"""What a benchmark is asked to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphopt.benchmark import peers
from graphopt.benchmark.rivals import RIVALS
from graphopt.config import check_arguments, provider_name
from graphopt.errors import GraphoptError, UnknownNameError, UsageError
from graphopt.files import existing
from graphopt.kinds import NAMES, checked, integer, number
from graphopt.pipeline.opening import session_config
from graphopt.pipeline.strategies import STRATEGIES
from graphopt.runtime import providers
from graphopt.runtime.environment import threads_used
from graphopt.runtime.rounds import MIN_CYCLES, MIN_ROUNDS, Sampling
from graphopt.runtime.session import LEVELS, SessionConfig

ORIGINAL = "original"
NONE = "none"


@dataclass(frozen=True)
class Plan:
    """What to measure, and how long.

    Attributes:
        strategies: graphopt's strategies, each a variant; empty for none.
        against: Peers (names of :data:`graphopt.benchmark.peers.PEERS`), other runtimes (names of
            :data:`graphopt.benchmark.rivals.RIVALS`) and other ONNX files, each a variant; None stands for the peers
            that are installed and for any model.
        levels: The runtime's own optimisation levels to measure the original at; ``all`` is the baseline and always is.
        providers: Execution providers, each a case of its own.
        provider_options: Options of the provider that is not the CPU.
        custom_ops: Shared libraries of custom operators, or packages that have one.
        threads: Numbers of threads, each a case of its own; 0 for all cores, as the runtime takes them by itself.
        seconds: Time to measure each case; longer where it is too noisy for the precision.
        rounds: Rounds to measure each case, in place of the time.
        precision: How far an interval may reach to either side, relative.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of sets, the first of which is measured; made up by default.
        dims: Sizes for symbolic dimensions.
        input_shapes: Shapes for whole inputs.
        seed: Of everything random.
        optimize: Further arguments of :func:`graphopt.optimize`.
        tune_session: Whether to look for settings of the session that are worth using.
    """

    strategies: tuple[str, ...] = ("auto",)
    against: tuple[str, ...] | None = None
    levels: tuple[str, ...] = LEVELS
    providers: tuple[str, ...] = ("cpu",)
    provider_options: Mapping[str, str] = field(default_factory=dict)
    custom_ops: Sequence[str] = ()
    threads: tuple[int, ...] = (0,)
    seconds: float = 20.0
    rounds: int | None = None
    precision: float = 0.02
    inputs: str | Path | Mapping[str, Any] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seed: int = 0
    optimize: Mapping[str, Any] = field(default_factory=dict)
    tune_session: bool = False

    @property
    def opponents(self) -> list[str]:
        """Peers, other runtimes and files."""
        cleaners = [name for name in peers.installed() if name not in peers.ASKED_FOR]
        named = cleaners if self.against is None else self.against
        return [name for name in dict.fromkeys(named) if name != ORIGINAL]

    @property
    def configs(self) -> list[SessionConfig]:
        """How to open sessions: with each provider and number of threads, none twice."""
        configs = [
            session_config(
                provider,
                None if provider_name(provider) == "cpu" else self.provider_options,
                threads,
                self.custom_ops,
            )
            for provider in self.providers
            for threads in self.threads
        ]
        found: dict[tuple[str, int], SessionConfig] = {}
        for config in configs:
            found.setdefault((config.provider, threads_used(config)), config)
        return list(found.values())

    @property
    def sampling(self) -> Sampling:
        """How long to measure each case."""
        return Sampling(self.seconds, self.rounds, self.precision)

    def check(self) -> None:
        """Look for mistakes before the work begins.

        Raises:
            UsageError: Something does not exist or makes no sense.
        """
        check_arguments(inputs=self.inputs)
        for what in ("strategies", "against", "levels", "providers"):
            checked(what, NAMES, getattr(self, what) or ())
        _known("strategy", self.strategies, STRATEGIES)
        for name in self.strategies:
            try:
                STRATEGIES.ready(name)
            except UsageError:
                raise
            except GraphoptError:  # a package's own: its variant fails, and says why
                continue
        _known("level", self.levels, LEVELS)
        for name in self.opponents:
            if name not in peers.PEERS and name not in RIVALS and not Path(name).is_file():
                if name.endswith(".onnx") or "/" in name or Path(name).exists():
                    existing(Path(name))
                raise UnknownNameError("opponent", name, [ORIGINAL, *peers.PEERS, *RIVALS, "FILE.onnx"])
        for provider in self.providers:
            providers.require(provider)
        if self.provider_options and sum(provider_name(p) != "cpu" for p in self.providers) != 1:
            raise UsageError("provider options need one provider that is not the CPU")
        if not self.providers or not self.threads:
            raise UsageError("a benchmark needs a provider and a number of threads, 0 for all cores")
        for threads in self.threads:
            checked("threads", integer(0), threads)
        if self.rounds is not None:
            checked("rounds", integer(MIN_CYCLES * MIN_ROUNDS), self.rounds)
        checked("seconds", number(above=True), self.seconds)
        checked("precision", number(above=True, below=1.0), self.precision)


def _known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownNameError(kind, name, known)
