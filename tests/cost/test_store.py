"""Measurements on disk: shared, and never in the way."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
import warnings

import pytest

from graphopt.config import STORE
from graphopt.cost.store import SPEEDUP, Store, StoreWarning
from tests.permissions import anyones_folder, permissions_apply


def test_what_is_put_is_found(tmp_path):
    path = tmp_path / "deep" / "kernels.sqlite"
    with Store(path) as store:
        store.put_many("e", {"a": 1.5, "b": 2.0})
        store.put_many("f", {"a": 9.0})
        store.put_many("e", {"b": 2.5})
    with Store(path) as store:
        assert store.get_many("e", ["a", "b", "c", "a"]) == {"a": 1.5, "b": 2.5}
        assert store.get_many("g", ["a"]) == {}
        assert store.sizes() == {"e": 2, "f": 1}
        assert store.persistent


def test_many_at_once(tmp_path):
    with Store(tmp_path / "s") as store:
        times = {str(i): float(i) for i in range(2500)}
        store.put_many("e", times)
        assert store.get_many("e", times) == times


def test_clear(tmp_path):
    with Store(tmp_path / "s") as store:
        store.put_many("e", {"a": 1.0, "b": 1.0})
        store.put_many("f", {"a": 1.0})
        assert store.clear("e") == 2
        assert store.sizes() == {"f": 1}
        assert store.clear() == 1
        assert store.sizes() == {}


def test_what_graphs_gain_is_no_kernel(tmp_path):
    with Store(tmp_path / "kernels.sqlite") as store:
        store.put_many("here", {"Relu": 0.5, f"{SPEEDUP}1:2": 1.25})
        store.put_many("there", {f"{SPEEDUP}1:2": 1.5})
        assert store.sizes() == {"here": 1, "there": 0} and store.kernels("here") == {"Relu": 0.5}
        assert store.get_many("here", [f"{SPEEDUP}1:2"]) == {f"{SPEEDUP}1:2": 1.25}
        assert store.clear() == 1 and not store.all("there")
    with Store(None) as store:
        store.put_many("here", {"Relu": 0.5, f"{SPEEDUP}1:2": 1.25})
        assert store.sizes() == {"here": 1}


def test_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    with Store() as store:
        store.put_many("e", {"a": 1.0})
    assert (tmp_path / "cache" / STORE).is_file()


def test_memory_only():
    with Store(None) as store:
        store.put_many("e", {"a": 1.0})
        assert store.get_many("e", ["a", "b"]) == {"a": 1.0}
        assert store.sizes() == {"e": 1} and not store.persistent
        assert store.clear() == 1 and store.get_many("e", ["a"]) == {}


def unusable(path, kind):
    if kind == "text":
        path.write_text("this is no database, and it is long enough to be looked at as one\n" * 100)
    elif kind == "folder":
        path.mkdir()
    elif kind == "newer":
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    elif kind == "damaged":
        with Store(path) as store:
            store.put_many("e", {str(i): 1.0 for i in range(3000)})
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["text", "folder", "newer", "damaged"])
def test_an_unusable_database_is_left_alone(tmp_path, kind):
    path = tmp_path / "s"
    unusable(path, kind)
    size = path.stat().st_size
    store = Store(path)
    with pytest.warns(StoreWarning, match="memory only"):
        assert store.get_many("e", ["1"]) == {}
        store.put_many("e", {"1": 2.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get_many("e", ["1"]) == {"1": 2.0}
        assert store.sizes() == {"e": 1}
    assert not store.persistent
    store.close()
    assert path.stat().st_size == size


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
def test_where_nothing_can_be_made_nothing_is_said_to_be_read():
    with anyones_folder() as folder:
        folder.chmod(0o555)
        with permissions_apply(), pytest.warns(StoreWarning, match="^measurements are kept in memory only") as told:
            store = Store(folder / "s")
            store.put_many("e", {"a": 1.0})
            assert store.get_many("e", ["a"]) == {"a": 1.0}
        assert len(told) == 1


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
def test_a_read_only_folder():
    with anyones_folder() as folder:
        folder.chmod(0o555)
        with permissions_apply(), pytest.warns(StoreWarning):
            Store(folder / "s").put_many("e", {"a": 1.0})


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "s")
    with pytest.warns(StoreWarning):
        store.put_many("e", {"a": 1.0})
    assert store.get_many("e", ["a"]) == {"a": 1.0}


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
@pytest.mark.parametrize("name", ["kernels.sqlite", "kernels.sqlite-wal"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.warns(StoreWarning, match=f"{name} is not a regular file"), Store(tmp_path / "kernels.sqlite") as store:
        store.put_many("here", {"Relu": 0.5})
        assert store.sizes() == {"here": 1} and not store.persistent


def test_an_older_schema_is_replaced(tmp_path):
    connection = sqlite3.connect(tmp_path / "s")
    connection.execute("CREATE TABLE measurements (something TEXT)")
    connection.close()
    with Store(tmp_path / "s") as store:
        store.put_many("e", {"a": 1.0})
        assert store.persistent and store.get_many("e", ["a"]) == {"a": 1.0}


def test_a_copy_in_another_process(tmp_path):
    store = Store(tmp_path / "s")
    store.put_many("e", {"a": 1.0})
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get_many("e", ["a"]) == {"a": 1.0} and copy.persistent
    memory = pickle.loads(pickle.dumps(Store(None)))
    memory.put_many("e", {"a": 2.0})
    assert memory.get_many("e", ["a"]) == {"a": 2.0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_opens_its_own_connection(tmp_path):
    store = Store(tmp_path / "s")
    store.put_many("e", {"a": 1.0})
    child = os.fork()
    if child == 0:
        store.put_many("e", {"child": 2.0})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get_many("e", ["a", "child"]) == {"a": 1.0, "child": 2.0}


WRITER = """
import sys, warnings
warnings.simplefilter("error")
from graphopt.cost.store import Store
path, name = sys.argv[1:]
for i in range(60):
    with Store(path) as store:
        store.put_many("e", {f"{name}{i}": float(i), "shared": float(i)})
        assert store.get_many("e", [f"{name}{i}", "shared"]).keys() == {f"{name}{i}", "shared"}
"""


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "s"
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stderr=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with Store(path) as store:
        assert store.sizes() == {"e": 121}


def test_uses_of_rules_add_up(tmp_path):
    with Store(tmp_path / "k.sqlite") as store:
        assert store.uses() == {}
        store.count_uses({"a": 2, "b": 1})
        store.count_uses({"a": 3})
    with Store(tmp_path / "k.sqlite") as again:
        assert again.uses() == {"a": 5, "b": 1}
        assert again.sizes() == {}


def rewritten(path, *statements):
    """A store with a measurement, changed by somebody else."""
    with Store(path) as store:
        store.put_many("e", {"a": 1.0, "b": 2.0})
        store.put_corrections("e", {"a": 2.0, "b": 3.0})
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("value", ["'text'", "9e999", "-9e999", "x'00ff'", "-2.0"])
def test_what_is_no_time_is_passed_over(tmp_path, value):
    path = tmp_path / "k.sqlite"
    rewritten(path, f"UPDATE measurements SET ms = {value} WHERE signature = 'a'",
              f"UPDATE corrections SET factor = {value} WHERE signature = 'a'")  # fmt: skip
    with Store(path) as store:
        assert store.get_many("e", ["a", "b"]) == store.all("e") == {"b": 2.0}
        assert store.corrections("e") == {"b": 3.0}
        store.put_many("e", {"a": 4.0})
        assert store.all("e") == {"a": 4.0, "b": 2.0} and store.persistent


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE VIEW v AS SELECT 1"],
        ["CREATE TRIGGER t AFTER INSERT ON measurements BEGIN DELETE FROM measurements; END"],
        ["DROP TABLE measurements", "CREATE VIEW measurements AS SELECT 'e' AS environment, 'a' AS signature, 1 AS ms"],
        ["DROP TABLE measurements", "CREATE TABLE measurements (environment, signature, ms)"],
        ["CREATE TABLE other (x)"],
        ["CREATE INDEX i ON corrections (lower(signature))"],
    ],
)
def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path, statements):
    path = tmp_path / "k.sqlite"
    rewritten(path, *statements)
    with Store(path) as store:
        with pytest.warns(StoreWarning, match="none of ours"):
            store.put_many("e", {"c": 5.0})
        assert store.all("e") == {"c": 5.0} and not store.persistent


def test_a_query_has_an_end(tmp_path, monkeypatch):
    path = tmp_path / "k.sqlite"
    rewritten(path)
    monkeypatch.setattr("graphopt.cost.store._LONGEST_S", 0.2)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 'a', x FROM n WHERE x < 0"
    with Store(path) as store, pytest.warns(StoreWarning, match="interrupted"):
        assert store._execute(endless, ()) == []


def test_a_store_that_is_held_is_not_called_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("graphopt.cost.store._BUSY_S", 0.1)
    path = tmp_path / "kernels.sqlite"
    with Store(path) as store:
        store.put_many("e", {"s": 1.0})
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.warns(StoreWarning, match="another process holds it") as told, Store(path) as store:
            store.put_many("e", {"t": 1.0})
    other.close()
    assert "delete" not in str(told[0].message)
    path.write_bytes(b"no database at all " * 100)
    with pytest.warns(StoreWarning, match="it is damaged: delete it"), Store(path) as store:
        store.put_many("e", {"t": 1.0})


def kept_by_another(folder, *, uses=True):
    """A store with a measurement, of an earlier release without a table of uses."""
    with Store(folder / "s") as store:
        store.put_many("e", {"a": 1.5})
        store.put_corrections("e", {"a": 2.0})
    if not uses:
        connection = sqlite3.connect(folder / "s")
        connection.execute("DROP TABLE uses")
        connection.close()
    return folder / "s"


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
@pytest.mark.parametrize("folder_too", [False, True])
@pytest.mark.parametrize("uses", [False, True])
def test_what_can_not_be_written_is_read(folder_too, uses):
    with anyones_folder() as folder:
        path = kept_by_another(folder, uses=uses)
        path.chmod(0o444)
        folder.chmod(0o555 if folder_too else 0o777)
        with permissions_apply(), Store(path) as store:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # who only reads need not be told
                assert store.get_many("e", ["a", "b"]) == {"a": 1.5}
                assert store.corrections("e") == {"a": 2.0} and store.uses() == {} and store.sizes() == {"e": 1}
            assert not store.persistent and store.fault is None
            with pytest.warns(StoreWarning, match="are read, and new ones are kept in memory only") as told:
                store.put_many("e", {"b": 2.5})
                store.put_corrections("e", {"b": 3.0})
                store.count_uses({"rule": 1})
            assert len(told) == 1 and store.all("e") == {"a": 1.5, "b": 2.5}
            assert store.corrections("e") == {"a": 2.0, "b": 3.0} and store.fault is not None
        with Store(path) as store:
            assert store.all("e") == {"a": 1.5}


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Unix")
def test_a_store_on_a_full_disk_is_read(tmp_path):
    path = kept_by_another(tmp_path)
    code = (
        "import resource, sys, warnings; from graphopt.cost.store import Store; warnings.simplefilter('ignore')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); store = Store(sys.argv[1])\n"
        "store.put_many('e', {'b': 2.5}); print(store.all('e'), store.persistent)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "{'a': 1.5, 'b': 2.5} False\n", done.stderr
