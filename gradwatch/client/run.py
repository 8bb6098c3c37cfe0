"""`Run`: what a training loop holds and logs to."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from time import time
from types import TracebackType
from typing import Any, Never

from gradwatch.client import lifecycle
from gradwatch.client.notices import Notices, harmless, print_line
from gradwatch.client.records import NO_CONTEXT, Context, Happened, Metrics, Samples, Saved
from gradwatch.client.rollouts import copy_row
from gradwatch.client.snapshot import snapshot
from gradwatch.client.text import clean, cut, error_line, name, plain
from gradwatch.client.worker import Backlog, Worker
from gradwatch.schema import FAILED, FINISHED, INTERRUPTED, STATUSES, Advice, Event

MOST_STEP = 2**63 - 1


class Run:
    """A run, as this process takes part in it. No call raises into the training, and none waits but `flush` and `finish`.

    What is logged is copied at once (device tensors on their device) and read in a background thread. A wrong call is told once
    on the log and skipped; under pytest it raises. Use a run in a `with` statement, or call `finish` at its end; a process that
    ends without it ends its part by itself.
    """

    def __init__(
        self, run_id: str, title: str, begin: Callable[[], Worker] | None, notices: Notices, flush_seconds: float = 10.0
    ) -> None:
        self.id = run_id
        self.notices = notices
        self._name = title
        self._begin = begin
        self.flush_seconds = flush_seconds
        self._worker: Worker | None = None
        self._ended: Worker | None = None
        self._starting = threading.RLock()
        self._ended_as = FINISHED
        self._ender = 0
        self.is_over = False

    @property
    def name(self) -> str:
        """The run's name, as the collector has it once it has answered."""
        worker = self._worker or self._ended
        opened = worker.outcome.opened if worker is not None else None
        return opened.name if opened is not None and opened.name else self._name

    @property
    def url(self) -> str:
        """The page of the run, "" where there is none."""
        worker = self._worker or self._ended
        return worker.outcome.page if worker is not None else ""

    @property
    def dropped(self) -> int:
        """The number of values that this process logged and that never reach the collector."""
        worker = self._worker or self._ended
        return worker.dropped if worker is not None else 0

    @property
    def backlog(self) -> Backlog:
        """What this process logged and what has not reached the collector yet."""
        worker = self._worker or self._ended
        return worker.backlog if worker is not None else Backlog()

    def log(
        self,
        metrics: Mapping[str, Any],
        step: int | None = None,
        *,
        role: str = "",
        agent: str = "",
        policy: str = "",
        scope: str = "",
        stream: str | None = None,
        wall_time: float | None = None,
        **unknown: Never,
    ) -> None:
        """Log metrics at a step of their stream (the key's prefix picks it: `eval/accuracy`; `stream` overrides that).

        A value is a number, or many (a list, array or tensor), of which mean, std (ddof=0), min and max over the finite ones,
        count and nonfinite are kept. Nested mappings become keys with slashes; None is nothing logged. `step` None is the
        stream's last step plus one, from 0: give the step where one step is logged in several calls. Steps may come in any order.
        `role`, `agent`, `policy` and `scope` say what the metrics belong to, before what a key says. `wall_time` is in Unix
        seconds. A keyword that there is not is an error like any other: told once, and the call is skipped.
        """
        # The hot path: no decorator, no record built twice.
        try:
            worker = self._worker or self._live()
            if worker is None:
                return
            if unknown:
                raise TypeError(f"log: no argument {next(iter(unknown))!r}")
            values, waits, weight = snapshot(metrics)
            context = NO_CONTEXT
            if role or agent or policy or scope or stream:
                context = Context(*map(name, (role, agent, policy, scope, stream or "")))
            if type(step) is not int or not -MOST_STEP <= step <= MOST_STEP:
                step, waits = _step(step, waits)
            wall_time = time() if wall_time is None else float(wall_time)
            worker.queue.put(Metrics(values, step, wall_time, context, waits, weight))
        except Exception as error:  # noqa: BLE001 - the client boundary
            self.notices.caught("Run.log", error)

    @harmless(None)
    def log_samples(self, samples: Iterable[Any], step: int | None = None) -> None:
        """Log rollouts: mappings with the fields of `Sample`, or `Sample`s. A sample's own `step` comes before `step`.

        A prompt or output beyond 100,000 characters is cut, its end says so, and the sample's flag 1 is set. `rewards` is a mapping
        of components or one number; a reward that is None is NaN.
        """
        worker = self._worker or self._live()
        if worker is not None:
            rows = [copy_row(row) for row in samples]
            worker.queue.put(Samples(rows, _plain_step(step), sum(row.weight for row in rows)))

    @harmless(None)
    def log_checkpoint(
        self, uri: Any, step: int | None = None, *, metrics: Mapping[str, Any] | None = None, policy: str = ""
    ) -> None:
        """Log where weights were saved; `metrics` are the values that are known of them, `step` None is the last one logged."""
        worker = self._worker or self._live()
        if worker is not None:
            values, waits, _ = snapshot(metrics or {})
            worker.queue.put(Saved(clean(uri), _plain_step(step), name(policy), values, waits, time()))

    @harmless(None)
    def log_event(
        self, message: str, *, kind: str = "note", step: int | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Log something that happened beside the numbers: a skipped step, a changed setting."""
        worker = self._worker or self._live()
        if worker is not None:
            event = Event(kind=name(kind), message=cut(message), step=_plain_step(step), wall_time=time(), facts=plain(facts or {}))
            worker.queue.put(Happened(event))

    def advice(self) -> list[Advice]:
        """What the collector advises as of its last answer; empty where it has not answered, and offline. Never waits."""
        worker = self._worker or self._ended
        return list(worker.outcome.advice) if worker is not None else []

    @harmless(False)
    def flush(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until what was logged is durable (offline: in the spool); whether it is."""
        worker = self._worker
        return worker is None or worker.flush(self.flush_seconds if timeout is None else timeout)

    @harmless(None)
    def finish(self, status: str = FINISHED, *, within: float | None = None) -> None:
        """End this process's part: `finished`, `interrupted` or `failed`; waits at most `within` seconds (`flush_seconds`).

        What cannot be delivered stays in the spool, and a line on stderr says how to send it. A second call does nothing.
        """
        me = threading.get_ident()
        with self._starting:
            first, self.is_over = not self.is_over, True
            self._ended, self._worker = self._worker or self._ended, None
            # A signal's handler that interrupts the wait below must not wait again: what is left goes to the spool at once.
            seconds = 0.0 if self._ender == me else self.flush_seconds if within is None else max(0.0, within)
            self._ender = me
        final = max(status if status in STATUSES[1:] else FINISHED, self._ended_as, key=STATUSES.index)
        try:
            if self._ended is not None:
                self._ended.end(final, seconds)
        finally:
            # Not before: until then a signal's handler has to know of it.
            lifecycle.forget(self)
        if first and self._ended is not None:
            self._say_end(self._ended, final)
        if status not in STATUSES[1:]:
            raise ValueError(f"finish({status!r}): the status is one of {', '.join(STATUSES[1:])}; taken as {final}")

    @harmless(None)
    def mark(self, status: str, message: str) -> None:
        """The process is about to end as `status`: it is logged now, and `finish` will say no less. A second time nothing is."""
        is_known, self._ended_as = status == self._ended_as, max(status, self._ended_as, key=STATUSES.index)
        if self._worker is not None and not is_known:
            self._worker.put(Happened(Event(kind=status, message=cut(message, 1000), wall_time=time())))

    def after_fork(self) -> None:
        """Go on as a forked child: without the parent's threads, and as a process of its own once it logs."""
        self._starting = threading.RLock()
        lifecycle.keep_forever(self._worker)
        self._worker = None
        self._ended_as = FINISHED
        self.notices.quiet = True

    def __enter__(self) -> Run:
        """The run itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Finish: as failed after an exception, as interrupted after a KeyboardInterrupt."""
        status = FINISHED
        if isinstance(error, KeyboardInterrupt):
            status = INTERRUPTED
        elif error is not None and not (isinstance(error, SystemExit) and not error.code):
            status = FAILED
        if error is not None and status != FINISHED:
            self.mark(status, error_line(error))
        self.finish(status)

    def begin(self) -> None:
        """Start this process's part without waiting for its first call."""
        self._live()

    def _live(self) -> Worker | None:
        """The worker of this process, started at its first use; None where there is nothing to log to."""
        if self._begin is None:
            return None
        with self._starting:
            if self.is_over:
                self.notices.once("over", f"run {self.id} is finished in this process: what is logged to it now is left out")
                return None
            if self._worker is None:
                self._worker = self._begin()
                self._worker.start()
                lifecycle.watch_exit()
            return self._worker

    def _say_end(self, worker: Worker, status: str) -> None:
        waiting = worker.waiting
        self.notices.say(worker.outcome.summary(self.name, status, waiting, str(worker.folder)))
        if waiting and not (worker.is_offline and self.notices.quiet):
            print_line(f"what run {self.id} has not sent waits in {worker.folder}: `gradwatch sync {worker.folder}` sends it")


def _step(step: Any, waits: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A step of another type than int: one on a device is copied there, and read later."""
    if getattr(step, "is_cuda", False):
        copied, more, _ = snapshot({"step": step})
        return copied["step"], waits + more
    return _plain_step(step), waits


def _plain_step(step: Any) -> int | None:
    if step is None:
        return None
    try:
        whole = operator.index(step)
    except TypeError:
        if not isinstance(step, Real) or not float(step).is_integer():
            raise
        whole = int(float(step))
    if isinstance(step, bool) or not -MOST_STEP <= whole <= MOST_STEP:
        raise ValueError(f"step={step!r}: a step is a whole number of at most 64 bits")
    return whole
