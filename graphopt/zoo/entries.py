"""What entries of the table have in common: images or tokens as their input."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.zoo.spec import Number, TensorSpec, ZooModel

_NONE: Mapping[str, Number] = {}
_IMAGENET = {"batch": 1, "size": 224, "classes": 1000}


def image(
    name: str,
    family: str,
    build: str,
    doc: str,
    params: Mapping[str, Number] = _NONE,
    outputs: tuple[str, ...] = ("logits",),
    reduced: str = "",
) -> ZooModel:
    """An entry whose one input is pixels [batch, 3, size, size], at 224 pixels and 1,000 classes unless ``params`` say otherwise."""
    pixels = TensorSpec("pixels", ("batch", 3, "size", "size"))
    return ZooModel(name, family, f"graphopt.zoo.{build}", (pixels,), doc, {**_IMAGENET, **params}, outputs, reduced)


def tokens(
    name: str,
    family: str,
    builder: str,
    doc: str,
    params: Mapping[str, Number],
    extra: tuple[TensorSpec, ...] = (),
    outputs: tuple[str, ...] = ("logits",),
) -> ZooModel:
    """An entry of ``graphopt.zoo.text`` whose first input is input_ids [batch, seq], before the ``extra`` ones."""
    ids = TensorSpec("input_ids", ("batch", "seq"), "int64", 0, "vocab")
    params = {"batch": 1, **params}
    return ZooModel(name, family, f"graphopt.zoo.text:{builder}", (ids, *extra), doc, params, outputs)
