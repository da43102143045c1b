"""SQLite databases of strangers (R25): nothing but SELECT on the tables that were named.

A file is opened read-only and as one that nobody changes, so there is no journal, no lock and nothing to write to, and
only the pages that a query needs are in memory: a log may be larger. Bytes are handed to SQLite as they are. Functions
of the schema are not trusted, time and sizes are bounded.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import SQLITE_MAGIC, Limits, Source
from skidpad.scenes.loss import LossReport

_HEADER_BYTES = 100
_WAL = b"\x02\x02"
_SECONDS = 120.0  # for one query
_STEPS = 20_000  # of the virtual machine, between two looks at the clock
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class Database:
    """Some tables of a database, to be used as a context.

    tables   names of the tables that may be read; those that are not there are absent from `columns`
    columns  of each table that is there
    plain    refuse a database with views or triggers

    Raises FormatError for bytes that are no database, and for a table that is a view or is virtual.
    """

    def __init__(
        self, source: Source, tables: Collection[str], limits: Limits, loss: LossReport, *, plain: bool
    ) -> None:
        self._name, self._limits = source.name, limits
        self.columns: dict[str, list[str]] = {}
        self._path = source.database
        self._before = None if self._path is None else self._stamp(self._path)
        size = len(source.data) if self._before is None else self._before[0]
        self._refuse_cut(source.data, size)
        if source.data[18:20] == _WAL:
            # What a writer had not yet moved from its log into the file is not here; the file alone is whole.
            loss.count("repaired_journal_mode", "the database is in write-ahead mode; it is read without its log")
        with self._translated():
            self._connection = self._opened(source.data)
        try:
            with self._translated():
                self._set_up(tables, plain)
        except BaseException:
            self._connection.close()
            raise

    def _opened(self, data: bytes) -> sqlite3.Connection:
        if self._path is not None:
            address = self._path.resolve().as_uri() + "?mode=ro&immutable=1"
            return sqlite3.connect(address, uri=True, isolation_level=None)
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(data[:18] + b"\x01\x01" + data[20:] if data[18:20] == _WAL else data)
        return connection

    def _stamp(self, path: Path) -> tuple[int, int, int]:
        try:
            status = path.stat()
        except OSError as error:
            raise FormatError(f"{self._name}: cannot be read ({error.strerror}).") from None
        return status.st_size, status.st_mtime_ns, status.st_ino

    def check_unchanged(self) -> None:
        """Raise FormatError if the file was written to since it was opened: pages of two states are no database."""
        if self._path is not None and self._stamp(self._path) != self._before:
            raise FormatError(f"{self._name}: was written to while it was read. Read it again when nobody writes.")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def _refuse_cut(self, data: bytes, length: int) -> None:
        """SQLite itself notices a lost page only when it is asked for."""
        if len(data) < _HEADER_BYTES or not data.startswith(SQLITE_MAGIC):
            raise FormatError(f"{self._name}: {length} bytes, expected an SQLite database.")
        size, pages = int.from_bytes(data[16:18], "big"), int.from_bytes(data[28:32], "big")
        size = 65_536 if size == 1 else size
        is_counted = pages > 0 and data[24:28] == data[92:96]
        if (is_counted and pages * size != length) or size == 0 or length % size:
            raise FormatError(
                f"{self._name}: {length} bytes, expected {pages} pages of {size}. The file is cut; copy it again."
            )

    def _set_up(self, tables: Collection[str], plain: bool) -> None:
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "temp_store = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._limits.message_bytes)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._end = time.thread_time() + _SECONDS
        self._connection.set_progress_handler(lambda: time.thread_time() > self._end, _STEPS)
        for kind, name, text in self._connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
            if plain and kind in ("view", "trigger"):
                raise FormatError(f"{self._name}: has the {kind} {str(name)[:60]!r}, expected tables only. Drop it.")
            if name in tables and (kind != "table" or not str(text).upper().startswith("CREATE TABLE")):
                raise FormatError(f"{self._name}: {name!r} is no ordinary table, expected one.")
            if name in tables:
                rows = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
                self.columns[name] = [str(row[1]) for row in rows]
        allowed = frozenset(self.columns)

        def authorize(action: int, one: str | None, two: str | None, database: str | None, by: str | None) -> int:
            read_elsewhere = action == sqlite3.SQLITE_READ and one not in allowed
            return sqlite3.SQLITE_DENY if action not in _ALLOWED or read_elsewhere or by else sqlite3.SQLITE_OK

        self._connection.set_authorizer(authorize)

    def require(self, table: str, columns: Sequence[str]) -> None:
        """Raise FormatError unless a table is there with these columns."""
        if table not in self.columns:
            raise FormatError(f"{self._name}: no table {table!r}, expected one with {', '.join(columns)}.")
        missing = [column for column in columns if column not in self.columns[table]]
        if missing:
            raise FormatError(f"{self._name}: table {table!r} has no column {', '.join(missing)}.")

    def rows(self, query: str, arguments: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. Raises FormatError where the database is corrupted, too slow, or holds huge values."""
        self._end = time.thread_time() + _SECONDS
        with self._translated():
            # Not `yield from`: that would close the cursor of a loop that was left, when the database may be closed.
            for row in self._connection.execute(query, arguments):  # noqa: UP028
                yield row

    def first(self, query: str, arguments: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, None where it has none. Raises as `rows`."""
        self._end = time.thread_time() + _SECONDS
        with self._translated():
            row: tuple[Any, ...] | None = self._connection.execute(query, arguments).fetchone()
            return row

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FormatError(f"{self._name}: SQLite says: {error}. Copy the file again.") from None
        except (UnicodeDecodeError, OverflowError) as error:
            raise FormatError(f"{self._name}: a value that is none ({error}). Copy the file again.") from None
