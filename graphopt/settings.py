"""Every setting of `graphopt.optimize`, declared once: its default, what it accepts, what is told of it.

`Settings`, the options of the command line, the variables, the keys of ``pyproject.toml`` and ``docs/settings.md`` (which
``python -m graphopt.settings`` prints) all come from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from graphopt.kinds import DIMS, NAME, NAMES, OPTIONS, PROVIDER, SETS, SHAPES, SWITCH, Kind, integer, number
from graphopt.registry import mentioned

ENV_PREFIX = "GRAPHOPT_"


@dataclass(frozen=True, slots=True)
class Declared:
    """What is known of a setting.

    Attributes:
        kind: What it accepts.
        doc: What it does, without a full stop; ``{strategies}`` and the like stand for names that packages may add to.
        default: Its default, in words.
        metavar: What stands for a value on the command line.
        flag: Its option there, without dashes, where it is not called like the setting.
        values: What a shell completes it with: a function of :mod:`graphopt.cli.options`.
    """

    kind: Kind
    doc: str
    default: str
    metavar: str = ""
    flag: str = ""
    values: str = ""

    @property
    def repeats(self) -> bool:
        """Whether the option is given once for each item."""
        return self.kind.typed not in (str, int, float, bool)

    @property
    def help(self) -> str:
        """A line for the command line."""
        default = f" (default: {self.default})" if self.default else ""
        return f"{self.doc}{'; repeatable' if self.repeats else ''}{default}."


def _setting(
    value: Any, kind: Kind, doc: str, metavar: str = "", default: str | None = None, flag: str = "", values: str = ""
) -> Any:
    words = default if default is not None else f"{value}"
    if isinstance(value, bool):
        words = "yes" if value else "no"
    told = {"declared": Declared(kind, doc, words, metavar, flag, values)}
    if isinstance(value, dict):
        return field(default_factory=dict, metadata=told)
    return field(default=value, metadata=told)


@dataclass(frozen=True, slots=True)
class Settings:
    """What `graphopt.optimize` may be told besides the model; docs/settings.md describes each."""

    strategy: str = _setting("auto", NAME, "How to search: {strategies}", "NAME", "", values="strategies")
    agent: str | None = _setting(
        None, NAME, "Folder of a trained agent, for strategy {agents}", "DIR", "one that comes with graphopt"
    )
    cost_model: str = _setting("kernel", NAME, "What predicts times: {cost_models}", "NAME", "", values="cost_models")
    budget: float | None = _setting(
        None,
        number(above=True),
        "Limit in seconds; a warning says where a model takes longer",
        "SECONDS",
        "none; the work is counted, and takes a minute or less",
    )
    alpha: float = _setting(
        1.05, number(least=1.0), "How much dearer than the best a graph may be that backtracking goes on from", "X"
    )
    rules: tuple[str, ...] = _setting(
        (),
        NAMES,
        "Use these rules only: a file, a folder, a family, or the packs standard and generated",
        "PATH_OR_FAMILY",
        "",
        values="families",
    )
    exclude: tuple[str, ...] = _setting((), NAMES, "Leave this rule or family out", "RULE", "", values="families")
    seed: int = _setting(0, integer(0), "Seed of everything random", "N")
    portable: bool = _setting(False, SWITCH, "Use standard ONNX operators only")
    max_growth: float = _setting(
        0.1, number(), "How much larger the file may become, as a fraction of it, besides 1 MiB", "X"
    )
    max_memory_growth: float = _setting(
        0.25,
        number(),
        "How much more memory weights may take when a session is open, as a fraction of the file, besides 64 MiB",
        "X",
    )
    max_error: float | None = _setting(
        None,
        number(),
        "Leave out rules whose recorded error or claimed bound is larger, relative to the largest result",
        "X",
        "none",
    )
    provider: str = _setting(
        "cpu", PROVIDER, "Execution provider; see `graphopt providers`", "NAME", values="providers"
    )
    provider_options: Mapping[str, str] = _setting(
        {}, OPTIONS, "An option of the provider, for ONNX Runtime", "KEY=VALUE", "", "provider-option"
    )
    custom_ops: tuple[str, ...] = _setting(
        (),
        NAMES,
        "A shared library of custom operators that the model needs, or a package that has one, such as onnxruntime_extensions",
        "LIBRARY",
        "",
    )
    threads: int = _setting(
        0, integer(0), "Threads within an operator; 0 for all cores, as ONNX Runtime takes them by itself", "N"
    )
    dims: Mapping[str, int] = _setting({}, DIMS, "Size of a symbolic dimension", "NAME=N", "", "dim")
    input_shapes: Mapping[str, tuple[int, ...]] = _setting(
        {}, SHAPES, "Shape of an input that declares none", "NAME:1x3x224x224", "", "input-shape"
    )
    at: tuple[Mapping[str, int], ...] = _setting(
        (),
        SETS,
        "Sizes to measure symbolic dimensions at, which stay symbolic in the file, with a ratio for each set; what is slower at one is not written",
        "NAME=N,...",
        "",
    )
    freeze_initializers: bool = _setting(False, SWITCH, "Treat weights that are also graph inputs as constants")
    upgrade: bool = _setting(False, SWITCH, "Convert a model of an operator set below 7")
    rtol: float | None = _setting(None, number(), "Relative tolerance of the verification", "X", "by data type")
    atol: float | None = _setting(None, number(), "Absolute tolerance of the verification", "X", "by data type")
    measure: bool = _setting(True, SWITCH, "Time the result against the original")
    keep_ties: bool = _setting(False, SWITCH, "Keep the input where the result is as fast and simpler")


DECLARED: Mapping[str, Declared] = {f.name: f.metadata["declared"] for f in fields(Settings)}
"""What is known of each setting, by its name."""
Settings.__doc__ = f"{Settings.__doc__}\n\n    Attributes:\n" + "\n".join(
    f"        {name}: {told.doc.format(**mentioned(ours=True))}." for name, told in DECLARED.items()
)


def page() -> str:
    """``docs/settings.md``."""
    lines = [
        "# Settings",
        "",
        "Printed by `python -m graphopt.settings`. A setting is an option of `graphopt optimize`, a variable, a key of the nearest `graphopt.toml` or of",
        "`[tool.graphopt]` in the nearest `pyproject.toml`, and a keyword of `graphopt.optimize` (or a field of `graphopt.Settings`); of the first",
        "three the first that is given wins. Commas stand between the parts of a variable (`GRAPHOPT_DIMS=batch=1,seq=128`), semicolons between sets",
        "(`GRAPHOPT_AT=batch=1,seq=128;batch=8,seq=16`).",
        "",
        "A file may have profiles: `--profile edge` (or `GRAPHOPT_PROFILE=edge`) uses what stands under `[profiles.edge]` of `graphopt.toml`, or under",
        "`[tool.graphopt.profiles.edge]` of `pyproject.toml`, before what stands outside of profiles.",
        "",
        "| setting | option | variable | accepts | default | what it does |",
        "|---|---|---|---|---|---|",
    ]
    for name, told in DECLARED.items():
        option = "--" + (told.flag or name.replace("_", "-")) + (f" {told.metavar}" if told.metavar else "")
        doc = told.doc.format(**mentioned(ours=True))
        cells = f"`{name}`", f"`{option}`", f"`{ENV_PREFIX}{name.upper()}`", told.kind.wanted, _default(name), doc
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _default(name: str) -> str:
    value = getattr(Settings(), name)
    return DECLARED[name].default or (f"`{value}`" if value else "none")


if __name__ == "__main__":
    print(page(), end="")
