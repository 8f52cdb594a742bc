"""What all tests share."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.once import once


def pytest_configure() -> None:
    """Give numpy and torch one thread each: two that wait for each other on a busy core cost ten times as much.

    Ctrl-C means what it means in a terminal, also where a shell started the suite in the background and ignores it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Thousands of tests and their parameters stay to the end: no collection of garbage need go through them.

    What a test makes is mostly without cycles: looking for some every 700 objects took up to an eighth of the time of a test.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is `thorough` is left out unless an expression of marks names it, or is empty."""
    if not config.option.markexpr or "thorough" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run beside each other: where one does not say how many threads it wants, it gets one and not all cores."""
    from graphopt.config import Settings

    made = inspect.signature(Settings).bind()
    made.apply_defaults()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_THREADS", "1")
        patch.setattr(Settings.__init__, "__defaults__", tuple({**made.arguments, "threads": 1}.values()))
        yield


@pytest.fixture(scope="session")
def compiled_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a cache keeps the shipped rules compiled: that takes a second, and most commands want them."""
    from graphopt.rewrite import cache
    from graphopt.rewrite.library import PACKS, load_library

    def compile_(folder: Path) -> None:
        cache._known.clear()  # what a process has read already it does not write down
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GRAPHOPT_CACHE_DIR", str(folder))
            load_library(PACKS)

    return once(tmp_path_factory, "compiled", compile_) / "rules"


@pytest.fixture(scope="module")
def shared_cache(compiled_rules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of a module's own: no prices, nothing but the shipped rules."""
    return _cache(compiled_rules, tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def _no_user_cache(shared_cache: Path) -> Iterator[None]:
    """What a test measures or makes up is neither the user's nor another module's, nor theirs the test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_CACHE_DIR", str(shared_cache))
        yield


@pytest.fixture
def fresh_cache(compiled_rules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of a test's own: no prices, nothing but the shipped rules."""
    return _cache(compiled_rules, tmp_path_factory)


def _cache(compiled_rules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    shutil.copytree(compiled_rules, folder / "rules", copy_function=os.link)
    return folder
