"""Fourier transforms over any domain of elements: sums of products with the cosines and sines of parts of a turn.

Those numbers stand for themselves: ``numbers`` knows the rational ones and the root of two, every other is as good as unknown, and the same
wherever it occurs. So what is proved holds for any numbers in their place, which is more than a transform needs.
"""

from __future__ import annotations

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.linear import total
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, front, operator
from graphopt.rewrite.functions import cosine


def _number(c: Call, i: int, name: str) -> int | None:
    """An operand that is a whole number, if it is there."""
    given = c.opt(i)
    if given is None:
        return None
    if c.d.holds(given) or given.size != 1:
        raise UnsupportedError(f"{c.op} whose {name} is not known")
    return int(given.reshape(()))


def _turns(c: Call, length: int, results: int, sign: int) -> tuple[Array, Array]:
    """Cosines and sines of k n / length turns, a row for each place and a column for each of the first results."""
    places = np.outer(np.arange(length), np.arange(results)) % length
    real = [cosine(k, length) for k in range(length)]
    imaginary = [sign * cosine(4 * k - length, 4 * length) for k in range(length)]
    # A model holds them as floats of 32 bits, and the number that is meant is found from those.
    return (
        c.d.constant(np.array(real, np.float32).astype(np.float64)[places]),
        c.d.constant(np.array(imaginary, np.float32).astype(np.float64)[places]),
    )


def _transformed(c: Call, x: Array, results: int, inverse: bool) -> Array:
    """(..., length, 1 or 2) to (..., results, 2)."""
    d, length = c.d, x.shape[-2]
    real, imaginary = _turns(c, length, results, 1 if inverse else -1)

    def summed(part: int, factors: Array) -> Array:
        return total(c, d.mul(x[..., part, None], factors), x.ndim - 2)

    above, beside = summed(0, real), summed(0, imaginary)
    if x.shape[-1] == 2:
        above, beside = d.add(above, d.neg(summed(1, imaginary))), d.add(beside, summed(1, real))
    made = np.stack([above, beside], -1)
    return d.div(made, c.number(length)) if inverse else made


def _from_half(c: Call, x: Array, length: int | None) -> Array:
    """(..., half + 1, 2) to the real signal (..., length, 1) whose spectrum begins so and goes on as the conjugate of that, in reverse."""
    d, half = c.d, x.shape[-2]
    n = 2 * (half - 1) if length is None else length
    if n < 1 or n // 2 + 1 != half:
        raise UnsupportedError("a DFT of another length than its signal")
    real, imaginary = _turns(c, n, n, 1)
    twice = c.d.constant(np.array([1.0 if k == 0 or 2 * k == n else 2.0 for k in range(half)]))[:, None]
    parts = d.add(d.mul(x[..., 0, None], real[:half]), d.neg(d.mul(x[..., 1, None], imaginary[:half])))
    return d.div(total(c, d.mul(parts, twice), x.ndim - 2), c.number(n))[..., None]


@operator("DFT")
def _dft(c: Call) -> Result:
    x, length = c.arg(0), _number(c, 1, "length")
    axis = (c["axis"] if c.opset < 20 else -2) if (given := _number(c, 2, "axis")) is None else given
    at = front(axis, x.ndim)
    if not c.d.holds(x) or at == x.ndim - 1 or x.shape[-1] not in (1, 2) or x.shape[at] == 0:
        raise ContradictionError("a DFT of what is no signal")
    if c["onesided"] and c["inverse"] and x.shape[-1] == 2:
        return np.moveaxis(_from_half(c, np.moveaxis(x, at, -2), length), -2, at)
    if length not in (None, x.shape[at]):
        raise UnsupportedError("a DFT of another length than its signal")
    if c["onesided"] and (c["inverse"] or x.shape[-1] == 2):
        raise UnsupportedError("a DFT on one side of complex numbers")
    results = x.shape[at] // 2 + 1 if c["onesided"] else x.shape[at]
    return np.moveaxis(_transformed(c, np.moveaxis(x, at, -2), results, bool(c["inverse"])), -2, at)


@operator("STFT")
def _stft(c: Call) -> Result:
    x, step, window, length = c.arg(0), _number(c, 1, "step"), c.opt(2), _number(c, 3, "length")
    if length is None:
        length = None if window is None else window.shape[0]
    x = x[..., None] if x.ndim == 2 else x  # as torch's older exporter writes it
    if not c.d.holds(x) or x.ndim != 3 or length is None or not step or step < 0:
        raise UnsupportedError("this form of STFT")
    if x.shape[1] < length or length <= 0 or (window is not None and window.shape != (length,)):
        raise ContradictionError("an STFT whose window does not fit")
    if x.shape[2] == 2:
        raise UnsupportedError("an STFT of complex numbers")
    starts = np.arange((x.shape[1] - length) // step + 1) * step
    frames = x[:, starts[:, None] + np.arange(length)]
    if window is not None:
        frames = c.d.mul(frames, window[:, None])
    return _transformed(c, frames, length // 2 + 1 if c["onesided"] else length, False)
