"""The `Query` over HTTP: a collector answers as its own store would, to the last bit."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from gradwatch.client.answers import (
    Attempts,
    Best,
    Checkpoints,
    Curves,
    Events,
    Findings,
    Runs,
    Samples,
    SampleSteps,
    Spans,
    Tail,
)
from gradwatch.client.http import Http
from gradwatch.errors import UnavailableError
from gradwatch.schema import (
    Attempt,
    BestStep,
    Block,
    Checkpoint,
    Curve,
    Event,
    RunState,
    Sample,
    Selection,
    Series,
    Span,
    StoredFinding,
    Trace,
)
from gradwatch.wire import MSGPACK, VERSION

ALL = Selection()
MOST_NAMED = 200
"""Metrics and roles that a question names; beyond, it asks for all and leaves out the others here, since addresses are limited."""
TAIL_POINTS = 50_000

Answer = TypeVar("Answer")


class HttpQuery:
    """Asks a collector such as http://127.0.0.1:8420. UnavailableError where none answers, RefusedError 404 for an unknown run."""

    def __init__(self, url: str, api_key: str = "", timeout: float = 60.0) -> None:
        self._http = Http(url, api_key, timeout)

    def states(self, project: str | None = None) -> list[RunState]:
        """Every run as it stands, the newest first."""
        return self._get("", Runs, {"project": project}).runs

    def state(self, run: str) -> RunState:
        """One run as it stands."""
        return self._get(_path(run), RunState)

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts, the first one first."""
        return self._get(_path(run, "attempts"), Attempts).attempts

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step."""
        return [Span(one.series, one.first_step, one.last_step) for one in self._get(_path(run, "series"), Spans).series]

    def curves(self, run: str, selection: Selection = ALL) -> list[Curve]:
        """The selected series, each with the last write of every step."""
        found = self._get(_path(run, "curves"), Curves, _asked(selection)).curves
        kept = (one for one in found if _is_selected(one.series, selection))
        return [Curve(one.series, one.steps, one.values, one.wall_times) for one in kept]

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series as arrays, in the order in which they first came; one is asked for at a time."""
        for span in self.spans(run):
            if span.series in wanted:
                yield self._trace(run, span.series)

    def _trace(self, run: str, series: Series) -> Trace:
        selection = Selection(metrics=(series.metric,), roles=(series.role,), stream=series.stream, attempt=series.attempt)
        curve = next(one for one in self.curves(run, selection) if one.series == series)
        return Trace(series, array("q", curve.steps), array("d", curve.values))

    def replay(self, run: str, after: int = 0, size: int = TAIL_POINTS) -> Iterator[tuple[int, Block]]:
        """The run's points in the order in which they were committed, rewrites included, as (last sequence number, block)."""
        while True:
            tail = self._get(_path(run, "tail"), Tail, {"after": after, "limit": size})
            if not tail.points:
                return
            after = tail.after
            yield after, _block(tail)

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The samples of a step, role and attempt (None: of all), by step and in the order of their arrival; the first `limit`."""
        asked = {"step": step, "role": role, "limit": limit, "attempt": attempt}
        return self._get(_path(run, "samples"), Samples, asked).samples

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""
        return self._get(_path(run, "sample-steps"), SampleSteps, {"role": role}).steps

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""
        return self._get(_path(run, "checkpoints"), Checkpoints).checkpoints

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""
        return self._get(_path(run, "findings"), Findings).findings

    def events(self, run: str) -> list[Event]:
        """What happened to the run, in order."""
        return self._get(_path(run, "events"), Events).events

    def best(self, run: str) -> BestStep | None:
        """The step worth keeping, or None where nothing says which is better."""
        return self._get(_path(run, "best"), Best).best

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._http.close()

    def __enter__(self) -> HttpQuery:
        """The query itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def _get(self, path: str, kind: type[Answer], asked: dict[str, Any] | None = None) -> Answer:
        body = self._http.request("GET", f"/api/{VERSION}/runs{path}", headers={"Accept": MSGPACK}, params=asked)
        try:
            return msgspec.msgpack.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnavailableError(
                f"{self._http.url} does not answer as a collector of this version does: check GRADWATCH_URL, or upgrade ({error})"
            ) from error


def _path(run: str, what: str = "") -> str:
    return f"/{quote(run, safe='')}{f'/{what}' if what else ''}"


def _asked(selection: Selection) -> dict[str, Any]:
    """The selection as parameters; what they cannot say is left to `_is_selected`."""
    return {
        "metric": _named(selection.metrics),
        "role": _named(selection.roles),
        "scope": _named(selection.scopes),
        "stream": selection.stream,
        "attempt": selection.attempt,
        "first_step": selection.first_step,
        "last_step": selection.last_step,
        "buckets": selection.buckets or None,
    }


def _named(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None or len(names) > MOST_NAMED else list(names)


def _is_selected(series: Series, selection: Selection) -> bool:
    of_metric = selection.metrics is None or series.metric in selection.metrics
    of_role = selection.roles is None or series.role in selection.roles
    return of_metric and of_role and (selection.scopes is None or series.scope in selection.scopes)


def _block(tail: Tail) -> Block:
    block = Block()
    for one in tail.series:
        block.series_id(one)
    for at, step, value, wall_time, flags in tail.points:
        block.add_id(at, step, value, wall_time, flags)
    return block
