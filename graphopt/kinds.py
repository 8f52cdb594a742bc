"""What settings accept: names, numbers, switches, sizes, shapes; as values, and as texts of the command line and the environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from graphopt.errors import UsageError, is_path

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting accepts.

    Attributes:
        check: Takes a typed value (from TOML, Python or the command line) and returns the one to keep.
        read: Turns a text from the environment into such a value. Both raise ValueError with the sentence that follows "must be".
        typed: The type that the command line reads.
        wanted: What a value looks like, for documentation.
    """

    check: Callable[[Any], Any]
    read: Callable[[str], Any]
    typed: Any
    wanted: str


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and is_path(value)


def _text(value: Any) -> str:
    if not _is_name(value):
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


def integer(least: int) -> Kind:
    """Whole numbers from some number on."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"a whole number of at least {least}") from None

    return Kind(check, read, int, f"a whole number of at least {least}")


def number(*, least: float = 0.0, above: bool = False, below: float = math.inf) -> Kind:
    """Numbers from some number on, or above it, and below another."""
    wanted = f"a number above {least:g}" if above else f"a number of at least {least:g}"
    if below < math.inf:
        wanted += f" and below {below:g}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(wanted)
        if value < least or (above and value == least) or value >= below:
            raise ValueError(wanted)
        return float(value)

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(wanted) from None

    return Kind(check, read, float, wanted)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(map(_is_name, value)):
        raise ValueError("a list of names")
    return tuple(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _read_names(text: str) -> list[str]:
    names = _split(text)
    if not all(names):
        raise ValueError("names with commas between them")
    return names


def _named(text: str, parse: Callable[[str], tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in map(parse, _split(text)):
        if found.setdefault(name, value) != value:
            raise ValueError(f"without {name!r} twice")
    return found


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


NAME = Kind(_text, str, str, "a name")
PROVIDER = Kind(lambda value: provider_name(_text(value)), str, str, "a name")
SWITCH = Kind(_flag, _read_flag, bool, "true or false")
NAMES = Kind(_texts, _read_names, list[str], "a list of names")
OPTIONS = Kind(_options, lambda text: _named(text, parse_provider_option), list[str], "a table of texts and numbers")
DIMS = Kind(_dims, lambda text: _named(text, parse_dim), list[str], "a table of sizes")
SHAPES = Kind(_shapes, lambda text: _named(text, parse_input_shape), list[str], "a table of shapes")
SETS = Kind(
    _sets,
    lambda text: [_named(part, parse_dim) for part in text.split(";")],
    list[str],
    "a list of tables of sizes",
)


def _kept(wanted: str, fits: Callable[[Any], bool]) -> Kind:
    """What Python gives and no text can."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError(wanted)
        return value

    return Kind(check, str, object, wanted)


_FUNCTION = _kept("a function", callable)
ARGUMENTS = {
    "inputs": _kept(
        "a path or a mapping of arrays by input name",
        lambda given: is_path(given) or (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)),
    ),
    "sharing": _kept(
        "a list of paths",
        lambda given: isinstance(given, Sequence) and not isinstance(given, str) and all(map(is_path, given)),
    ),
    "runs": integer(1),
    "steps": integer(0),
    "seconds": number(),
    "slower": SWITCH,
    **dict.fromkeys(("progress", "interrupted", "on_case", "on_done", "on_result", "on_stage"), _FUNCTION),
}
"""What arguments of Python functions accept that are no settings, by name."""


def checked(where: str, kind: Kind, value: Any, *, from_text: bool = False) -> Any:
    """The value to keep.

    Args:
        where: What a message calls the place that it comes from.
        kind: What it has to be.
        value: What was given.
        from_text: It is a text, and has to be read first.

    Raises:
        UsageError: It is wrong.
    """
    try:
        return kind.check(kind.read(value) if from_text else value)
    except ValueError as error:
        shown = repr(value)
        raise UsageError(f"{where} must be {error}, not {shown if len(shown) < 80 else shown[:77] + '...'}") from None
