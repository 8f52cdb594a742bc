"""Options that several commands share, and the readers of the ``NAME=N`` and ``NAME:SHAPE`` forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from graphopt.config import PROVIDERS, parse_dim, parse_input_shape, parse_provider_option, rules_dir
from graphopt.errors import UsageError

T = TypeVar("T")


def option(*names: str, help: str, metavar: str | None = None, values: Callable[[str], list[str]] | None = None) -> Any:
    """An option whose default, if it has one, is told by its help text; ``values`` completes what was begun."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, autocompletion=values)


def strategies(begun: str) -> list[str]:
    """Strategies that begin so, for the shell."""
    known = ("auto", "greedy", "backtracking", "beam", "random", "none", "rl", "world-model")
    return [name for name in known if name.startswith(begun)]


def providers(begun: str) -> list[str]:
    """Execution providers that begin so, for the shell."""
    return [name for name in PROVIDERS if name.startswith(begun)]


def rule_ids(begun: str) -> list[str]:
    """Rules that begin so, for the shell: read from their lines, for a key press can't wait for the parser."""
    found = (line[8:].strip() for line in _rule_lines() if line.startswith("  - id: "))
    return sorted(name for name in found if name.startswith(begun))


def families(begun: str) -> list[str]:
    """Families, packs and rules that begin so, for the shell."""
    found = {line[8:].strip() for line in _rule_lines() if line.startswith("family: ")} | {"standard", "generated"}
    return sorted(name for name in found if name.startswith(begun)) or rule_ids(begun)


def _rule_lines() -> Iterator[str]:
    for file in sorted(rules_dir().rglob("*.yaml")):
        with suppress(OSError, UnicodeDecodeError):
            yield from file.read_text(encoding="utf-8").splitlines()


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)]
Provider = Annotated[
    str | None,
    option(
        "--provider",
        metavar="NAME",
        help="Execution provider: cpu (default), or see `graphopt providers`.",
        values=providers,
    ),
]
ProviderOptions = Annotated[
    list[str] | None,
    option("--provider-option", metavar="KEY=VALUE", help="An option of the provider, for ONNX Runtime; repeatable."),
]
Threads = Annotated[int | None, option("--threads", metavar="N", help="Threads within an operator (default 1).")]
Dims = Annotated[list[str] | None, option("--dim", metavar="NAME=N", help="Size of a symbolic dimension; repeatable.")]
InputShapes = Annotated[
    list[str] | None,
    option("--input-shape", metavar="NAME:1x3x224x224", help="Shape of an input that declares none; repeatable."),
]
At = Annotated[
    list[str] | None,
    option(
        "--at",
        metavar="NAME=N,...",
        help="Sizes to measure symbolic dimensions at, which stay symbolic in the file; repeatable, for a ratio at each set.",
    ),
]
Inputs = Annotated[
    Path | None, option("--inputs", metavar="FILE.npz", help="Inputs to run on, instead of random ones.")
]
Rtol = Annotated[float | None, option("--rtol", metavar="X", help="Relative tolerance (default: by data type).")]
Atol = Annotated[float | None, option("--atol", metavar="X", help="Absolute tolerance (default: by data type).")]
Seed = Annotated[int | None, option("--seed", metavar="N", help="Seed of everything random (default 0).")]
Json = Annotated[
    str | None, option("--json", metavar="FILE|-", help="Write the result as JSON to FILE, or with - to stdout.")
]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print errors only.")]
Rules = Annotated[
    list[str] | None,
    option(
        "--rules",
        metavar="PATH_OR_FAMILY",
        help="Use these rules only: a file, a folder, a family, or the packs standard and generated; repeatable.",
        values=families,
    ),
]
Exclude = Annotated[
    list[str] | None, option("--exclude", metavar="RULE", help="Leave this rule out; repeatable.", values=families)
]
Portable = Annotated[
    bool | None, option("--portable/--no-portable", help="Use standard ONNX operators only (default: no).")
]


def named(option: str, texts: Sequence[str] | None, parse: Callable[[str], tuple[str, T]]) -> dict[str, T] | None:
    """Read the texts of a repeatable ``NAME...`` option; None if it was not given.

    Raises:
        UsageError: A text is not of the form that `parse` reads, or a name comes twice.
    """
    if not texts:
        return None
    result: dict[str, T] = {}
    for text in texts:
        try:
            name, value = parse(text)
        except ValueError as error:
            raise UsageError(f"{option} must be {error}, not {text!r}") from None
        if result.setdefault(name, value) != value:
            raise UsageError(f"{option} gives {name!r} twice, with different values")
    return result


def dims(texts: Sequence[str] | None) -> dict[str, int] | None:
    """Read ``--dim``."""
    return named("--dim", texts, parse_dim)


def sizes(texts: Sequence[str] | None) -> tuple[dict[str, int], ...] | None:
    """Read ``--at``: for each use a set of sizes with commas."""
    if not texts:
        return None
    return tuple(named("--at", text.split(","), parse_dim) or {} for text in texts)


def input_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Read ``--input-shape``."""
    return named("--input-shape", texts, parse_input_shape)


def provider_options(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Read ``--provider-option``."""
    return named("--provider-option", texts, parse_provider_option)
