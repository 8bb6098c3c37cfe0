from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from gradwatch.errors import StoreError
from gradwatch.schema import Block, Curve, RunInfo, RunState, Selection, Series
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch_dashboards.reader import Reader

LOSS = Selection(metrics=("loss",))


class Counting:
    """A store that counts what it is asked, and on which thread."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()
        self.threads: set[int] = set()

    def __getattr__(self, name: str) -> object:
        def ask(*arguments: object) -> object:
            self.asked[name] += 1
            self.threads.add(threading.get_ident())
            return getattr(self._store, name)(*arguments)

        return ask


@pytest.fixture
def store() -> Iterator[LocalStore]:
    one = open_store(None)
    one.put_run(RunInfo("r1", "dr-mas"))
    log(one, 0)
    yield one
    one.close()


def log(store: LocalStore, step: int) -> None:
    block = Block()
    block.add(Series("loss"), step, 0.5, 1.0)
    store.append("r1", block)


def state(store: LocalStore) -> RunState:
    return store.state("r1")


def test_five_viewers_of_a_run_cost_one_query(store: LocalStore) -> None:
    counting = Counting(store)
    reader = Reader(counting)  # type: ignore[arg-type]

    async def look() -> list[Curve]:
        return await reader.curves(await reader.state("r1"), LOSS)

    async def five() -> list[list[Curve]]:
        return await asyncio.gather(*(look() for _ in range(5)))

    assert [[one.steps for one in curves] for curves in asyncio.run(five())] == [[[0]]] * 5
    assert counting.asked == {"state": 1, "curves": 1}


def test_no_query_runs_on_the_event_loop(store: LocalStore) -> None:
    counting = Counting(store)
    reader = Reader(counting)  # type: ignore[arg-type]

    async def look() -> int:
        now = await reader.state("r1")
        await asyncio.gather(reader.states(), reader.findings("r1"), reader.attempts(now), reader.spans(now))
        await reader.checkpoints(now)
        await asyncio.gather(reader.samples(now, 1, None, 5, 1), reader.sampled_steps(now, None), reader.curves(now, LOSS))
        return threading.get_ident()

    assert asyncio.run(look()) not in counting.threads


def test_what_was_read_is_kept_until_the_run_moves_on(store: LocalStore) -> None:
    counting = Counting(store)
    reader = Reader(counting)  # type: ignore[arg-type]

    async def twice() -> list[list[int]]:
        old = state(store)
        steps = [(await reader.curves(old, LOSS))[0].steps, (await reader.curves(old, LOSS))[0].steps]
        log(store, 1)
        return [*steps, (await reader.curves(state(store), LOSS))[0].steps]

    assert asyncio.run(twice()) == [[0], [0], [0, 1]]
    assert counting.asked["curves"] == 2


def test_a_failure_is_not_kept(store: LocalStore) -> None:
    reader = Reader(store)

    async def look() -> str:
        with pytest.raises(StoreError):
            await reader.state("later")
        store.put_run(RunInfo("later", "came later"))
        return (await reader.state("later")).info.name

    assert asyncio.run(look()) == "came later"


def test_a_viewer_who_leaves_takes_nothing_from_the_others(store: LocalStore) -> None:
    reader = Reader(store)

    async def look() -> str:
        leaving = asyncio.create_task(reader.state("r1"))
        staying = asyncio.create_task(reader.state("r1"))
        await asyncio.sleep(0)
        leaving.cancel()
        return (await staying).info.id

    assert asyncio.run(look()) == "r1"
