"""The point store's migrations: the numbered SQL files beside this module, applied in order and recorded.

To change the schema add `NNNN_name.sql` with the next number; a file that any database has applied never changes again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from gradwatch.errors import StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Migration(NamedTuple):
    """One numbered SQL file."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """What the record keeps of the text, so that a later edit is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> tuple[Migration, ...]:
    """The migrations of this version of gradwatch, by number."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".sql"))
    return tuple(sorted(_read(file.name, file.read_text(encoding="utf-8")) for file in found))


def upgrade(connection: DuckDBPyConnection, migrations: Sequence[Migration] | None = None) -> None:
    """Bring the database to the newest schema, each missing migration in a transaction of its own.

    Raises StoreError where the database is newer than this version, or an applied migration has changed since.
    """
    wanted = known() if migrations is None else migrations
    connection.execute(_RECORD)
    applied = _applied(connection)
    _refuse_unknown(applied, wanted)
    for migration in wanted:
        sha256 = applied.get(migration.number)
        if sha256 is None:
            _apply(connection, migration)
        elif sha256 != migration.sha256:
            raise StoreError(
                f"point store migration {migration.number} ({migration.name}) is not the one that this database "
                "applied: install the gradwatch version that wrote the database, and put the change in a new migration"
            )


_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number INTEGER PRIMARY KEY,
    name VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    applied DOUBLE NOT NULL
)
"""


def _read(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    return Migration(int(number), name, sql)


def _applied(connection: DuckDBPyConnection) -> dict[int, str]:
    return dict(connection.execute("SELECT number, sha256 FROM schema_migrations").fetchall())


def _refuse_unknown(applied: dict[int, str], wanted: Sequence[Migration]) -> None:
    unknown = sorted(applied.keys() - {migration.number for migration in wanted})
    if unknown:
        newest = max((migration.number for migration in wanted), default=0)
        raise StoreError(
            f"the point store has migration {unknown[-1]}, and this version of gradwatch knows them up to {newest}: "
            "a newer version wrote it; upgrade gradwatch"
        )


def _apply(connection: DuckDBPyConnection, migration: Migration) -> None:
    with transaction(connection):
        connection.execute(migration.sql)
        connection.execute(
            "INSERT INTO schema_migrations VALUES (?, ?, ?, ?)",
            [migration.number, migration.name, migration.sha256, time.time()],
        )


@contextmanager
def transaction(connection: DuckDBPyConnection) -> Iterator[None]:
    """Everything or nothing: commit at the end, roll back where an error ends the block."""
    connection.begin()
    done = False
    try:
        yield
        done = True
    finally:
        if done:
            connection.commit()
        else:
            connection.rollback()
