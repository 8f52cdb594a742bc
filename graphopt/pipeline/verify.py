"""Stage 3, ``verify``: compare what was found with the original, as files, and take back what changes the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from graphopt.errors import OutputsDifferError
from graphopt.ir.graph import Graph
from graphopt.onnxio.emit import emit
from graphopt.onnxio.save import Staged
from graphopt.pipeline.context import Context
from graphopt.pipeline.opening import as_given, session_config
from graphopt.pipeline.search import Searched
from graphopt.runtime.session import Model, SessionConfig
from graphopt.search.selection import Culprit, Selection, first_harm, leave_out, take_back
from graphopt.search.trace import carry_out
from graphopt.verification.numeric import Verification, Verifier


@dataclass(frozen=True, eq=False)
class Verified:
    """What is left after the comparison.

    Attributes:
        searched: What the search left.
        selection: The same without the families that change the outputs.
        verification: The comparison; ``None`` when there was nothing to compare.
        staged: The model as it was compared, not yet in its place; ``None`` when there is none.
        check: Compares a file that holds what is left with the original, as ``verification`` did.
    """

    searched: Searched
    selection: Selection
    verification: Verification | None
    staged: Staged | None
    check: Callable[[Path], Verification]


def verify(context: Context, searched: Searched) -> Verified:
    """Compare outputs; a family whose rules change them goes.

    Raises:
        OutputsDifferError: They differ before any rule has changed anything.
    """
    selection, draft = searched.selection, _Draft(context)
    found: Verification | None = None
    if selection.outcome.steps or context.simpler:
        context.tell("verify", "comparing outputs")
        found = draft.compare(selection)
    if found is not None and not found.passed and _is_right_on_cpu(context, draft, selection):
        context.tell("verify", f"looking for what {context.config.provider} gets wrong")
        selection = take_back(selection, context.start, searched.budget, lambda o: draft.compared(o.state.graph).passed)
        found = draft.compare(selection)
    while found is not None and not found.passed and selection.outcome.steps:
        context.tell("verify", "looking for the step that changes the outputs")
        culprit = _culprit(context, selection, found, draft)
        context.tell("verify", f"taking {culprit.family} back: {culprit.rule} changes the outputs")
        selection = leave_out(selection, context.start, searched.budget, culprit)
        found = draft.compare(selection)
    if found is not None and not found.passed:  # cleaned by no rule, and not surely the same
        draft.discard()
        found = None
    return Verified(searched, selection, found, draft.staged, partial(draft.accepted, selection=selection))


class _Draft:
    """Writes candidates beside their place and compares what lies there, so that neither reading nor writing can do harm unseen."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.staged: Staged | None = None
        self._failed: tuple[Verifier, Sequence[int] | None] | None = None
        self._verifiers = self._holding(as_given(context.held, context.original))

    def _holding(self, original: Model) -> list[Verifier]:
        """Comparisons with one model, for each set of sizes. It is one object for all: it may hold the weights."""
        context, s = self.context, self.context.settings
        return [
            Verifier(
                original,
                ranges=context.ranges,
                overrides=context.inputs,
                dims=each,
                shapes=dict(s.input_shapes),
                hints=context.hints,
                rtol=s.rtol,
                atol=s.atol,
                seed=s.seed,
            )
            for each in context.sets
        ]

    def compare(self, selection: Selection) -> Verification | None:
        """Compare what was found, if anything was."""
        outcome = selection.outcome
        if not outcome.steps and not self.context.simpler:
            return None
        return self.accepted(self._write(outcome.state.graph), selection)

    def accepted(self, path: Path, selection: Selection) -> Verification:
        """Compare a file that holds what was found with the original, by way of the normal form where that takes it."""
        found = self.check(path)
        return found if found.passed else self._by_way_of_normal(path, selection, found)

    def _by_way_of_normal(self, path: Path, selection: Selection, found: Verification) -> Verification:
        """Hold the normal form of a quantised model against the original, and what was found from it against that.

        Some rules are exact where the runtime's optimiser has made whole numbers of floats, others where it has not.
        """
        context, steps = self.context, selection.outcome.steps
        normal = list(takewhile(lambda step: step.alone, steps))
        if not 0 < len(normal) < len(steps) or not self._verifiers[0].quantised:
            return found
        graph = carry_out(context.start, context.library, selection.problem.block, normal)
        with Staged(emit(context.loaded, graph, max_bytes=context.limit), None) as way:
            first = self.check(way.path, context.config)  # what failed stays what was found
            if not first.passed:
                return found
            legs = [verifier.verify(path, context.config) for verifier in self._holding(way.path)]
        if not all(leg.passed for leg in legs):
            return found
        # From end to end it is no further than both legs together.
        error = first.max_abs + max(leg.max_abs for leg in legs), first.max_rel + max(leg.max_rel for leg in legs)
        return replace(first, max_abs=error[0], max_rel=error[1])

    def compared(self, graph: Graph, where: SessionConfig | None = None) -> Verification:
        """Write a graph and compare it."""
        return self.check(self._write(graph), where)

    def discard(self) -> None:
        """Remove what was written."""
        if self.staged is not None:
            self.staged.close()
        self.staged = None

    def _write(self, graph: Graph) -> Path:
        self.discard()
        context = self.context
        emitted = emit(context.loaded, graph, max_bytes=context.limit)
        targets = context.targets
        staged = Staged(emitted, targets.output, external=context.original.external, sharing=targets.sharing)
        self.staged = context.drafts.enter_context(staged)
        return self.staged.path

    def check(self, path: Path, where: SessionConfig | None = None) -> Verification:
        """Compare a file with the original at all sets of sizes."""
        found = list[Verification]()
        for verifier in self._verifiers:
            found.append(verifier.verify(path, where or self.context.config))
            if not found[-1].passed:
                if where is None:
                    self._failed = verifier, found[-1].failed or None
                return found[-1]
        return _together(found, self.context.settings.at or ({},))

    def still_wrong(self, graph: Graph) -> str:
        """What is wrong with a graph in the trials that failed when a graph was last compared; empty for nothing."""
        assert self._failed is not None
        verifier, trials = self._failed
        found = verifier.verify(self._write(graph), self.context.config, trials=trials)
        return "" if found.passed else found.message


def _is_right_on_cpu(context: Context, draft: _Draft, selection: Selection) -> bool:
    """Whether the CPU, at least, computes the same: other providers have errors of their own, which are not the rules' fault."""
    if context.config.provider == "cpu":
        return False
    return draft.compared(selection.outcome.state.graph, session_config(threads=1)).passed


def _culprit(context: Context, selection: Selection, verified: Verification, draft: _Draft) -> Culprit:
    """The first step after which the model computes something else.

    Raises:
        OutputsDifferError: It does so without any step.
    """
    steps, block = selection.outcome.steps, selection.problem.block

    def harm(low: int, high: int) -> str:
        return draft.still_wrong(carry_out(context.start, context.library, block, steps[:high]))

    number, message, _ = first_harm(len(steps), harm, verified.message)
    if number == 1 and harm(0, 0):
        raise OutputsDifferError(
            f"the model differs before any rule has changed it: {message}",
            "this is a fault of graphopt: please report it",
        )
    step = steps[number - 1]
    return Culprit(number, step.rule, step.family, step.node, message)


def _together(found: Sequence[Verification], at: Sequence[Mapping[str, int]]) -> Verification:
    """Comparisons at several sets of sizes, all of which passed, as one.

    What is to be known of any of them is, and the sizes are those of the sets, too, for the file leaves them open.
    """
    return replace(
        max(found, key=lambda v: v.max_rel),
        message="; ".join(dict.fromkeys(v.message for v in found if v.message)),
        trials=sum(v.trials for v in found),
        max_abs=max(v.max_abs for v in found),
        max_rel=max(v.max_rel for v in found),
        sizes=tuple(
            {**there, **chosen}
            for v, there in zip(found, at, strict=True)
            for chosen in v.sizes or (({},) if there else ())
        ),
    )
