"""Measurements on disk: one SQLite file, shared by all processes of a user.

A measurement is a cache entry: losing it costs milliseconds, so nothing here may fail a search. A database that can't be
opened or read is left alone with one warning, and the store goes on in memory. One that can't be written (a cache that a machine
has for all its users, a disk that is full) is read, and what is new lives in memory, with one warning.

The file may have come from anywhere (a cache that a build restored, a copied home): tables other than ours, views and triggers are
refused, what is no time is passed over, and a query that takes too long is ended.
"""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from graphopt.config import STORE, cache_dir
from graphopt.errors import GraphoptError, reason
from graphopt.scratch import Closing

FAILED = -1.0
"""In place of a time: what was to be measured does not run."""
SCHEMA = 1
_USES = "CREATE TABLE IF NOT EXISTS uses (rule TEXT PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID"
_FACTORS = """
CREATE TABLE IF NOT EXISTS corrections (
    environment TEXT NOT NULL,
    signature TEXT NOT NULL,
    factor REAL NOT NULL,
    PRIMARY KEY (environment, signature)
) WITHOUT ROWID
"""
# (Where a damaged file names something in bytes that are no text, not even SQLite's complaint can be read.)
_FAULTS = (sqlite3.Error, OSError, UnicodeError)
# Of these nothing is wrong with what a database holds.
_UNWRITABLE = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
)
_BUSY_S = 5.0  # for another process to finish writing: the default of Python's sqlite3
_LONGEST_S, _STEPS = 8.0, 100_000  # for one query; between two looks at the clock, in steps of SQLite's machine
_CHUNK = 500  # SQLite limits the number of parameters of a statement
_TABLE = """
CREATE TABLE IF NOT EXISTS measurements (
    environment TEXT NOT NULL,
    signature TEXT NOT NULL,
    ms REAL NOT NULL,
    PRIMARY KEY (environment, signature)
) WITHOUT ROWID
"""


SPEEDUP = "speedup:"
"""How the signature of a whole graph begins: what is kept of it is how many times as fast as another it is, and no kernel's time."""


class StoreWarning(UserWarning):
    """The store on disk can't be used, or can't be written; what is measured lives in memory only."""


class Store(Closing):
    """Milliseconds by (environment digest, signature).

    Safe for several threads and processes. A copy made by pickling or forking opens its own connection.

    Args:
        path: The database, made on first use. By default ``kernels.sqlite`` in :func:`graphopt.config.cache_dir`;
            ``None`` keeps everything in memory.

    Attributes:
        path: Where it is; ``None`` for nowhere.
        fault: Why it can't be used, or what was to be written was not, once that is known.
    """

    def __init__(self, path: Path | str | None = STORE) -> None:
        self.path = cache_dir() / STORE if path == STORE else None if path is None else Path(path)
        self._memory: dict[tuple[str, str], float] = {}
        self._factors: dict[tuple[str, str], float] = {}
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._until = math.inf
        self._broken = self.path is None
        self._unwritable: sqlite3.Error | None = None  # why it is only read
        self.fault: GraphoptError | None = None

    @property
    def persistent(self) -> bool:
        """Whether measurements reach the disk (as far as known; a store opens its file on first use)."""
        return not self._broken and self._unwritable is None

    def get_many(self, environment: str, signatures: Iterable[str]) -> dict[str, float]:
        """The known measurements among some of an environment, which goes by its digest.

        Returns:
            Milliseconds by signature; unknown ones are absent.
        """
        wanted = list(dict.fromkeys(signatures))
        found: dict[str, float] = {}
        with self._lock:
            for start in range(0, len(wanted), _CHUNK):
                part = wanted[start : start + _CHUNK]
                marks = ",".join("?" * len(part))
                query = f"SELECT signature, ms FROM measurements WHERE environment = ? AND signature IN ({marks})"
                found.update(_numbers(self._execute(query, (environment, *part)), FAILED))
            for signature in wanted:
                if (environment, signature) in self._memory:
                    found[signature] = self._memory[environment, signature]
        return found

    def all(self, environment: str) -> dict[str, float]:
        """Every measurement of an environment: milliseconds by signature."""
        with self._lock:
            rows = self._execute("SELECT signature, ms FROM measurements WHERE environment = ?", (environment,))
            found = _numbers(rows, FAILED)
            found.update({signature: ms for (name, signature), ms in self._memory.items() if name == environment})
        return found

    def kernels(self, environment: str) -> dict[str, float]:
        """The measurements of kernels of an environment: milliseconds by signature."""
        return {name: ms for name, ms in self.all(environment).items() if not name.startswith(SPEEDUP)}

    def put_many(self, environment: str, times: Mapping[str, float]) -> None:
        """Keep measurements, milliseconds by signature; a newer one replaces an older one."""
        rows = [(environment, signature, float(ms)) for signature, ms in times.items()]
        with self._lock:
            if not self._write("INSERT OR REPLACE INTO measurements VALUES (?, ?, ?)", rows):
                self._memory.update({(environment, signature): ms for environment, signature, ms in rows})

    def count_uses(self, rules: Mapping[str, int]) -> None:
        """Add to how often rules were applied in files that were written."""
        statement = "INSERT INTO uses VALUES (?, ?) ON CONFLICT (rule) DO UPDATE SET times = times + excluded.times"
        with self._lock:
            self._write(statement, list(rules.items()))

    def uses(self) -> dict[str, int]:
        """How often each rule was applied in files that were written."""
        with self._lock:
            rows = self._execute("SELECT rule, times FROM uses", ())
            return {rule: n for rule, n in rows if isinstance(rule, str) and isinstance(n, int) and n >= 0}

    def corrections(self, environment: str) -> dict[str, float]:
        """By what factor measurements are off where whole models were compared, by signature."""
        with self._lock:
            rows = self._execute("SELECT signature, factor FROM corrections WHERE environment = ?", (environment,))
            found = {signature: factor for signature, factor in _numbers(rows).items() if factor > 0}
            found.update({signature: f for (name, signature), f in self._factors.items() if name == environment})
        return found

    def put_corrections(self, environment: str, factors: Mapping[str, float]) -> None:
        """Keep corrections; a newer one replaces an older one."""
        rows = [(environment, signature, float(factor)) for signature, factor in factors.items()]
        with self._lock:
            if not self._write("INSERT OR REPLACE INTO corrections VALUES (?, ?, ?)", rows):
                self._factors.update({(environment, signature): factor for environment, signature, factor in rows})

    def sizes(self) -> dict[str, int]:
        """How many measurements of kernels there are, by environment digest."""
        query = f"SELECT environment, SUM(signature NOT LIKE '{SPEEDUP}%') FROM measurements GROUP BY environment"
        with self._lock:
            rows = self._execute(query, ())
            counts = {environment: n for environment, n in rows if isinstance(environment, str)}
            for environment, signature in self._memory:
                counts[environment] = counts.get(environment, 0) + (not signature.startswith(SPEEDUP))
        return counts

    def clear(self, environment: str | None = None) -> int:
        """Forget the measurements of an environment, or all, with their corrections.

        Returns:
            How many were forgotten.
        """
        with self._lock:
            gone = sum(n for name, n in self.sizes().items() if environment in (None, name))
            for table in ("measurements", "corrections"):
                if environment is None:
                    self._write(f"DELETE FROM {table}", [()])
                else:
                    self._write(f"DELETE FROM {table} WHERE environment = ?", [(environment,)])
            self._memory = {key: ms for key, ms in self._memory.items() if environment not in (None, key[0])}
            self._factors = {key: f for key, f in self._factors.items() if environment not in (None, key[0])}
        return gone

    def close(self) -> None:
        """Close the database; the next call opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "memory": dict(self._memory), "factors": dict(self._factors), "broken": self._broken}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]
        self._memory, self._factors, self._broken = state["memory"], state["factors"], state["broken"]

    # -- the database ---------------------------------------------------------------------------------------------

    def _execute(self, query: str, parameters: tuple[str, ...]) -> list[Any]:
        """Rows of a query; none when the database is out of use."""
        try:
            self._until = time.monotonic() + _LONGEST_S
            connection = self._open()
            return [] if connection is None else connection.execute(query, parameters).fetchall()
        except _FAULTS as error:
            self._give_up(error)
            return []

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> bool:
        """Run a statement for each row in one transaction; whether it reached the database."""
        self._until = time.monotonic() + _LONGEST_S
        try:
            connection = self._open()
        except _FAULTS as error:
            self._give_up(error)
            return False
        if connection is None or self._unwritable is not None:
            self._keep_nothing()
            return False
        try:
            with connection:
                connection.executemany(statement, rows)
            return True
        except _FAULTS as error:
            if _is_unwritable(error):
                self._unwritable = error
                self._keep_nothing()
            else:
                self._give_up(error)
            return False

    def _open(self) -> sqlite3.Connection | None:
        if self._broken or self.path is None:
            return None
        if self._connection is None or self._pid != os.getpid():
            # A connection must not cross a fork: the child leaves the parent's alone and opens its own.
            try:
                connection = self._to_write(self.path)
            except sqlite3.Error as error:
                found = self._to_read(self.path) if _is_unwritable(error) else None
                if found is None:
                    raise
                connection, self._unwritable = found, error
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def _to_write(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in ("", "-wal", "-journal"):
            file = path.with_name(path.name + part)
            if file.exists() and not file.is_file():  # SQLite would wait for a pipe for ever
                raise OSError(errno.EINVAL, f"{file.name} is not a regular file")
        connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        try:
            self._be_careful(connection)
            _check(connection)
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            self._migrate(connection)
            _check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _to_read(self, path: Path) -> sqlite3.Connection | None:
        """The database without a right to write it; ``None`` where there is none, or one of another schema."""
        # To read what is written ahead SQLite writes a file beside it; where it can't, what nobody is writing is read as it lies.
        log = path.with_name(f"{path.name}-wal")
        quiet = not log.exists() or log.stat().st_size == 0
        for mode in ("mode=ro", "mode=ro&immutable=1") if quiet else ("mode=ro",):
            connection: sqlite3.Connection | None = None
            try:
                where = f"{path.absolute().as_uri()}?{mode}"
                connection = sqlite3.connect(where, uri=True, timeout=_BUSY_S, check_same_thread=False)
                self._be_careful(connection)
                _check(connection)
                if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
                    _complete(connection)
                    return connection
            except sqlite3.Error:
                pass  # what kept it from being written says more
            if connection is not None:
                connection.close()
        return None

    def _be_careful(self, connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _STEPS)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Make the table; one of another schema is dropped, since measurements are easily made again."""
        with connection:
            # Immediate, so that two processes that start together do not both find the old version.
            connection.execute("BEGIN IMMEDIATE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA:
                raise sqlite3.DatabaseError(f"it was written by a newer graphopt (schema {version})")
            if version < SCHEMA:
                connection.execute("DROP TABLE IF EXISTS measurements")
            connection.execute(_TABLE)
            connection.execute(_USES)
            connection.execute(_FACTORS)
            connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _keep_nothing(self) -> None:
        """Say once that what is written reaches memory only, of a database that can be read."""
        if self._unwritable is not None and self.fault is None:
            self.fault = GraphoptError(f"{self.path}: {self._unwritable}", _advice(self._unwritable))
            text = (
                f"stored measurements are read, and new ones are kept in memory only: {self.fault} ({self.fault.hint})"
            )
            warnings.warn(text, StoreWarning, stacklevel=4)

    def _give_up(self, error: Exception) -> None:
        self._broken, self.fault = True, GraphoptError(f"{self.path}: {reason(error)}", _advice(error))
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None
        text = f"measurements are kept in memory only: {self.fault} ({self.fault.hint})"
        warnings.warn(text, StoreWarning, stacklevel=4)


def _is_unwritable(error: Exception) -> TypeGuard[sqlite3.Error]:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _UNWRITABLE


def _complete(connection: sqlite3.Connection) -> None:
    """Add what an earlier release did not make, for this connection alone."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in (_TABLE, _USES, _FACTORS):
        if _name(statement) not in there:
            connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))


def _check(connection: sqlite3.Connection) -> None:
    """Make sure that a database holds our tables and nothing that acts by itself; the tables of an older schema will be dropped.

    Raises:
        sqlite3.DatabaseError: It does not.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    ours = {_name(text): _plain(text) for text in (_TABLE, _USES, _FACTORS)}
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind != "table":
            raise sqlite3.DatabaseError(f"it is none of ours: it holds {kind} {name!r}")
        if version == SCHEMA and ours.get(name) != _plain(text):
            raise sqlite3.DatabaseError(f"it is none of ours: table {name!r} is another")


def _plain(statement: Any) -> str:
    return " ".join(str(statement).replace("IF NOT EXISTS ", "").split())


def _name(statement: str) -> str:
    return _plain(statement).split()[2]


def _numbers(rows: Iterable[tuple[Any, Any]], mark: float = 0.0) -> dict[str, float]:
    """Times or factors by signature, as far as they are any: SQLite keeps what is written, whatever the column's type."""
    return {
        signature: float(value)
        for signature, value in rows
        if isinstance(signature, str)
        and isinstance(value, int | float)
        and math.isfinite(value)
        and (value >= 0 or value == mark)
    }


def _advice(error: Exception) -> str:
    """What to do about a store that can't be used: nothing is wrong with one that another process holds."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, UnicodeError):
        return "it is damaged: delete it"
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process holds it: try again when that has ended"
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "it is damaged: delete it"
    return "see GRAPHOPT_CACHE_DIR for another place"


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; while another process does the same, SQLite does not wait but fails at once."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
