from collections.abc import Iterator

import pytest
from contracts.journal_contract import JournalContract
from contracts.store_contract import StoreContract, losses, replayed

from gradwatch.schema import RunInfo
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore


class TestLocalMemory(StoreContract, JournalContract):
    @pytest.fixture
    def store(self) -> Iterator[LocalStore]:
        store = open_store(None)
        yield store
        store.close()


def test_two_stores_in_memory_share_nothing() -> None:
    one, other = open_store(None), open_store(None)
    one.put_run(RunInfo("r1", "a"))
    assert other.runs() == []
    one.close()
    other.close()


def test_a_block_of_ten_thousand_points_goes_through() -> None:
    store = open_store(None)
    store.put_run(RunInfo("r1", "a"))
    assert store.append("r1", losses(*map(float, range(10_000)))) == 10_000
    assert [point.value for point in replayed(store, "r1", size=999)] == [float(i) for i in range(10_000)]
    store.close()
