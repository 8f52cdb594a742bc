"""Detectors of ultralytics, written by its own exporter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("yolov8n", "yolov8n-seg", "yolov8n-pose", "yolov8n-cls", "yolov9t", "yolov10n", "yolo11n", "yolo11n-seg", "yolo11n-obb", "yolo12n", "yolov5n", "yolov3-tiny")  # fmt: skip


def _build(name: str, dynamic: bool, path: Path) -> Mapping[str, Any]:
    import ultralytics

    model = ultralytics.YOLO(f"{name}.yaml")
    model.model.names = {i: str(i) for i in range(1000)}
    made = Path(model.export(format="onnx", imgsz=64, simplify=False, dynamic=dynamic, opset=17, device="cpu"))
    made.replace(path)
    return {"images": np.random.default_rng(0).random((1, 3, 64, 64), np.float32)}


RECIPES = {
    f"{name}{'-dynamic' if dynamic else ''}": partial(_build, name, dynamic)
    for name in MODELS
    for dynamic in (False, True)
}
