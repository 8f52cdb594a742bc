"""``graphopt rules generate``: find rules by enumeration."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from graphopt.cli import options, paths
from graphopt.cli.progress import Waiting, WorkProgress
from graphopt.cli.screen import console, facts, present
from graphopt.errors import UsageError
from graphopt.files import alone, is_rules
from graphopt.wording import seconds, size

if TYPE_CHECKING:
    from graphopt.synth.generate import Chain

_UNFINISHED = ".unfinished"


def generate_rules(
    ops: Annotated[
        list[str] | None,
        options.option("--ops", metavar="LIST|PRESET", help="Operators, comma-separated, or a preset (default: all)."),
    ] = None,
    depth: Annotated[int, options.option("--depth", metavar="N", help="Operators of a graph at most (default 3).")] = 3,
    max_dim: Annotated[
        int, options.option("--max-dim", metavar="N", help="Largest dimension of an input (default 4).")
    ] = 4,
    budget: Annotated[
        float | None,
        options.option(
            "--budget",
            metavar="MINUTES",
            help="Stop after about so many minutes (default: none); what was found by then is still checked to the end.",
        ),
    ] = None,
    executor: Annotated[
        str, options.option("--executor", metavar="NAME", help="Where to work: inline, processes (default) or ray.")
    ] = "processes",
    workers: Annotated[
        int | None,
        options.option("--workers", metavar="N", help="Processes or Ray tasks at a time (default 2)."),
    ] = None,
    seed: Annotated[int, options.option("--seed", metavar="N", help="Seed of everything random (default 0).")] = 0,
    out: Annotated[
        Path, options.option("--out", metavar="FOLDER", help="Where to write the rules (default rules/generated).")
    ] = Path("rules/generated"),
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Generate rules: enumerate graphs, pair those that compute the same, prove, generalise and prune.

    A run that is stopped, by its budget or by force, goes on where it stood when it is called again in the same way.
    """
    with Waiting("loading the libraries", shown=not quiet):
        from graphopt.execution import has_workers, make_executor
        from graphopt.rewrite.library import load_library
        from graphopt.synth.emit import check_folder, write_pack
        from graphopt.synth.generate import Generator, Plan
        from graphopt.synth.worlds import select

    names = options.names("--ops", ops or ())
    if not 1 <= depth <= 6:
        raise UsageError(f"--depth must be between 1 and 6, not {depth}")
    if budget is not None and not budget > 0:
        raise UsageError(f"--budget must be a number of minutes above 0, not {budget:g}")
    if seed < 0:
        raise UsageError(f"--seed must be a whole number of at least 0, not {seed}")
    has_workers(executor, workers)
    check_folder(out)
    _spare(json, out)
    with make_executor(executor, workers) as running, WorkProgress(shown=not quiet) as progress:
        plan = Plan(names, depth, max_dim, seed)
        select(plan.ops, plan.max_dim)  # before a folder is made: names may be wrong
        out.mkdir(parents=True, exist_ok=True)
        with alone(out, "wait for it, or choose another --out"):
            generator = Generator(
                plan,
                running,
                out / _UNFINISHED,
                None if budget is None else 60 * budget,
                lambda stage, chain: progress(_line(stage, chain)),
            )
            kept = generator.run()
            chain = generator.chain
            ids = write_pack(out, kept, load_library().rules)
            if chain.finished:
                generator.journal.finish()
    document = {
        "schema": "graphopt.generated/1",
        **asdict(plan),
        "chain": asdict(chain),
        "out": str(out),
        "rules": sorted(ids),
    }
    present(None if quiet else lambda: _show(chain, out), document, json)


def _spare(json: str | None, out: Path) -> None:
    """See that the report takes the place of nothing in the pack.

    Raises:
        UsageError: It does, or can't be written there.
    """
    paths.report_file(json, {})
    if json is not None and Path(json).resolve().parent == out.resolve() and is_rules(Path(json)):
        raise UsageError(f"{json} would be part of the rules in {out}", "choose another name")


def _line(stage: str, chain: Chain) -> str:
    return f"{stage}; {chain.graphs:,} graphs, {chain.skeletons:,} laws to look at, {chain.proved:,} proved, {chain.kept:,} kept"


def _show(chain: Chain, out: Path) -> None:
    rows = facts()
    for name, count, what in (
        ("graphs", chain.graphs, ""),
        ("classes", chain.classes, "different fingerprints"),
        ("pairs", chain.pairs, f"of equal fingerprints, {chain.skeletons:,} but for shapes and attributes"),
        ("open", chain.open, f"{chain.unpaying:,} can never pay, {chain.derived:,} follow from smaller ones"),
        ("proved", chain.proved, f"{chain.rejected:,} rejected, {chain.timeouts:,} timed out"),
        (
            "kept",
            chain.kept,
            f"{chain.subsumed:,} follow from others, {chain.merged:,} merged into rules for several operators, "
            f"{chain.fallen:,} fell at last, of which {chain.mended:,} were mended",
        ),
    ):
        rows.add_row(name, f"{count:,}" + (f" ({what})" if what else ""))
    rows.add_row(
        "took", f"{seconds(chain.seconds)}, {seconds(chain.processor)} of processor time, {size(chain.memory)} at most"
    )
    for text in chain.cut:
        rows.add_row("cut", text)
    rows.add_row("written", str(out))
    console().print(rows)
