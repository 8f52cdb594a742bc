"""Models to build, by producer. A module here imports its producer inside its functions: it may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Feeds = Mapping[str, Any]
Build = Callable[[Path], Feeds]
"""Writes a model to a file and returns inputs that it runs on, by name."""

PRODUCERS: Mapping[str, str] = {  # where their models stand
    "decoders": "decoders.RECIPES",
    "transformers": "transformers.RECIPES",
    "timm": "timm.RECIPES",
    "torchvision": "torchvision.RECIPES",
    "detection": "torchvision.DETECTION",
    "ultralytics": "ultralytics.RECIPES",
    "diffusers": "diffusers.RECIPES",
    "recurrent": "recurrent.RECIPES",
    "scripted": "recurrent.SCRIPTED",
    "skl2onnx": "sklearn.RECIPES",
    "onnxmltools": "sklearn.TREES",
    "catboost": "sklearn.CATBOOST",
    "quantised": "derived.QUANTISED",
    "float16": "derived.HALF",
    "packages": "packages.RECIPES",
    "suite": "suite.RECIPES",
}


def recipes(producer: str) -> Mapping[str, Build]:
    """The models of a producer, by name."""
    module, _, what = PRODUCERS[producer].partition(".")
    found: Mapping[str, Build] = getattr(importlib.import_module(f"{__name__}.{module}"), what)
    return found
