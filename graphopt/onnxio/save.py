"""Write a model: whole or not at all, weights streamed from where they lie.

A model is *staged* first: complete, beside its place, under another name, so that it can be opened and compared with the original
before anything is replaced. Weights of their own file go into ``NAME.HASH.data``, named by their content: whatever the process is
killed at, the model that is there has the weights it was written with. The file of a model that was replaced is removed when no
model in its folder names it any more.
"""

from __future__ import annotations

import filecmp
import hashlib
import mmap
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import NoneType
from typing import IO, Any

import numpy as np
from onnx import ModelProto, TensorProto

from graphopt import scratch
from graphopt.errors import GraphoptError, UsageError, expect, expect_path
from graphopt.files import Draft, in_utf8, is_stream, unwritable, write
from graphopt.ir.tensors import InFile, Stamp, see_unchanged
from graphopt.onnxio import wire
from graphopt.onnxio.emit import Emitted
from graphopt.onnxio.shared import Shared
from graphopt.scratch import Closing

LARGEST_PROTOBUF = 2**31 - 1
OURS = "graphopt."
"""How the keys of ``metadata_props`` begin that graphopt writes."""
_PAGE = 4096  # where weights begin in a file, so that they can be mapped
_CHUNK = 1 << 24  # bytes that are copied at a time
_WEIGHTS = re.compile(r"(.+)\.[0-9a-f]{16}\.data", re.DOTALL)  # what files of weights are called, after their model
_MANY, _MUCH = 1000, 1 << 34  # files in a folder, and bytes: of more it takes too long to say what they name


def save(
    emitted: Emitted, path: str | Path, *, external: bool = False, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the model.

    Args:
        emitted: The model.
        path: Where to; replaced at once when everything is written.
        external: Keep large weights in a file of their own beside the model. Done anyway when one file would exceed 2 GB.
        metadata: Entries to set in the model's ``metadata_props``.

    Raises:
        GraphoptError: The file can't be written.
        ModelError: A file that weights lie in has changed since they were found there.
        UsageError: An argument is none of these, or ``path`` is the file that the model was made of, or holds weights of it.
    """
    expect("emitted", emitted, Emitted, "an Emitted, such as Result.emitted (or call Result.save)")
    expect_path("path", path)
    expect("external", external, bool, "true or false")
    expect("metadata", metadata, (Mapping, NoneType), "texts by name")
    for name, text in (metadata or {}).items():
        expect(f"metadata: {name!r}", text, str, "a text")
    spare(Path(path), emitted.source, emitted.read)
    with Staged(emitted, Path(path), external=external, metadata=metadata or {}) as staged:
        staged.commit(metadata or {})


def spare(target: Path, source: Path | None, files: Iterable[tuple[Path, Stamp]]) -> None:
    """See that what is written does not take the place of the input.

    Args:
        target: Where it is written to.
        source: The file of the input; ``None`` where that is none.
        files: The files in which weights of the input lie.

    Raises:
        UsageError: It does, or that of weights of the input.
    """
    if is_stream(target) or not target.exists():
        return
    there = Stamp.of(target)
    # Paths may be relative, and the current folder another one by now: the file itself is known, too.
    met = {file for file, stamp in files if there[:2] == stamp[:2] or (file.exists() and target.samefile(file))}
    if source is not None and (source in met or (source.exists() and target.samefile(source))):
        raise UsageError(f"{target} is the input, which is never overwritten", "choose another name")
    if met:
        raise UsageError(f"{target} would overwrite weights of the input", "choose another name")


class Staged(Closing):
    """A model that is written and not yet in its place; gone unless it is committed.

    Args:
        emitted: The model.
        target: Where it belongs; ``None`` for nowhere.
        external: Keep large weights in a file of their own. Done anyway when one file would exceed 2 GB.
        metadata: What will be added to ``metadata_props``, as far as known: it takes the place of entries of the same keys and
            of what an earlier run of graphopt recorded. Nothing for a model that stays as it was.
        sharing: Models in the same folder: of weights that lie in their files already, no second copy is written.

    Attributes:
        path: Where it is.

    Raises:
        GraphoptError: It can't be written.
        ModelError: A file that weights lie in has changed since they were found there.
    """

    def __init__(
        self,
        emitted: Emitted,
        target: Path | None,
        *,
        external: bool = False,
        metadata: Collection[str] = (OURS,),
        sharing: Iterable[Path] = (),
    ) -> None:
        see_unchanged(emitted.files)
        self._target, self._spared = target, {file.resolve() for file, _ in emitted.read}
        self._stream = target is not None and is_stream(target)
        apart = emitted.nbytes > LARGEST_PROTOBUF or (external and not self._stream)
        if apart and self._stream:
            raise GraphoptError(f"{target}: a model over 2 GB takes two files", "give the name of a file")
        self._stack = ExitStack()
        try:
            place = target
            if place is None or self._stream:
                place = self._stack.enter_context(scratch.folder("model")) / "model.onnx"
            proto = without_metadata(emitted.proto, metadata)
            self._data = self._write_data(proto, emitted, place, sharing) if apart else None
            self._draft = self._stack.enter_context(Draft(place))
            for piece in [proto.SerializeToString()] if apart else chunks(proto, emitted):
                self._draft.file.write(piece)
            self._draft.file.flush()
        except OSError as error:
            self._stack.close()
            raise unwritable(target or Path("a temporary model"), error) from error
        except BaseException:
            self._stack.close()
            raise

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._draft.path

    def commit(self, metadata: Mapping[str, str]) -> None:
        """Put it in its place, with more entries of ``metadata_props``: they are appended, nothing else is written again.

        Raises:
            GraphoptError: It can't be put there.
        """
        assert self._target is not None
        added = ModelProto()
        for key, value in metadata.items():
            added.metadata_props.add(key=key, value=value)
        try:
            self._draft.file.write(added.SerializeToString())
            if self._stream:
                self._draft.file.flush()
                copy(self._draft.path, self._target)
            else:
                self._draft.commit()
                if self._data is not None:
                    self._data.keep()
                tidy(self._draft.final, self._spared)
        except OSError as error:
            raise unwritable(self._target, error) from error
        finally:
            self._stack.close()

    def close(self) -> None:
        """Remove it; one that is committed stays."""
        self._stack.close()

    def _write_data(self, proto: ModelProto, emitted: Emitted, place: Path, sharing: Iterable[Path]) -> Draft | None:
        """Write the weights beside the model, and point the model at them; ``None`` if all lie in files of other models."""
        data = self._stack.enter_context(Draft(place))
        shared = Shared(sharing, data.final.parent)
        content = hashlib.blake2b(digest_size=8)
        position = 0

        def put(piece: bytes) -> None:
            nonlocal position
            content.update(piece)
            data.file.write(piece)
            position += len(piece)

        own: list[TensorProto] = []
        for tensor in [tensor for tensor in proto.graph.initializer if tensor.name in emitted.tensors]:
            weight = emitted.tensors[tensor.name]
            found = shared.find(weight)
            if found is None:
                put(b"\0" * (-position % _PAGE))  # page-aligned, so that readers can map it
                refer(tensor, "", position, weight.nbytes)
                for piece in weight.pieces():
                    put(piece)
                own.append(tensor)
            else:
                refer(tensor, *found, weight.nbytes)
        if not own and shared:
            data.close()
            return None
        if place.is_symlink() and place.parent.resolve() != data.final.parent:
            raise GraphoptError(
                f"{place} is a link to another folder, in which its weights would not be found", "name the file itself"
            )
        data.file.flush()
        while (final := data.final.with_name(f"{data.final.name}.{content.hexdigest()}.data")).exists():
            if filecmp.cmp(data.path, final, shallow=False):
                break
            content.update(b"\0")  # it was changed since, and may be another model's: it is not ours to replace
        for tensor in own:
            tensor.external_data[0].value = in_utf8(final.name)
        if final.exists():  # of the model that is there: the same content, by its name
            data.close()  # whoever has read that one may go on reading it
            if not scratch.is_forsaken(final):  # of a model that is staged, too, and may leave its weights to this one
                self._stack.callback(tidy, data.final, self._spared)
            return None
        data.rename(final, _named)  # another model of the same place, staged or written, may find them and name them
        return data


def by_reference(emitted: Emitted) -> tuple[bytes, dict[str, np.ndarray[Any, Any]], Path | None]:
    """A model that points at its weights where they lie in files, for those who read it from memory.

    Returns:
        The serialised model, the arrays that lie in no file (or are packed), and the folder that its files are named from.

    Raises:
        ModelError: A file has changed since weights were found in it.
        UsageError: The runtime can't open a file of that name.
    """
    see_unchanged(emitted.files)
    files = {name: t for name, t in emitted.tensors.items() if isinstance(t, InFile) and t.whole_bytes}
    arrays = {name: tensor.numpy() for name, tensor in emitted.tensors.items() if name not in files}
    if not files:
        return emitted.proto.SerializeToString(), arrays, None
    real = {path: path.resolve() for path in {tensor.path for tensor in files.values()}}
    folder = Path(os.path.commonpath([path.parent for path in real.values()]))
    named = {path: place.relative_to(folder).as_posix() for path, place in real.items()}
    proto = ModelProto()
    proto.CopyFrom(emitted.proto)
    for tensor in proto.graph.initializer:
        there = files.get(tensor.name)
        if there is not None:
            refer(tensor, named[there.path], there.offset, there.nbytes)
    return proto.SerializeToString(), arrays, folder


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Point a tensor at its bytes in a file.

    Raises:
        UsageError: The runtime can't open a file of that name.
    """
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", in_utf8(location)), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _named(weights: Path) -> bool:
    """Whether a model beside weights that were just staged, or a draft of one, names them: what was there before them does not."""
    written = weights.stat().st_mtime_ns
    others = [entry for entry in os.scandir(weights.parent) if entry.is_file() and not _WEIGHTS.fullmatch(entry.name)]
    changed = {Path(each.path): max(each.stat().st_mtime_ns, each.stat().st_ctime_ns) for each in others}
    return any(when >= written and _names(path, weights.name) for path, when in changed.items())


def tidy(model: Path, spared: Collection[Path] = ()) -> None:
    """Remove the files of weights that graphopt wrote for earlier models at ``model`` and that no model here names any more.

    A file stays when there is the least doubt: when it is being written, is a link, or when the folder has too many files to look at.

    Args:
        model: A model, as it is now.
        spared: Files that stay: those of the input, which may lie in another folder and keep its weights here.
    """
    with suppress(OSError):
        entries = [entry for entry in os.scandir(model.parent) if entry.is_file()]
        weights = {entry: _WEIGHTS.fullmatch(entry.name) for entry in entries}
        old = [
            entry
            for entry, found in weights.items()
            if found is not None
            and found[1] == model.name
            and not entry.is_symlink()
            and Path(entry.path).resolve() not in spared
        ]
        # Weights name nothing, and are large; the model itself is the likeliest to name its own.
        others = sorted((entry for entry in entries if weights[entry] is None), key=lambda e: e.name != model.name)
        if not old or len(entries) > _MANY or sum(entry.stat().st_size for entry in others) > _MUCH:
            return
        for entry in old:
            if not any(_names(Path(other.path), entry.name) for other in others):
                scratch.if_forsaken(Path(entry.path), partial(os.unlink, entry.path))


def _names(file: Path, text: str) -> bool:
    """Whether a text occurs in a file; also when the file can't be read."""
    try:
        with file.open("rb") as content:
            if os.fstat(content.fileno()).st_size == 0:
                return False
            with mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return view.find(os.fsencode(text)) >= 0
    except (OSError, ValueError):
        return True


def chunks(proto: ModelProto, emitted: Emitted) -> Iterable[bytes]:
    """The serialised model, piece by piece."""
    readers = {name: tensor.pieces for name, tensor in emitted.tensors.items()}
    return wire.joined(proto, readers, {name: int(t.nbytes) for name, t in emitted.tensors.items()})


def to_proto(emitted: Emitted, metadata: Mapping[str, str] | None = None) -> ModelProto:
    """The whole model as one protobuf, weights included; with metadata of its own it has none of an earlier run.

    Raises:
        ModelError: A file that weights lie in has changed since they were found there.
    """
    see_unchanged(emitted.files)
    proto = without_metadata(emitted.proto, metadata or {})
    for key, value in (metadata or {}).items():
        proto.metadata_props.add(key=key, value=value)
    for tensor in proto.graph.initializer:
        if tensor.name in emitted.tensors:
            wire.internalise(tensor)
            tensor.raw_data = emitted.tensors[tensor.name].tobytes()
    return proto


def without_metadata(proto: ModelProto, added: Collection[str]) -> ModelProto:
    """A copy of the skeleton without the entries of ``metadata_props`` whose place ``added`` ones take."""
    copied = ModelProto()
    copied.CopyFrom(proto)
    if added:
        kept = [e for e in proto.metadata_props if e.key not in added and not e.key.startswith(OURS)]
        del copied.metadata_props[:]
        copied.metadata_props.extend(kept)
    return copied


def copy(source: Path, path: Path) -> None:
    """Copy a file, whole or not at all.

    Raises:
        GraphoptError: One of the files can't be read or written.
        ModelError: The file changes while it is read.
    """

    def pieces(file: IO[bytes]) -> Iterator[bytes]:
        stamp = Stamp.of(source)
        while piece := file.read(_CHUNK):
            yield piece
        see_unchanged([(source, stamp)])  # before the copy takes its place: half of each would be in it

    try:
        with source.open("rb") as file:
            write(path, pieces(file))
        if not is_stream(path):
            tidy(Path(os.path.realpath(path)))
    except OSError as error:
        raise unwritable(path, error) from error
