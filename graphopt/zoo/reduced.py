"""Models of reduced types, made of exported ones by ONNX Runtime's own tools, as those who deploy them do.

Imported only when a model is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from graphopt.zoo.table import example_inputs

_CALIBRATION = 8
"""Sets of random inputs that the ranges of activations are taken from."""


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Random inputs of a model of the zoo, one set after the other, each of another seed."""

    def __init__(self, name: str, sets: int) -> None:
        self._sets: Iterator[dict[str, Any]] = (example_inputs(name, seed) for seed in range(1, sets + 1))

    def get_next(self) -> dict[str, Any] | None:
        return next(self._sets, None)


def static(path: Path, name: str, sets: int = _CALIBRATION, **how: Any) -> None:
    """Weights and activations of 8 bits, with ranges from random inputs and scales by channel.

    Args:
        path: The exported model, which is replaced.
        name: Its name in the zoo.
        sets: Of random inputs.
        how: Further arguments of ``quantize_static``.
    """
    quant_pre_process(path, path, skip_symbolic_shape=True)  # BatchNormalization goes into the convolutions
    quantization.quantize_static(path, path, _Samples(name, sets), per_channel=True, **how)


def qdq(path: Path, name: str) -> None:
    """The same between QuantizeLinear and DequantizeLinear, with weights of 7 bits, so that it computes the same on every processor."""
    static(path, name, quant_format=quantization.QuantFormat.QDQ, reduce_range=True)


def dynamic(path: Path, name: str) -> None:
    """Weights of 8 bits; what is multiplied with them is quantised when it is known."""
    quant_pre_process(path, path, skip_optimization=True, skip_symbolic_shape=True)
    quantization.quantize_dynamic(path, path)


def half(path: Path, name: str) -> None:
    """Weights and arithmetic in float16, inputs and outputs in float32."""
    made = OnnxModel(convert_float_to_float16(onnx.load(path), keep_io_types=True))
    made.topological_sort()  # the cast of an input is put behind its readers
    onnx.save(made.model, path)
