import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from gradwatch.errors import StoreError
from gradwatch.schema import RunInfo, StoredFinding
from gradwatch.store import point_queries
from gradwatch.store.metadata import sqlite_engine
from gradwatch_migrations import metadata, points
from gradwatch_migrations.points import Migration

A = Migration(1, "a", "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)")
B = Migration(2, "b", "ALTER TABLE a ADD COLUMN y INTEGER")


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    yield connection
    connection.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sqlite_engine(tmp_path / "metadata.sqlite")
    yield engine
    engine.dispose()


def tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]


def test_point_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in points.known()] == list(range(1, len(points.known()) + 1))


def test_the_point_store_has_its_tables_and_their_record(database: duckdb.DuckDBPyConnection) -> None:
    points.upgrade(database)
    assert tables(database) == ["batches", "points", "samples", "schema_migrations", "series"]
    rows = database.execute("SELECT number, name, sha256 FROM schema_migrations").fetchall()
    assert rows == [(migration.number, migration.name, migration.sha256) for migration in points.known()]


def test_each_point_migration_is_applied_once(database: duckdb.DuckDBPyConnection) -> None:
    points.upgrade(database, [A])
    points.upgrade(database, [A, B])
    points.upgrade(database, [A, B])
    assert database.execute("SELECT * FROM a").fetchall() == [(1, None)]
    assert database.execute("SELECT number FROM schema_migrations").fetchall() == [(1,), (2,)]


def test_a_point_migration_that_fails_leaves_nothing(database: duckdb.DuckDBPyConnection) -> None:
    broken = Migration(2, "b", "CREATE TABLE b (x INTEGER); CREATE TABLE a (x INTEGER)")
    with pytest.raises(duckdb.CatalogException):
        points.upgrade(database, [A, broken])
    assert tables(database) == ["a", "schema_migrations"]
    points.upgrade(database, [A, B])


def test_a_changed_point_migration_is_refused(database: duckdb.DuckDBPyConnection) -> None:
    points.upgrade(database, [A])
    with pytest.raises(StoreError, match=r"migration 1 \(a\) is not the one that this database applied"):
        points.upgrade(database, [A._replace(sql="CREATE TABLE a (x BIGINT)"), B])
    assert database.execute("SELECT number FROM schema_migrations").fetchall() == [(1,)]


def test_a_newer_point_store_is_refused(database: duckdb.DuckDBPyConnection) -> None:
    points.upgrade(database, [A, B])
    with pytest.raises(StoreError, match=r"has migration 2, and this version .* up to 1: .* upgrade gradwatch"):
        points.upgrade(database, [A])


def test_the_metadata_database_has_its_tables(engine: sa.Engine) -> None:
    metadata.upgrade(engine)
    found = sa.inspect(engine)
    assert set(found.get_table_names()) == {
        "alembic_version", "attempts", "checkpoints", "events", "findings", "processes", "runs", "watch_state"
    }  # fmt: skip
    assert {column["name"] for column in found.get_columns("runs")} == set(RunInfo.__struct_fields__)
    assert set(StoredFinding.__struct_fields__) <= {column["name"] for column in found.get_columns("findings")}


def test_migrating_the_metadata_twice_changes_and_prints_nothing(
    engine: sa.Engine, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metadata.upgrade(engine)
    metadata.upgrade(engine)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("alembic").level == logging.NOTSET


def test_a_newer_metadata_database_is_refused(engine: sa.Engine) -> None:
    metadata.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"9999.*upgrade gradwatch"):
        metadata.upgrade(engine)


def test_a_metadata_migration_that_fails_leaves_nothing(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE watch_state (x INTEGER)"))
    with pytest.raises(sa.exc.OperationalError):
        metadata.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == ["watch_state"]


def test_the_metadata_schema_compiles_for_postgresql() -> None:
    out = io.StringIO()
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": out})
    scripts = ScriptDirectory(str(Path(metadata.__file__).parent))
    with Operations.context(context):
        for script in reversed(list(scripts.walk_revisions())):
            script.module.upgrade()
    assert re.findall(r"CREATE TABLE (\w+)", out.getvalue()) == [
        "runs", "findings", "watch_state", "attempts", "processes", "checkpoints", "events"
    ]  # fmt: skip
    assert "detectors BYTEA NOT NULL" in out.getvalue()
    assert "created DOUBLE PRECISION NOT NULL" in out.getvalue()


def test_a_point_store_of_the_first_schema_learns_how_far_its_runs_got(database: duckdb.DuckDBPyConnection) -> None:
    points.upgrade(database, points.known()[:1])
    database.execute("INSERT INTO series VALUES (1, 'r', 'loss', '', 'train', 1, '', '', '', '', '', -1)")
    database.execute("INSERT INTO series VALUES (2, 'r', 'loss', '', 'train', 2, '', '', '', '', '', -1)")
    database.execute("INSERT INTO points VALUES (1, 1, 900, 0, 1.5, 0), (2, 2, 30, 0, 1.5, 0), (2, 3, 20, 0, 1.5, 0)")
    database.execute("INSERT INTO batches VALUES ('r', 'a', 3, 0), ('empty', 'b', 0, 0)")
    points.upgrade(database)
    assert point_queries.reached(database, None) == {"r": (3, 2, 30, 0.0), "empty": (0, 1, None, 0.0)}


def test_findings_of_the_first_metadata_schema_keep_their_severity(engine: sa.Engine) -> None:
    metadata.upgrade(engine, "0001")
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO runs VALUES ('r', 'r', 'p', '', '', 0, 0, '{}', '[]')"))
        insert = "INSERT INTO findings VALUES ('f', 'r', 'x', 1, 5, :finding, 'open', 0, 0, NULL, 0)"
        connection.execute(sa.text(insert), {"finding": '{"severity": "critical"}'})
    metadata.upgrade(engine)
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT severity FROM findings")).scalar_one() == "critical"
