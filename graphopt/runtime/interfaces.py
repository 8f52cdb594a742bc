"""What the names of a model's inputs say of their sizes and of their elements, by the table ``interfaces.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.ir.types import Array
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.ties import Linear, linear

_FILE = Path(__file__).with_name("interfaces.yaml")
_NOTHING = "-"
_MORE = 8  # tokens that a text is made longer by


@dataclass(frozen=True)
class InterfaceEntry:
    """What is known of inputs of some name; see the table."""

    match: re.Pattern[str]
    axes: tuple[str, ...]
    values: str = ""
    beside: re.Pattern[str] | None = None


@dataclass(frozen=True)
class InterfaceTable:
    """The table."""

    entries: tuple[InterfaceEntry, ...]
    sums: Mapping[str, Sequence[str]]
    sizes: Mapping[str, Sequence[int]]
    operands: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Interface:
    """What was recognised of the inputs of a model.

    Attributes:
        roles: What the dimensions are, by input.
        values: What the elements are, by input; for those of which that is known.
    """

    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def equations(self, specs: Iterable[TensorSpec]) -> Iterator[tuple[Linear, Linear]]:
        """What the dimensions of the same role have to do with each other; roles stand in them under :func:`variable`."""
        present = {role for roles in self.roles.values() for role in roles}
        sums = table().sums
        for spec in specs:
            for dim, role in zip(spec.shape, self.roles.get(spec.name, ()), strict=False):
                if role == _NOTHING or dim is None:
                    continue
                parts = [part for part in sums[role] if part in present] if role in sums else [role]
                yield linear(dim), {variable(part): 1 for part in parts}

    def role_of(self, specs: Iterable[TensorSpec]) -> dict[str, str]:
        """The role of each symbol that is a dimension by itself."""
        return {
            dim: role
            for spec in specs
            for dim, role in zip(spec.shape, self.roles.get(spec.name, ()), strict=False)
            if isinstance(dim, str) and role != _NOTHING
        }

    def likely(self, specs: Iterable[TensorSpec]) -> dict[str, Sequence[int]]:
        """Likely sizes of each symbol whose role says them, the likeliest first."""
        stepwise = any("past" in roles for roles in self.roles.values())
        roles = {dim: "step" if stepwise and role == "sequence" else role for dim, role in self.role_of(specs).items()}
        return {dim: table().sizes[role] for dim, role in roles.items() if role in table().sizes}

    def size(self, role: str, shapes: Mapping[str, Sequence[int]]) -> int:
        """The size of a role where the inputs have these shapes; 0 for one that no input has."""
        if role in table().sums and not any(role in roles for roles in self.roles.values()):
            return sum(self.size(part, shapes) for part in table().sums[role])
        for name, roles in self.roles.items():
            if role in roles and name in shapes:
                return shapes[name][list(roles).index(role)]
        return 0


def recognise(specs: Iterable[TensorSpec]) -> Interface:
    """What the names of some inputs say."""
    specs = list(specs)
    roles: dict[str, Sequence[str]] = {}
    values: dict[str, str] = {}
    for spec in specs:
        names = [name for name in (spec.name, spec.known_as) if name]
        entries = (each for name in names for each in table().entries if _fits(each, name, spec, specs))
        entry = next(entries, None)
        if entry is not None:
            roles[spec.name] = entry.axes
            if entry.values:
                values[spec.name] = entry.values
    return Interface(roles, values)


def _fits(entry: InterfaceEntry, name: str, spec: TensorSpec, specs: Sequence[TensorSpec]) -> bool:
    return (
        spec.kind == "tensor"
        and len(entry.axes) == len(spec.shape)
        and entry.match.fullmatch(name) is not None
        and (
            entry.beside is None
            or any(entry.beside.fullmatch(n) for other in specs for n in (other.name, other.known_as))
        )
    )


def variable(role: str) -> str:
    """The name of a role among symbols."""
    return f"<{role}>"


@cache
def table() -> InterfaceTable:
    """The table that comes with graphopt."""
    import yaml

    read: Mapping[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return InterfaceTable(tuple(_entry(each) for each in read["inputs"]), read["sums"], read["sizes"], read["operands"])


def _entry(read: Mapping[str, Any]) -> InterfaceEntry:
    beside = re.compile(read["beside"], re.IGNORECASE) if "beside" in read else None
    return InterfaceEntry(re.compile(read["match"], re.IGNORECASE), tuple(read["axes"]), read.get("values", ""), beside)


def elements(
    interface: Interface, name: str, shapes: Mapping[str, Sequence[int]], dtype: np.dtype[Any]
) -> Array | None:
    """The elements of an input by what it means; ``None`` where that is not known, or random ones will do."""
    kind, shape = interface.values.get(name), tuple(shapes[name])
    if kind is None or kind == "mask":
        return None
    past, total = interface.size("past", shapes), interface.size("total", shapes)
    if kind == "positions":
        return np.broadcast_to(np.arange(past, past + shape[-1]), shape).astype(dtype)
    if kind == "lengths":
        longest = interface.size("sequence", shapes) or max((max(s) for s in shapes.values() if len(s) > 1), default=1)
        return np.full(shape, longest).astype(dtype)
    numbers = {"past": past, "total": total, "last": total - 1, "longer": total + _MORE, "one": 1, "zero": 0}
    return np.full(shape, numbers[kind]).astype(dtype)
