"""Options that several commands share, and the readers of the ``NAME=N`` and ``NAME:SHAPE`` forms."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from graphopt import registry
from graphopt.config import PROVIDERS, parse_dim, parse_input_shape, parse_provider_option, rules_dir
from graphopt.errors import UsageError
from graphopt.files import file_named
from graphopt.kinds import NAMES, Kind, checked
from graphopt.settings import DECLARED


def option(
    *names: str,
    help: str,
    metavar: str | None = None,
    values: Callable[[str], list[str]] | None = None,
    kind: Kind | None = None,
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """An option whose default, if it has one, is told by its help text."""
    return typer.Option(
        *names,
        help=help,
        metavar=metavar,
        show_default=False,
        autocompletion=values,
        callback=None if kind is None else _held(kind),
        parser=parser,
    )


def _held(kind: Kind) -> Callable[[typer.CallbackParam, Any], Any]:
    """Holds what is given for an option, once or several times, against what it has to be."""

    def held(parameter: typer.CallbackParam, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else () if value is None else (value,):
            checked(parameter.opts[0], kind, each)
        return value

    return held


def _silenced(quiet: bool) -> bool:
    """Passes over warnings from now on, if nothing but errors is to be printed."""
    if quiet:
        warnings.simplefilter("ignore")
    return quiet


def file_or_stdout(text: str) -> str:
    """What is given for a file of results, or ``-``; see :func:`graphopt.files.file_named`."""
    file_named(text)
    return text


def setting(name: str) -> Any:
    """The option of a setting, as it is declared."""
    declared = DECLARED[name]
    flag = "--" + (declared.flag or name.replace("_", "-"))
    flags = f"{flag}/--no-{flag[2:]}" if declared.kind.typed is bool else flag
    return option(
        flags,
        help=declared.help,
        metavar=declared.metavar or None,
        values=globals()[declared.values] if declared.values else None,
        kind=declared.kind if declared.kind.typed in (int, float) else None,  # the others are read from texts first
    )


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command settings as options besides its own; it is told what was said of them as ``given``, by name.

    Args:
        names: The settings; all of them by default.
    """
    chosen = names or tuple(DECLARED)

    def adding(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())
        at = next(index for index, parameter in enumerate(own) if parameter.name == "given")
        keyword = inspect.Parameter.KEYWORD_ONLY
        theirs = [
            inspect.Parameter(n, keyword, default=None, annotation=Annotated[DECLARED[n].kind.typed | None, setting(n)])
            for n in chosen
        ]
        parameters = [p.replace(kind=keyword) for p in (*own[:at], *theirs, *own[at + 1 :])]

        @wraps(command)
        def taking(**arguments: Any) -> None:
            said = {name: arguments.pop(name) for name in chosen}
            command(**arguments, given={name: _read(name, value) for name, value in said.items()})

        taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        taking.__annotations__ = {p.name: p.annotation for p in parameters}
        return taking

    return adding


def _read(name: str, value: Any) -> Any:
    """What was said of a setting, as the value that it stands for; ``None`` for nothing."""
    if name not in _NAMED or not value:
        return None if value == [] else value
    option, parse = _NAMED[name]
    if name == "at":  # for each use a set of sizes, with commas
        return tuple(_named(option, text.split(","), parse) for text in value)
    return _named(option, value, parse)


def _completing(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes names for the shell, which are asked for when they are wanted."""

    def complete(begun: str) -> list[str]:
        return [name for name in known() if name.startswith(begun)]

    return complete


strategies = _completing(registry.strategy_names)
cost_models = _completing(registry.cost_model_names)
algorithms = _completing(registry.LEARNERS.names)
providers = _completing(lambda: PROVIDERS)


class Command(TyperCommand):
    """A command whose help names what can be chosen: ``{strategies}`` and the like are filled in when it is shown.

    Names that installed packages add take a while to be found, and only whoever reads the help wants them.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text and "{" in text:
                parameter.help = text.format(**registry.mentioned())  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


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
Threads = Annotated[int | None, setting("threads")]
Seed = Annotated[int | None, setting("seed")]
Rules = Annotated[list[str] | None, setting("rules")]
Profile = Annotated[
    str | None, option("--profile", metavar="NAME", help="Settings of a profile of graphopt.toml or pyproject.toml.")
]
Inputs = Annotated[
    Path | None,
    option(
        "--inputs",
        metavar="FILE.npz|DIR",
        help="Inputs to run on, instead of random ones: a file of arrays, or a folder of sets (.npz, .npy, ONNX test data).",
    ),
]
Json = Annotated[
    str | None,
    option(
        "--json", metavar="FILE|-", help="Write the result as JSON to FILE, or with - to stdout.", parser=file_or_stdout
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.", callback=_silenced)]


_NAMED: dict[str, tuple[str, Callable[[str], tuple[str, Any]]]] = {
    "dims": ("--dim", parse_dim),
    "at": ("--at", parse_dim),
    "input_shapes": ("--input-shape", parse_input_shape),
    "provider_options": ("--provider-option", parse_provider_option),
}
"""Settings of the ``NAME=N`` and ``NAME:SHAPE`` forms: how they are typed, and who reads them."""


def _named(option: str, texts: Sequence[str], parse: Callable[[str], tuple[str, Any]]) -> dict[str, Any]:
    """Read the texts of a repeatable ``NAME...`` option.

    Raises:
        UsageError: A text is not of the form that `parse` reads, or a name comes twice.
    """
    result: dict[str, Any] = {}
    for text in texts:
        try:
            name, value = parse(text)
        except ValueError as error:
            raise UsageError(f"{option} must be {error}, not {text!r}") from None
        if result.setdefault(name, value) != value:
            raise UsageError(f"{option} gives {name!r} twice, with different values")
    return result


def names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Names that were given one by one or with commas, each once.

    Raises:
        UsageError: One is empty.
    """
    return tuple(dict.fromkeys(name for text in texts for name in checked(option, NAMES, text, from_text=True)))
