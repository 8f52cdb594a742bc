"""Files are written whole or not at all, and never over anything but a file, nor over what is read.

A *draft* lies beside its place under another name until it is complete; then it is renamed. A link stays, and the file that it
leads to is replaced. What is no regular file is never renamed over: pipes, terminals and devices that take any text, such as
``/dev/null`` and ``/dev/stdout``, are written into, everything else is refused.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from graphopt import scratch
from graphopt.config import FILES, STORE, cache_dir
from graphopt.errors import GraphoptError, UsageError, reason
from graphopt.scratch import Closing

_SUFFIX = ".graphopt"  # of drafts: what is called .NAME.XXXX.graphopt and locked by nobody was left by a killed process
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_RULES = frozenset({".yaml", ".yml"})
_INPUTS = frozenset({".npz", ".npy", ".pb"})
_EVIDENCE, _MANIFEST = "evidence.lock", "manifest.json"
_OF_AGENTS = frozenset({".onnx", ".safetensors", ".sqlite", ".csv", ".json"})
_LONGEST = 120  # characters of a name that go into that of its draft: names have at most 255 bytes


def resolved(path: Path) -> Path:
    """Where a path leads to; of a link that leads to itself, which ``Path.resolve`` fails at, as far as it leads."""
    return Path(os.path.realpath(path))


def weight_folders(model: Path) -> set[Path]:
    """Where a model may keep weights, there or below: its folder; of a link (the cache of Hugging Face is made of them) that of what it leads to, too."""
    return {model.parent.resolve(), model.resolve().parent}


def is_stream(path: Path) -> bool:
    """Whether ``path`` is written into rather than replaced.

    Raises:
        UsageError: It is neither a place for a file nor something to write into.
    """
    if _descriptor(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"{path}: {reason(error)}") from error
    if stat.S_ISREG(mode):
        return False
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    kind = "a folder" if stat.S_ISDIR(mode) else "a disk" if stat.S_ISBLK(mode) else "a socket"
    raise UsageError(f"{path} is {kind}, not a file")


def write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file whole or not at all, or into what is no file.

    Raises:
        GraphoptError: It can't be written.
    """
    try:
        if is_stream(path):
            with _into(path) as file:
                for piece in pieces:
                    file.write(piece)
            return
        with Draft(path) as draft:
            for piece in pieces:
                draft.file.write(piece)
            draft.commit()
    except OSError as error:
        raise unwritable(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, as :func:`write`."""
    write(path, [text.encode("utf-8", "backslashreplace")])


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write text files that belong together: none takes its place before all of them are complete.

    Raises:
        GraphoptError: One can't be written.
        UsageError: One would be no file.
    """
    with ExitStack() as stack:
        drafts: list[Draft] = []
        try:
            for path, text in texts.items():
                if is_stream(path):
                    raise UsageError(f"{path} is not a regular file")
                drafts.append(stack.enter_context(Draft(path)))
                drafts[-1].file.write(text.encode("utf-8", "backslashreplace"))
                drafts[-1].file.flush()
            for draft in drafts:
                path = draft.final
                draft.commit()
        except OSError as error:
            raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> GraphoptError:
    """The error for a file that can't be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = "free some space, or choose another place" if full else None
    return GraphoptError(f"{path}: can't be written: {reason(error)}", hint)


def files_read(
    inputs: Path | None = None, rules: Iterable[str | Path] = (), agent: str | Path | None = None
) -> dict[str, Path]:
    """What is read besides models, by what it is: also the evidence beside rules.

    Args:
        inputs: A file of inputs, or a folder.
        rules: Files and folders of rules; what is none of either names rules, and is passed over.
        agent: The folder of an agent.
    """
    found = {} if inputs is None else {f"the {_kind(inputs)} of inputs": inputs}
    for each in filter(Path.exists, map(Path, rules)):
        found[f"the {_kind(each)} of rules {each}"] = each
        if each.is_file():
            found[f"the evidence of {each}"] = each.with_name(_EVIDENCE)
    if agent:
        found["the agent"] = Path(agent)
    return found


def file_named(text: str | Path) -> Path:
    """The path of a file that is to be written, from its text: what ends in a slash, which a path does not keep, names a folder.

    Raises:
        UsageError: It does.
    """
    if os.path.basename(text) in ("", os.curdir, os.pardir):
        raise UsageError(f"{text} is a folder, not a file", "end it with the name of a file")
    return Path(text)


def writable(path: Path, *, reads: Mapping[str, Path], writes: Mapping[str, Path]) -> Path:
    """`path`, if a file can be written there without harm to the other files of the command.

    Args:
        path: Where a file is to be written.
        reads: The files and folders that are read, by what they are. They are never overwritten, nor what is read in them,
            nor what any command reads.
        writes: The other files that are written, by what they are.

    Raises:
        UsageError: There is no such folder, no permission, `path` is one of the other files, or nothing to write to.
    """
    if str(path) == "-":
        raise UsageError("a model or a report cannot be written to stdout this way", "give the name of a file")
    for what, other in (*reads.items(), *_always_read()):
        if same_file(path, other):
            raise UsageError(f"{path} is {what}, which is never overwritten", "choose another name")
        if (
            os.path.isdir(other)
            and path.is_file()
            and _is_read(path, other)
            and path.resolve().is_relative_to(other.resolve())
        ):
            raise UsageError(f"{path} is part of {what}, which is never overwritten", "choose another name")
    if is_stream(path):
        # Not a descriptor of this process: those can be written by whoever holds them, whatever the path's own rights.
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"no permission to write into {path}")
        return path
    for what, other in writes.items():
        if same_file(path, other):
            raise UsageError(f"{path} is to hold {what} as well", "give each output a name of its own")
    folder = Path(os.path.realpath(path)).parent  # of a link, that of the file which it leads to
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder if path.is_symlink() else path.parent}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"no permission to write in {path.parent}", "choose another place")
    return path


def existing(path: Path) -> Path:
    """`path`, if there is a file to read.

    Raises:
        UsageError: There is none.
    """
    try:
        there = path.exists()
    except OSError as error:  # too long a name, or a folder that may not be looked into
        raise UsageError(f"{path}: {reason(error)}") from error
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file")
    if there:
        if not path.is_file():
            raise UsageError(f"{path} is not a regular file")  # reading a pipe or a terminal would hang
        return path
    if path.is_symlink():
        raise UsageError(f"no such file: {path} is a link to {os.readlink(path)}, which is not there")
    near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1) if path.parent.is_dir() else []
    raise UsageError(f"no such file: {path}", f"did you mean {path.parent / near[0]}?" if near else None)


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, through links or not; neither has to exist."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def in_utf8(path: str | Path) -> str:
    """A path as ONNX Runtime and ONNX files take it, in whatever the locale has names.

    Raises:
        UsageError: It has none for that.
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: ONNX Runtime opens only what has a name in UTF-8", "rename it") from None


def in_bytes(text: str) -> bytes:
    """Text with names of files in it, which may be any bytes, to take a digest of."""
    return text.encode("utf-8", "surrogateescape")


def from_utf8(name: str) -> str:
    """A path that an ONNX file gives, as the locale has it: the other way round than :func:`in_utf8`."""
    return os.fsdecode(name.encode())


class Draft(Closing):
    """A file that is being written: locked, and gone unless it is committed.

    Args:
        path: Where it belongs; of a link, the file that it leads to.

    Attributes:
        final: Where it belongs.
        path: Where it is.
        file: To write to.

    Raises:
        OSError: There is no place for it.
    """

    def __init__(self, path: Path) -> None:
        self.final, self._key = Path(os.path.realpath(path)), object()
        start = f".{self.final.name[:_LONGEST]}."
        _sweep(self.final.parent, start)
        while True:
            path = self.final.with_name(f"{start}{secrets.token_hex(4)}{_SUFFIX}")
            try:
                # With the rights that any new file has. To ask for these, all threads would have to go without for a moment.
                self.file = path.open("xb")
            except FileExistsError:
                continue
            self._lies_at(path, _never)
            # Between being made and being locked another process may have taken it for one that was left behind.
            if scratch.locked(self.file) and self.path.exists():
                break
            self.file.close()
            self._unlink()

    def rename(self, final: Path, stays: Callable[[Path], bool]) -> None:
        """Move it, and stay its owner.

        Args:
            final: Where to.
            stays: Whether it is to stay there after all, asked when it would be removed.

        Raises:
            OSError: It can't be moved there, or something is there that is no file.
        """
        self._move(final)
        self._lies_at(final, stays)

    def commit(self) -> None:
        """Put it in its place. From the moment it lies there nothing removes it, be it a signal that comes just then.

        Raises:
            OSError: It can't be put there.
        """
        self._move(self.final)
        self.keep()
        self.path = self.final

    def keep(self) -> None:
        """Let it be where it is."""
        scratch.settled(self._key)
        self.file.close()

    def close(self) -> None:
        """Remove it; one that is kept stays."""
        if hasattr(self, "file") and not self.file.closed:
            with suppress(OSError):  # what is buffered may not fit on a full disk
                self.file.close()
            self._unlink()

    def _move(self, final: Path) -> None:
        self.file.flush()
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(final).st_mode):
                raise OSError(errno.EEXIST, "it is no longer a regular file")
        self.path.replace(final)

    def _lies_at(self, path: Path, stays: Callable[[Path], bool]) -> None:
        self.path, self._remove = path, partial(_remove_unless, stays, path)
        scratch.on_abandon(self._key, self._remove)

    def _unlink(self) -> None:
        scratch.settled(self._key)
        self._remove()

    def __del__(self) -> None:
        self.close()  # where an error went by before anyone else could


@contextmanager
def alone(folder: Path, hint: str) -> Iterator[None]:
    """A block in which no other run writes to a folder: each would remove what the other still needs, or go on with it.

    Args:
        folder: The folder. One that is not there, or can't be opened, is left to whoever writes in it to complain of.
        hint: What to do where another run is at work.

    Raises:
        UsageError: Another one is.
    """
    lock = None
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY) if os.name == "posix" else None  # only there can a folder be opened
    try:
        if lock is not None and not scratch.locked(lock):
            raise UsageError(f"another graphopt is writing to {folder}", hint)
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _never(path: Path) -> bool:
    return False


def _remove_unless(stays: Callable[[Path], bool], path: Path) -> None:
    with suppress(OSError):
        if not stays(path):
            path.unlink()


def _sweep(folder: Path, start: str) -> None:
    """Remove drafts of the same file whose writers were killed."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.startswith(start) and entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                scratch.if_forsaken(Path(entry.path), partial(os.unlink, entry.path))


def _descriptor(path: Path) -> int | None:
    """The open file of this process that a path stands for; opening it again would start at its beginning."""
    text = os.path.abspath(path)
    found = _DESCRIPTOR.fullmatch(text)
    return int(found[1]) if found else _STANDARD.get(text)


def _into(path: Path) -> IO[bytes]:
    """Something that is no file, opened for writing."""
    number = _descriptor(path)
    if number is not None:
        return os.fdopen(os.dup(number), "wb")
    try:
        # Opened in the usual way, a pipe waits for a reader, perhaps for ever.
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads from it") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EEXIST, "it was replaced by a file meanwhile")
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _always_read() -> Iterator[tuple[str, Path]]:
    """What any command may read, and what it is: files of settings and the store of kernel times."""
    here = Path.cwd()
    for file in (folder / name for folder in (here, *here.parents) for name in FILES):
        if file.is_file():
            yield "the file of settings", file
    with suppress(UsageError):  # where there is no cache, nothing is kept in it
        yield "the store of kernel times", cache_dir() / STORE


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "file"


def is_rules(path: Path) -> bool:
    """Whether a file of a folder of rules is one of rules or their evidence, by its name."""
    return path.suffix in _RULES or path.name == _EVIDENCE


def _is_read(path: Path, folder: Path) -> bool:
    """Whether a file of a folder is one of those that are read in it: inputs, rules, agents; reports and models may lie beside them."""
    of_agent = (folder / _MANIFEST).is_file()
    return path.suffix in _INPUTS or is_rules(path) or (of_agent and path.suffix in _OF_AGENTS)
