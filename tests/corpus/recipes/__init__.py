"""Models to build, by producer. A module here imports its producer inside its functions: it may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Feeds = Mapping[str, Any]
Build = Callable[[Path], Feeds]
"""Writes a model to a file and returns inputs that it runs on, by name."""

PRODUCERS = ("decoders",)


def recipes(producer: str) -> Mapping[str, Build]:
    """The models of a producer, by name."""
    found: Mapping[str, Build] = importlib.import_module(f"{__name__}.{producer}").RECIPES
    return found
