from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.store_contract import INF, LOSS, NAN, NORM, bits, block_of, losses, quiet_nan
from pyarrow import csv, parquet

from gradwatch.errors import StoreError
from gradwatch.schema import FILTERED, Point, RunInfo
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore

COLUMNS = [
    "sequence",
    "stream",
    "attempt",
    "metric",
    "stat",
    "source_key",
    "role",
    "agent",
    "policy",
    "scope",
    "rank",
    "step",
    "wall_time",
    "value",
    "flags",
]
LOGGED = [
    Point(LOSS, 2, 0.1, 1700000000.25, FILTERED),
    Point(NORM, 2, NAN),
    Point(NORM, 2, INF),
    Point(NORM, 1, -INF),
    Point(NORM, 2**62, -0.0),
    Point(LOSS, 3, 5e-324),
]


def read_csv(path: Path) -> Any:
    # Arrow takes the text `nan` for an absent value unless told that nothing stands for one.
    return csv.read_csv(path, convert_options=csv.ConvertOptions(null_values=[]))


READERS: dict[str, Callable[[Path], Any]] = {"parquet": parquet.read_table, "csv": read_csv}


@pytest.fixture
def store() -> Iterator[LocalStore]:
    store = open_store(None)
    store.put_run(RunInfo("r0", "other"))
    store.append("r0", losses(9.0))
    store.put_run(RunInfo("r1", "a"))
    store.append("r1", block_of(LOGGED[:3]))
    store.append("r1", block_of(LOGGED[3:]))
    yield store
    store.close()


@pytest.mark.parametrize("suffix", READERS)
def test_every_write_of_one_run_is_exported_in_order(store: LocalStore, tmp_path: Path, suffix: str) -> None:
    assert store.export("r1", tmp_path / f"out.{suffix}") == len(LOGGED)
    table = READERS[suffix](tmp_path / f"out.{suffix}")
    assert table.column_names == COLUMNS
    rows = table.to_pydict()
    assert rows["sequence"] == [1, 2, 3, 4, 5, 6]
    assert rows["step"] == [point.step for point in LOGGED]
    assert rows["flags"] == [point.flags for point in LOGGED]
    assert [bits(value) for value in rows["value"]] == [bits(point.value) for point in LOGGED]
    assert [bits(value) for value in rows["wall_time"]] == [bits(point.wall_time) for point in LOGGED]
    for axis in LOSS.__struct_fields__:
        assert rows[axis] == [getattr(point.series, axis) for point in LOGGED], axis


def test_parquet_keeps_the_payload_of_a_nan(store: LocalStore, tmp_path: Path) -> None:
    odd = [quiet_nan(1), 1.0, quiet_nan(2), 0.0, -0.0, 1.0]
    store.put_run(RunInfo("r2", "b"))
    store.append("r2", losses(*odd))
    store.export("r2", tmp_path / "out.parquet")
    values = parquet.read_table(tmp_path / "out.parquet").to_pydict()["value"]
    assert [bits(value) for value in values] == [bits(value) for value in odd]


def test_a_run_without_points_exports_the_header(store: LocalStore, tmp_path: Path) -> None:
    store.put_run(RunInfo("r2", "b"))
    assert store.export("r2", tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_text().strip() == ",".join(COLUMNS)


def test_an_export_replaces_the_file_and_leaves_no_other(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "it's.CSV").write_text("old")
    store.export("r1", tmp_path / "it's.CSV")
    assert [file.name for file in tmp_path.iterdir()] == ["it's.CSV"]
    assert len((tmp_path / "it's.CSV").read_text().splitlines()) == 7


def test_an_unknown_suffix_is_refused_with_those_that_work(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"out\.xlsx: .* use one of \.parquet, \.csv"):
        store.export("r1", tmp_path / "out.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_old_file(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run 'ghost'"):
        store.export("ghost", tmp_path / "out.csv")
    with pytest.raises(StoreError, match="check the folder"):
        store.export("r1", tmp_path / "absent" / "out.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StoreError, match="check the folder"):
        store.export("r1", tmp_path / "folder.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.csv"]
