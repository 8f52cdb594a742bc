"""What the runtime says of a failure: the gist of its messages, and what it writes to its log only."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable

from graphopt.runtime.ort import onnxruntime

FATAL_ONLY = 4
"""The severity of the runtime's log here: what goes wrong reaches the caller as an exception, so it adds only noise."""
_WARNINGS = 2
_ENTRY = re.compile(r"\[(?P<kind>[EF]):onnxruntime:[^\]]*\] (?P<text>.*)")
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status Message: ")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def one_line(error: BaseException | str) -> str:
    """The message of a runtime error without its status prefix, source location and C++ signature."""
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"\S+\.(?:cc|cpp|h|hpp|cu):\d+ ", "@@", text)
    text = re.sub(r"@@[^@()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])?(?:::<lambda[^>]*>)? ?", "", text)
    return _NODE.sub(r"node '\2' (\1) fails: ", text.replace("@@", "")).strip() or type(error).__name__


def node_of(message: str) -> str | None:
    """The name of the node that a message of :func:`one_line` speaks of, if it speaks of one."""
    found = re.search(r"node '(.*?)' \(\w+\) fails: ", message)
    return found[1] if found else None


def first_complaint(call: Callable[[], object]) -> str:
    """The first error that the runtime logs while something is tried again; empty if it logs none.

    A provider that can't start is no error to the runtime: it writes why to the log, to the process's own stderr, and
    goes on without it.

    Args:
        call: What to try; what it raises is dropped.
    """
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        onnxruntime.set_default_logger_severity(_WARNINGS)
        os.dup2(file.fileno(), 2)
        try:
            call()
        except Exception:  # the same failure as before, or worse: the log is all that is wanted of it
            pass
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            onnxruntime.set_default_logger_severity(FATAL_ONLY)
        file.seek(0)
        text = _COLOUR.sub("", file.read().decode(errors="replace"))
    entry = _ENTRY.search(text)
    return one_line(entry["text"]) if entry else ""
