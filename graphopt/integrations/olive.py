"""A pass for Olive (``pip install olive-ai``), which knows it by ``olive.json`` beside this file: see docs/how-to/olive.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olive.hardware import AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.passes import Pass
from olive.passes.pass_config import BasePassConfig, PassConfigParam

from graphopt.api import optimize
from graphopt.registry import mentioned
from graphopt.settings import DECLARED

PACKAGE_CONFIG = Path(__file__).with_name("olive.json")
"""What ``olive run --package-config`` wants to be given."""


class GraphOpt(Pass):
    """Optimises an ONNX model; its parameters are graphopt's settings (docs/settings.md)."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        # Values are checked by graphopt itself, which names what is wrong; None stands for its default.
        return {
            name: PassConfigParam(type_=Any, default_value=None, description=told.doc.format(**mentioned()))
            for name, told in DECLARED.items()
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: type[BasePassConfig], output_model_path: str
    ) -> ONNXModelHandler:
        target = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        target.parent.mkdir(parents=True, exist_ok=True)
        said = {name: getattr(config, name) for name in DECLARED}
        optimize(model.model_path, output=target, **{name: value for name, value in said.items() if value is not None})
        attributes = {"inference_settings": model.inference_settings, "model_attributes": model.model_attributes}
        # A handler of a folder takes along what lies beside the model: weights in files of their own.
        return ONNXModelHandler(str(target.parent), onnx_file_name=target.name, **attributes)
