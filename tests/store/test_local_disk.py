import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from contracts.journal_contract import JournalContract
from contracts.store_contract import INF, NAN, StoreContract, bits, finding, losses, quiet_nan, replayed

from gradwatch.errors import StoreError
from gradwatch.schema import Block, RunInfo, Sample, Series
from gradwatch.store import open_store
from gradwatch.store.base import Append, WatchState
from gradwatch.store.local import LocalStore


class TestLocalDisk(StoreContract, JournalContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LocalStore]:
        store = open_store(tmp_path / "new" / "store")
        yield store
        store.close()


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    odd = [NAN, quiet_nan(0x123), INF, -INF, -0.0, 1.0]
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        store.append("r1", losses(*odd), [Sample(0)], "b1")
        store.put_watch("r1", WatchState(6, {"d": b"x"}), [finding()])
        findings = store.findings("r1")
    with closing(open_store(tmp_path)) as store:
        assert store.runs() == [RunInfo("r1", "a")]
        assert [bits(point.value) for point in replayed(store, "r1")] == [bits(value) for value in odd]
        assert store.samples("r1") == [Sample(0)]
        assert store.watch("r1") == WatchState(6, {"d": b"x"})
        assert store.findings("r1") == findings


def test_a_reopened_store_goes_on_counting(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        store.append("r1", losses(1.0), [Sample(1, output="first")], "b1")
    with closing(open_store(tmp_path)) as store:
        assert store.append("r1", losses(1.0), batch_id="b1") == 1
        assert store.append("r1", losses(2.0, first_step=1), [Sample(1, output="second")], "b2") == 2
        assert [curve.values for curve in store.curves("r1")] == [[1.0, 2.0]]
        assert [sample.output for sample in store.samples("r1")] == ["first", "second"]


def test_a_failed_append_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        with pytest.raises(duckdb.Error):
            store.append("r1", losses(1.0), [Sample(2**70)], "b1")
        assert replayed(store, "r1") == []
        assert store.append("r1", losses(5.0), [], "b1") == 1
        assert [curve.values for curve in store.curves("r1")] == [[5.0]]


def test_what_people_said_of_a_finding_stays_until_it_closes(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        store.put_watch("r1", WatchState(1), [finding()])
        with closing(sqlite3.connect(tmp_path / "metadata.sqlite")) as database, database:
            database.execute("UPDATE findings SET status = 'acknowledged', silenced_until = 99.5, false_alarm = 1")
        store.put_watch("r1", WatchState(2), [finding(end_step=20)])
        (kept,) = store.findings("r1")
        store.put_watch("r1", WatchState(3), [finding(end_step=20, closed=True)])
        (resolved,) = store.findings("r1")
    assert (kept.status, kept.silenced_until, kept.false_alarm) == ("acknowledged", 99.5, True)
    assert kept.finding.end_step == 20
    assert (resolved.status, resolved.silenced_until, resolved.false_alarm) == ("resolved", 99.5, True)


def test_a_finding_sent_again_unchanged_is_not_updated(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        store.put_watch("r1", WatchState(1), [finding()])
        before = store.findings("r1")
        store.put_watch("r1", WatchState(2), [finding()])
        assert store.findings("r1") == before


def test_state_and_findings_are_committed_together(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        store.put_run(RunInfo("r1", "a"))
        store.put_watch("r1", WatchState(1), [])
        with pytest.raises(TypeError):
            store.put_watch("r1", WatchState(2), [finding(evidence={"key": {(1, 2): "not JSON"}})])
        assert store.watch("r1") == WatchState(1)


def test_files_stay_readable_by_the_previous_duckdb_series(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with closing(duckdb.connect(tmp_path / "points.duckdb", read_only=True)) as database:
        sql = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE path LIKE '%points.duckdb'"
        assert "v1.5.0" in str(database.execute(sql).fetchall())


def test_a_folder_opens_once_in_a_process(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)), pytest.raises(StoreError, match="already open in this process"):
        open_store(tmp_path / ".." / tmp_path.name)
    open_store(tmp_path).close()


def test_a_folder_with_odd_characters_works_and_one_with_a_question_mark_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "50% 'é;").close()
    with pytest.raises(StoreError, match="has a question mark"):
        open_store(tmp_path / "why?")


OPEN = "import sys; from pathlib import Path; from gradwatch.store import open_store; open_store(Path(sys.argv[1]))"


def test_a_folder_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)):
        other = subprocess.run([sys.executable, "-c", OPEN, tmp_path], capture_output=True, text=True, check=False)
    assert "StoreError" in other.stderr
    assert "open in another process, and only one can hold it: stop that process" in other.stderr


@pytest.mark.parametrize("file", ["points.duckdb", "metadata.sqlite"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreError, match=rf"{file} cannot be opened .* restore it from a backup"):
        open_store(tmp_path)
    (tmp_path / file).unlink()
    open_store(tmp_path).close()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is not a folder"):
        open_store(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot create the store's folder"):
        open_store(tmp_path / "file" / "below")


APPEND_FOREVER = """
import itertools, sys
from pathlib import Path
from gradwatch.schema import Block, RunInfo, Series
from gradwatch.store import open_store

store = open_store(Path(sys.argv[1]))
store.put_run(RunInfo("r1", "a"))
for batch in itertools.count():
    block = Block()
    for step in range(100):
        block.add(Series("loss"), step, float(batch))
    store.append("r1", block, batch_id=str(batch))
    print(batch, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", APPEND_FOREVER, tmp_path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acked = [int(writer.stdout.readline()) for _ in range(30)]
        writer.send_signal(signal.SIGKILL)
        acked += map(int, writer.stdout.read().split())
    with closing(open_store(tmp_path)) as store:
        kept = [point.value for point in replayed(store, "r1")]
        # The batch in flight may be committed and not acknowledged; no batch is there in part.
        batches = len(acked) + (len(kept) > 100 * len(acked))
        assert kept == [float(batch) for batch in range(batches) for _ in range(100)]
        assert store.append("r1", Block(), batch_id=str(acked[-1])) == 100 * batches


def test_runs_whose_numbers_were_let_go_are_numbered_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.store.duckdb.MOST_TAILS", 2)
    store = open_store(tmp_path)
    runs = [f"r{number}" for number in range(5)]
    for run in runs:
        store.put_run(RunInfo(run, run))
    points = Block()
    points.add(Series("loss"), 1, 1.0)
    for turn in range(3):
        done = store.append_group([Append(run, points, (), f"b{turn}") for run in runs])
        assert [one.sequence for one in done] == [turn + 1] * 5
        assert all(one.duplicate for one in store.append_group([Append(run, points, (), f"b{turn}") for run in runs]))
    assert [len(store.spans(run)) for run in runs] == [1] * 5
    store.close()
