"""What an entry of the zoo is: names, shapes and numbers, with no library behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Number = int | float
"""A parameter's value; whether it is whole is decided by the default in the registry."""

SYMBOLS: Mapping[str, int] = MappingProxyType({"batch": 2, "seq": 16, "past": 15})
"""Parameters that an override of 0 makes symbolic dimensions, with their size in examples."""


@dataclass(frozen=True)
class TensorSpec:
    """One input of an exported model.

    Attributes:
        name: The input's name; ``{layers}`` in it stands for one input for each of that many layers (any parameter).
        shape: Dimensions; a text entry names a parameter, or a quotient of two (``"hidden//heads"``).
        dtype: NumPy name of the element type.
        low: Smallest example value of an integer input.
        high: One more than the largest example value of an integer input, or the parameter that says it.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: int = 0
    high: int | str = 2

    def __str__(self) -> str:
        """``pixels: float32[batch, 3, size, size]``."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ZooModel:
    """One entry of the zoo, or one entry with some of its parameters overridden.

    Attributes:
        name: Name under which it is built, overrides included.
        family: ``cnn``, ``transformer``, ``recurrent``, ``search`` (found by architecture search), ``tiny`` (for tests) or ``demo``.
        build: Dotted path ``module:name`` of the builder, a function or a class, which takes ``params`` as keywords and returns a module.
        inputs: The exported model's inputs, over parameters.
        doc: One line: what it is and which paper it comes from.
        params: Numeric parameters of the builder and of ``inputs``, with their values.
        outputs: The exported model's output names, with ``{layers}`` as for inputs.
        reduced: Function of :mod:`graphopt.zoo.reduced` that brings the exported model to smaller types; none where empty.
    """

    name: str
    family: str
    build: str
    inputs: tuple[TensorSpec, ...]
    doc: str
    params: Mapping[str, Number] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("logits",)
    reduced: str = ""

    def __post_init__(self) -> None:
        """Freeze ``params``."""
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    def dim(self, value: int | str) -> int:
        """The number a dimension stands for: itself, a parameter (its size in examples where symbolic), or ``"a//b"``."""
        if isinstance(value, int):
            return value
        if value in self.symbols:
            return SYMBOLS[value]
        first, *rest = value.split("//")
        size = int(self.params[first])
        for name in rest:
            size //= int(self.params[name])
        return size

    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Inputs with every dimension a number and ``{layers}`` expanded. A symbolic batch appears as 2."""
        return tuple(
            TensorSpec(name, tuple(map(self.dim, spec.shape)), spec.dtype, spec.low, self.dim(spec.high))
            for spec in self.inputs
            for name in self._expand(spec.name)
        )

    def symbolic_axes(self) -> dict[str, dict[int, str]]:
        """The symbolic dimensions of each input: their names by axis."""
        return {
            name: {axis: str(d) for axis, d in enumerate(spec.shape) if d in self.symbols}
            for spec in self.inputs
            for name in self._expand(spec.name)
        }

    def output_names(self) -> tuple[str, ...]:
        """Output names with ``{layers}`` expanded."""
        return tuple(name for output in self.outputs for name in self._expand(output))

    @property
    def symbols(self) -> frozenset[str]:
        """The dimensions that are exported as symbols (``batch=0``, ``seq=0``, ``past=0``)."""
        return frozenset(name for name in SYMBOLS if self.params.get(name) == 0)

    def _expand(self, name: str) -> list[str]:
        head, brace, rest = name.partition("{")
        if not brace:
            return [name]
        count, _, tail = rest.partition("}")
        return [f"{head}{i}{tail}" for i in range(self.dim(count))]
