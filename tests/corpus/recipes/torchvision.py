"""Models of torchvision: classes, segments, boxes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export

CLASSES = ("alexnet", "resnet18", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "mnasnet0_5", "densenet121", "googlenet", "efficientnet_b0", "regnet_y_400mf", "vit_b_16", "swin_t", "convnext_tiny")  # fmt: skip
BOXES = ("retinanet_resnet50_fpn", "fcos_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "ssd300_vgg16")  # fmt: skip
SEGMENTS = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")


def _suppression() -> None:
    """torchvision's operators in plain torch, where its compiled library does not fit the torch that is there: only shapes matter here."""
    import torch
    import torchvision

    if torchvision.extension._has_ops():
        return
    library: Any = torch.library.Library("torchvision", "IMPL")  # type: ignore[no-untyped-call]

    def nms(boxes: Any, scores: Any, threshold: float) -> Any:
        kept: list[int] = []
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for i in scores.argsort(descending=True).tolist():
            low, high = torch.maximum(boxes[i, :2], boxes[kept, :2]), torch.minimum(boxes[i, 2:], boxes[kept, 2:])
            both = (high - low).clamp(min=0).prod(-1)
            if not bool((both / (area[i] + area[kept] - both) > threshold).any()):
                kept.append(i)
        return torch.tensor(kept, dtype=torch.int64)

    library.impl("nms", nms, "CPU")
    torchvision.extension._has_ops = _has_ops
    _KEPT.append(library)


def _has_ops() -> bool:
    return True


_KEPT: list[Any] = []


def _image(name: str, dynamo: bool, path: Path) -> Mapping[str, Any]:
    import torch
    import torchvision

    torch.manual_seed(0)
    group = torchvision.models.segmentation if name in SEGMENTS else torchvision.models
    more = {"weights_backbone": None} if name in SEGMENTS else {}
    model = getattr(group, name)(weights=None, **more)

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            y = self.model(x)
            return y["out"] if isinstance(y, dict) else y

    x = torch.randn(1, 3, 224, 224)
    return export(Plain(), {"input": x}, ["out"], path, dynamo=dynamo, axes={"input": {0: "batch"}})


def _boxes(name: str, path: Path) -> Mapping[str, Any]:
    import torch
    import torchvision

    _suppression()
    torch.manual_seed(0)
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, num_classes=5)
    x = torch.rand(3, 96, 128)
    model.eval()
    torch.onnx.export(model, ([x],), str(path), dynamo=False, opset_version=17, input_names=["image"])
    return {"image": x.numpy()}


RECIPES = {
    f"{name}-{how}": partial(_image, name, how == "dynamo")
    for i, name in enumerate((*CLASSES, *SEGMENTS))
    for how in (("dynamo",), ("legacy",))[i % 2]
}
DETECTION = {name: partial(_boxes, name) for name in BOXES}
