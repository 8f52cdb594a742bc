"""Settings, where they come from, and where graphopt keeps its files.

A setting is looked up in four places, the first that has it wins:

    1. the command line                  ``--threads 4``
    2. the environment                   ``GRAPHOPT_THREADS=4``
    3. ``[tool.graphopt]`` in the nearest ``pyproject.toml``, going up from the current folder
    4. the default in `Settings`

A value replaces the whole value of the place below it: lists and tables are not merged.
"""

from __future__ import annotations

import math
import os
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError, UnknownNameError, UsageError

SECTION = "tool.graphopt"
ENV_PREFIX = "GRAPHOPT_"
OTHER_VARIABLES = frozenset(
    ENV_PREFIX + name
    for name in ("BLOCK_SIZE", "BROWSER", "BROWSER_DIR", "CACHE_DIR", "DEBUG", "SCREENSHOTS", "ZOO_DIR")
)
"""Variables that are no settings: places, and what tests and developers use."""

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
}
"""What ONNX Runtime calls the execution providers that have a short name here."""
_ALIASES = {"dml": "directml", "trt": "tensorrt"} | {full.lower(): short for short, full in PROVIDERS.items()}


@dataclass(frozen=True, slots=True)
class Settings:
    """What `graphopt.optimize` may be told besides the model.

    Attributes:
        strategy: How to search.
        agent: Folder of a trained agent, for a strategy that is one; None takes the shipped one.
        provider: The ONNX Runtime execution provider to run faster on.
        provider_options: Its options, as ONNX Runtime documents them.
        threads: Intra-op threads of the runtime, at least 1.
        alpha: How much dearer than the best a graph may be that backtracking searches from, at least 1.
        budget: Seconds for search and measurement; None goes by the model.
        rules: Rule files, folders or families to use; empty means the whole library.
        exclude: Ids of rules not to use.
        dims: Sizes for the model's symbolic dimensions.
        input_shapes: Shapes for inputs that declare none.
        at: Sets of sizes at which symbolic dimensions are measured.
        rtol: Relative tolerance of the verification; None lets the data type decide.
        atol: Absolute tolerance of the verification; None lets the data type decide.
        seed: Seed of everything random.
        portable: Use standard ONNX operators only.
        freeze_initializers: Treat initialisers that are also graph inputs as constants.
        max_growth: How much larger the file may become, as a fraction of its size.
        max_memory_growth: How much more memory the weights of a session may take, as a fraction of the file's size.
        max_error: The largest rounding error that a rule may have by its evidence, relative to the largest result.
        measure: Time the result against the original.
    """

    strategy: str = "auto"
    agent: str | None = None
    provider: str = "cpu"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    alpha: float = 1.05
    budget: float | None = None
    rules: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    at: tuple[Mapping[str, int], ...] = ()
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    portable: bool = False
    freeze_initializers: bool = False
    max_growth: float = 0.10
    max_memory_growth: float = 0.25
    max_error: float | None = None
    measure: bool = True


def load_settings(
    given: Mapping[str, Any] | None = None, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the settings of the command line, the environment and the nearest ``pyproject.toml``.

    Args:
        given: What the command line said, by field of `Settings`; None means not said.
        cwd: Where to start looking for ``pyproject.toml``; the current folder if not given.
        environ: The environment; ``os.environ`` if not given.

    Raises:
        UsageError: A value is wrong; the message names the file and key, the variable or the option.
    """
    env = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    file = nearest_pyproject(cwd or Path.cwd())
    if file is not None:
        merged |= _from_file(file)
    for name, kind in _KINDS.items():
        variable = ENV_PREFIX + name.upper()
        text = env.get(variable, "")
        if text:
            merged[name] = _checked(variable, kind, text, from_text=True)
    _name_unknown(env)
    for name, value in (given or {}).items():
        if value is not None:
            merged[name] = _checked("--" + name.replace("_", "-"), _KINDS[name], value)
    return Settings(**merged)


class SettingWarning(UserWarning):
    """A setting that has no effect."""


def _name_unknown(env: Mapping[str, str]) -> None:
    """Warn of variables that look like settings and are none: a misspelt one would be passed over in silence."""
    known = {*OTHER_VARIABLES, *(ENV_PREFIX + name.upper() for name in _KINDS)}
    for variable in sorted(env):
        if variable.startswith(ENV_PREFIX) and variable not in known and env[variable]:
            unknown = UnknownNameError("variable", variable, known)
            warnings.warn(f"{unknown}, which has no effect: {unknown.hint}", SettingWarning, stacklevel=3)


def check_arguments(**given: Any) -> dict[str, Any]:
    """Hold arguments of a function against what the settings of their names may be.

    Args:
        given: Arguments by name; None stands for what was not given.

    Returns:
        Those that were given, of the types that `Settings` has them in.

    Raises:
        UsageError: A value is wrong; the message begins with the argument's name.
    """
    return {name: _checked(name, _KINDS[name], value) for name, value in given.items() if value is not None}


def nearest_pyproject(start: Path) -> Path | None:
    """The nearest ``pyproject.toml`` at or above `start` that has a ``[tool.graphopt]`` table, or None."""
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file() and _table(file) is not None:
            return file
    return None


def cache_dir() -> Path:
    """Where measurements are kept: ``GRAPHOPT_CACHE_DIR``, or the platform's place for a user's caches.

    Raises:
        UsageError: The variable names the home of nobody.
    """
    chosen = os.environ.get("GRAPHOPT_CACHE_DIR")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:  # it says that there is no such home
            raise UsageError(f"GRAPHOPT_CACHE_DIR: {chosen}: {error}") from error
    import platformdirs  # not needed for most commands

    return Path(platformdirs.user_cache_dir("graphopt", appauthor=False))


def rules_dir() -> Path:
    """The folder of the rules that come with graphopt."""
    return _shipped("rules", "rules")


def agents_dir() -> Path:
    """The folder of the trained agents that come with graphopt, one in a folder of its strategy's name."""
    return _shipped("agents", "models/agents")


def _shipped(inside: str, beside: str) -> Path:
    """In a wheel such files lie inside the package, in a checkout (or an editable install of one) beside it.

    Raises:
        GraphoptError: The installation is broken: neither exists.
    """
    package = Path(__file__).resolve().parent
    # In this order: beside an installed package lie other people's packages, and one might be called "rules".
    for folder in (package / "_data" / inside, package.parent / beside):
        if folder.is_dir():
            return folder
    raise GraphoptError(f"the {inside} that come with graphopt are missing", "reinstall graphopt")


def provider_name(name: str) -> str:
    """The short name of an execution provider, from that or the runtime's; any other name is returned unchanged."""
    lower = name.lower()
    return lower if lower in PROVIDERS else _ALIASES.get(lower, name)


def parse_provider_option(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``; the value may be empty and may contain more equals signs.

    Raises:
        ValueError: It is not of that form.
    """
    key, equals, value = text.partition("=")
    if not (equals and key.strip()):
        raise ValueError("KEY=VALUE, such as device_id=1")
    return key.strip(), value


def parse_dim(text: str) -> tuple[str, int]:
    """Read ``NAME=N``.

    Raises:
        ValueError: It is not of that form.
    """
    name, equals, size = text.rpartition("=")
    if not (equals and name and _is_count(size)):
        raise ValueError("NAME=N with N at least 1, such as batch=1")
    return name, int(size)


def parse_input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read ``NAME:1x3x224x224``; ``NAME:`` is a scalar. The name may itself contain colons.

    Raises:
        ValueError: It is not of that form.
    """
    name, colon, shape = text.rpartition(":")
    sizes = shape.split("x") if shape else []
    if not (colon and name and all(_is_count(size) for size in sizes)):
        raise ValueError("NAME:SIZES, such as image:1x3x224x224")
    return name, tuple(int(size) for size in sizes)


def _is_count(text: str) -> bool:
    # isdigit alone would let through superscripts, and 18 digits are as far as a signed 64-bit size goes.
    return text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= 1


# --- what each setting accepts -----------------------------------------------------------------------------------
# `check` takes a typed value (from TOML or the command line) and returns the one to keep; `read` turns text from the
# environment into such a value. Both raise ValueError with the sentence that follows "must be".


@dataclass(frozen=True, slots=True)
class _Kind:
    check: Callable[[Any], Any]
    read: Callable[[str], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a name in quotes")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _read_flag(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError("1 or 0")
    return words[text.lower()]


def _integer(least: int) -> _Kind:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"a whole number of at least {least}") from None

    return _Kind(check, read)


def _number(*, least: float = 0.0, above: bool = False) -> _Kind:
    wanted = f"a number above {least:g}" if above else f"a number of at least {least:g}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(wanted)
        if value < least or (above and value == least):
            raise ValueError(wanted)
        return float(value)

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(wanted) from None

    return _Kind(check, read)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) and v for v in value):
        raise ValueError("a list of names")
    return tuple(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _dims(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError("a table of sizes, such as {batch = 1}")
    for size in value.values():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError("a table of sizes of at least 1, such as {batch = 1}")
    return dict(value)


def _sets(value: Any) -> tuple[dict[str, int], ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise ValueError("a list of tables of sizes, such as [{batch = 1}, {batch = 8}]")
    return tuple(_dims(item) for item in value)


def _shapes(value: Any) -> dict[str, tuple[int, ...]]:
    wanted = "a table of shapes, such as {image = [1, 3, 224, 224]}"
    if not isinstance(value, Mapping):
        raise ValueError(wanted)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, sizes in value.items():
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            raise ValueError(wanted)
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
            raise ValueError(wanted)
        shapes[name] = tuple(sizes)
    return shapes


def _options(value: Any) -> dict[str, str]:
    wanted = "a table of texts and numbers, such as {device_id = 1}"
    if not isinstance(value, Mapping):
        raise ValueError(wanted)
    # No truth values: the runtime takes texts, and its options call truth 1, true or True as each likes.
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in value.values()):
        raise ValueError(wanted)
    return {str(key): str(item) for key, item in value.items()}


_NAME = _Kind(_text, str)
_PROVIDER = _Kind(lambda value: provider_name(_text(value)), str)
_SWITCH = _Kind(_flag, _read_flag)
_NAMES = _Kind(_texts, _split)

_KINDS: dict[str, _Kind] = {
    "strategy": _NAME,
    "agent": _NAME,
    "provider": _PROVIDER,
    "provider_options": _Kind(_options, lambda text: dict(map(parse_provider_option, _split(text)))),
    "threads": _integer(1),
    "alpha": _number(least=1.0),
    "budget": _number(above=True),
    "rules": _NAMES,
    "exclude": _NAMES,
    "dims": _Kind(_dims, lambda text: dict(map(parse_dim, _split(text)))),
    "input_shapes": _Kind(_shapes, lambda text: dict(map(parse_input_shape, _split(text)))),
    "at": _Kind(_sets, lambda text: [dict(map(parse_dim, _split(part))) for part in text.split(";")]),
    "rtol": _number(),
    "atol": _number(),
    "seed": _integer(0),
    "portable": _SWITCH,
    "freeze_initializers": _SWITCH,
    "max_growth": _number(),
    "max_memory_growth": _number(),
    "max_error": _number(),
    "measure": _SWITCH,
}
assert set(_KINDS) == {f.name for f in fields(Settings)}  # a setting without a check would be taken unchecked


def _checked(where: str, kind: _Kind, value: Any, *, from_text: bool = False) -> Any:
    try:
        return kind.check(kind.read(value) if from_text else value)
    except ValueError as error:
        shown = repr(value)
        raise UsageError(f"{where} must be {error}, not {shown if len(shown) < 80 else shown[:77] + '...'}") from None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None  # somebody else's file on the way up: none of our business
    if b"graphopt" not in content:
        return None  # so that a broken file which is not about graphopt breaks nothing here
    try:
        tool = tomllib.loads(content.decode()).get("tool")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}", f"graphopt reads its settings from [{SECTION}] there") from error
    table = tool.get("graphopt") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: {SECTION} must be a table")
    return table


def _from_file(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in (_table(file) or {}).items():
        name = key.replace("-", "_")
        if name not in _KINDS:
            unknown = UnknownNameError("setting", key, _KINDS)
            raise UsageError(f"{file}: {SECTION}: {unknown}", unknown.hint)
        values[name] = _checked(f"{file}: {SECTION}.{key}", _KINDS[name], value)
    if "rules" in values:
        values["rules"] = tuple(_beside(file, entry) for entry in values["rules"])
    if "agent" in values:
        values["agent"] = str(file.parent / values["agent"])
    return values


def _beside(file: Path, entry: str) -> str:
    """A path in a file is meant relative to that file; a family name stays as it is."""
    is_path = "/" in entry or os.sep in entry or entry.endswith((".yaml", ".yml"))
    return str(file.parent / entry) if is_path else entry
