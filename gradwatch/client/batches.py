"""Records made into batches: keys become series, values become points. Runs in the background thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradwatch.client.notices import Notices
from gradwatch.client.queue import Loss, Taken
from gradwatch.client.records import Context, Metrics, Record, Samples, Saved
from gradwatch.client.rollouts import MOST_COUNT, to_sample
from gradwatch.client.snapshot import Unusable
from gradwatch.client.steps import StepCounter
from gradwatch.client.text import clean
from gradwatch.client.values import Moments, read, read_number, wait
from gradwatch.metrics import resolve
from gradwatch.schema import NO_RANK, Block, Checkpoint, Event, Sample, Series
from gradwatch.wire import Batch, pack

MOST_SERIES = 50_000
MOST_KEY = 1_000
MOST_WEIGHT = 50_000
"""Points of one batch; samples count by their size."""


class _Place:
    """Where a key's values go, and the row that its series has in the table of block number `block`."""

    __slots__ = ("block", "id", "series", "stream")

    def __init__(self, series: Series) -> None:
        self.series = series
        self.stream = series.stream
        self.block = -1
        self.id = 0


class _Draft:
    """A batch in the making."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.points = Block()
        self.samples: list[Sample] = []
        self.checkpoints: list[Checkpoint] = []
        self.events: list[Event] = []
        self.weight = 0

    def __bool__(self) -> bool:
        return bool(len(self.points) or self.samples or self.checkpoints or self.events)


class Batcher:
    """Makes one process's batches. Batch n has the id `PROCESS-n`, so that a retry is known for one."""

    def __init__(self, process: str, rank: int, notices: Notices) -> None:
        self._process = process
        self._rank = rank
        self._notices = notices
        self._places: dict[Context, dict[str, _Place]] = {}
        self._series = 0
        self._steps = StepCounter()
        self._draft = _Draft(0)
        self.losses: list[Loss] = []
        self.formed = 0

    def batches(self, taken: Taken) -> Iterator[Batch]:
        """The batches of what waited in the queue; what was dropped there becomes an event."""
        self.losses += taken.lost
        self._steps.follow(taken.skipped)
        for record in taken.records:
            self._add_safely(record)
            self._draft.weight += record.weight
            if self._draft.weight >= MOST_WEIGHT:
                yield self._form()
        if self._draft:
            yield self._form()

    def empty(self, status: str = "") -> Batch:
        """A batch without content: it ends the process's part with `status`, or asks for findings and advice."""
        self.formed += 1
        return Batch(id=f"{self._process}-{self.formed}", process=self._process, status=status)

    def _form(self) -> Batch:
        draft, self._draft = self._draft, _Draft(self._draft.number + 1)
        self.formed += 1
        return Batch(
            id=f"{self._process}-{self.formed}",
            process=self._process,
            columns=pack(draft.points) if len(draft.points) else None,
            samples=draft.samples,
            checkpoints=draft.checkpoints,
            events=draft.events,
        )

    def _add_safely(self, record: Record) -> None:
        try:
            self._add(record)
        except Exception as error:  # noqa: BLE001 - the client boundary: one record does not take the others with it
            self._notices.trouble("reading what was logged", error)
            self.losses.append(Loss(record.weight, "it could not be read"))

    def _add(self, record: Record) -> None:
        if isinstance(record, Metrics):
            self._add_metrics(record)
        elif isinstance(record, Samples):
            self._add_samples(record)
        elif isinstance(record, Saved):
            self._draft.checkpoints.append(_checkpoint(record, self._steps.last("train")))
        else:
            self._draft.events.append(record.event)

    def _add_metrics(self, record: Metrics) -> None:
        wait(record.waits)
        given = record.step if record.step is None or type(record.step) is int else _late_step(record.step)
        places = self._places.setdefault(record.context, {})
        steps: dict[str, int] = {}
        for key, value in record.values.items():
            place = places.get(key) or self._place(places, record.context, key, "")
            if place is None:
                continue
            step = steps.get(place.stream)
            if step is None:
                step = steps[place.stream] = self._step(place.stream, given)
            if type(value) is float:
                self._point(place, step, value, record.wall_time)
            else:
                self._add_value(places, place, key, value, step, record)

    def _add_value(self, places: dict[str, _Place], place: _Place, key: str, value: Any, step: int, record: Metrics) -> None:
        got = read(value)
        if isinstance(got, float):
            self._point(place, step, got, record.wall_time)
        elif isinstance(got, Moments):
            for stat, number in got.items():
                name = f"{key}\x1f{stat}"
                at = places.get(name) or self._place(places, record.context, key, stat)
                if at is not None:
                    self._point(at, step, number, record.wall_time)
        elif isinstance(got, Unusable):
            self._notices.once(f"value:{key}", f"metric {key[:100]!r} is left out: it is {got.why}")
        else:
            self._notices.once(f"value:{key}", f"metric {key[:100]!r} is None at step {step}: nothing is stored for it there")

    def _point(self, place: _Place, step: int, value: float, wall_time: float) -> None:
        draft = self._draft
        if place.block != draft.number:
            place.id = draft.points.series_id(place.series)
            place.block = draft.number
        draft.points.add_id(place.id, step, value, wall_time)

    def _step(self, stream: str, given: int | None) -> int:
        if given is None:
            return self._steps.next(stream)
        self._steps.at(stream, given)
        return given

    def _place(self, places: dict[str, _Place], context: Context, key: str, stat: str) -> _Place | None:
        """Where the key's values go; None for a name that is refused, and for series beyond the limit."""
        name = f"{key}\x1f{stat}" if stat else key
        if self._series >= MOST_SERIES:
            self._notices.once("series", f"more than {MOST_SERIES:,} series: {key[:100]!r} and all later ones are dropped")
            self.losses.append(Loss(1, f"more than {MOST_SERIES:,} series"))
            return None
        text = clean(key)
        if not 0 < len(text) <= MOST_KEY:
            self._notices.once(
                "key", f"a key of {len(text):,} characters is left out ({text[:60]!r}…): 1 to {MOST_KEY:,} are allowed"
            )
            return None
        self._series += 1
        place = places[name] = _Place(self._series_of(context, text, stat))
        return place

    def _series_of(self, context: Context, key: str, stat: str) -> Series:
        axes = resolve(key)
        moment = f"{axes.stat}_{stat}" if stat and axes.stat not in ("", stat) else stat
        return Series(
            metric=axes.metric,
            source_key=key,
            stream=context.stream or axes.stream,
            stat=moment or axes.stat,
            role=context.role or axes.role,
            agent=context.agent or axes.agent,
            policy=context.policy or axes.policy,
            scope=context.scope or axes.scope,
            rank=axes.rank if axes.rank != NO_RANK else self._rank,
        )

    def _add_samples(self, record: Samples) -> None:
        given = self._steps.last("train") if record.step is None else record.step
        for row in record.rows:
            wait(row.waits)
            own = read_number(row.numbers.get("step"))
            step = int(own) if own is not None and abs(own) < MOST_COUNT else given
            self._draft.samples.append(to_sample(row, step, self._notices))


def _late_step(copied: Any) -> int:
    """The step that a tensor held."""
    step = read_number(copied)
    if step is None or not abs(step) < MOST_COUNT or not step.is_integer():
        raise ValueError(f"step={copied!r}: a step is a whole number")
    return int(step)


def _checkpoint(record: Saved, last: int) -> Checkpoint:
    wait(record.waits)
    read_all = ((clean(key), read_number(value)) for key, value in record.metrics.items())
    return Checkpoint(
        step=last if record.step is None else record.step,
        uri=clean(record.uri),
        policy=clean(record.policy),
        metrics={key: number for key, number in read_all if number is not None},
        wall_time=record.wall_time,
    )
