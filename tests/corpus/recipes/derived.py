"""What onnxruntime's own tools make of the zoo and of small decoders: quantised in four ways, in float16, optimised offline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.corpus.recipes import recipes

BASES = (
    ("decoders", "gpt2-legacy"), ("decoders", "llama-dynamo"), ("decoders", "t5-step-legacy"), ("transformers", "bert-dynamo"), ("transformers", "vit-legacy"),
    ("transformers", "resnet-legacy"), ("torchvision", "mobilenet_v2-legacy"), ("torchvision", "resnet18-legacy"), ("torchvision", "squeezenet1_1-dynamo"), ("recurrent", "LSTM-legacy"),
)  # fmt: skip
WAYS = ("dynamic", "qdq", "qoperator", "weights4", "float16")


def _build(producer: str, name: str, way: str, path: Path) -> Mapping[str, Any]:
    import onnx
    from onnxruntime import quantization

    with TemporaryDirectory() as folder:
        source = Path(folder) / "source.onnx"
        feeds = dict(recipes(producer)[name](source))
        if way == "dynamic":
            quantization.quantize_dynamic(source, path)
        elif way in ("qdq", "qoperator"):
            form = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}[way]
            quantization.quantize_static(source, path, _Reader(feeds), quant_format=form, per_channel=way == "qdq")
        elif way == "weights4":
            from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

            quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32)
            quantizer.process()
            quantizer.model.save_model_to_file(str(path))
        else:
            from onnxruntime.transformers.float16 import convert_float_to_float16

            onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), path)
    return feeds


class _Reader:
    """Inputs to calibrate on."""

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self._left = [dict(feeds)]

    def get_next(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The next inputs."""
        return self._left.pop() if self._left else None


QUANTISED = {f"{name}-{way}": partial(_build, producer, name, way) for producer, name in BASES for way in WAYS[:-1]}
HALF = {f"{name}-float16": partial(_build, producer, name, "float16") for producer, name in BASES}
