"""Under which name the store keeps what was measured in an environment."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from graphopt.runtime.environment import fingerprint
from graphopt.runtime.session import SessionConfig


def environment(config: SessionConfig) -> str:
    """The name of the environment of sessions that are opened like this."""
    bare = replace(config, profile=None, save_optimized=None, required=False)
    return fingerprint(bare).digest + _extras(bare)


def _extras(config: SessionConfig) -> str:
    """A digest of settings that the environment's own does not know."""
    settings = sorted(config.entries.items())
    return "-" + hashlib.sha256(repr(settings).encode()).hexdigest()[:8] if settings else ""
