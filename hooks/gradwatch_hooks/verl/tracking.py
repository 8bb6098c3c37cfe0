"""`gradwatch` among the loggers of verl's `Tracking`, which has no registry: its list is extended and its methods are wrapped."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import gradwatch
from gradwatch.client.notices import LOGGER
from gradwatch.schema import FAILED, FINISHED
from gradwatch_hooks.watching.guard import Guard
from gradwatch_hooks.watching.own_methods import OwnMethods

BACKEND = "gradwatch"
MODULE = "verl.utils.tracking"
GUARD = Guard()


class TrackingSink:
    """One run, as verl's `Tracking` logs to it: the trainer's metrics at the trainer's steps, NaN and infinities as they are.

    The run is named after the experiment. The environment says where it goes (`GRADWATCH_URL`, `GRADWATCH_RUN_ID` ...). Raises
    SettingsError where that is wrong; later nothing here raises.
    """

    def __init__(self, project_name: str, experiment_name: str, config: Any = None) -> None:
        self.run = gradwatch.init(str(project_name), str(experiment_name), config=config)

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Log what verl measured at a step of its trainer."""
        self.run.log(data, step)

    def finish(self, exit_code: int = 0) -> None:
        """End the run, as failed where the trainer says so."""
        self.run.finish(FAILED if exit_code else FINISHED)


def install() -> bool:
    """Let `Tracking` know the logger `gradwatch`, in this process; a second time nothing happens. Returns whether it does.

    verl hides what a plugin raises, so nothing is raised: where verl is missing or has another shape, a warning says so.
    """
    try:
        module = import_module(MODULE)
        _extend(module.Tracking, getattr(module, "ValidationGenerationsLogger", None))
    except (ImportError, AttributeError, TypeError) as error:
        LOGGER.warning(
            "gradwatch: no logger 'gradwatch' for verl, whose Tracking was not found as expected (%s: %s); its logger 'file' "
            "writes what `gradwatch follow` reads",
            type(error).__name__,
            error,
        )
        return False
    return True


def _extend(tracking: Any, generations: Any) -> None:
    if BACKEND in tracking.supported_backend:
        return
    ends = [name for name in ("finish", "__del__") if name in vars(tracking)][:1]
    methods = OwnMethods(tracking)
    methods.wrap("__init__", _init)
    for name in ends:
        methods.wrap(name, _finish)
    if "log" in vars(generations or object):
        OwnMethods(generations).wrap("log", _log_generations)
    tracking.supported_backend = [*tracking.supported_backend, BACKEND]


def _init(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    """`Tracking.__init__`, with our sink among the loggers where it was asked for."""
    original(self, *args, **kwargs)
    asked = inspect.signature(original).bind(self, *args, **kwargs).arguments
    backends = asked.get("default_backend", ())
    if BACKEND in ([backends] if isinstance(backends, str) else backends):
        sink = TrackingSink(asked.get("project_name", ""), asked.get("experiment_name", ""), asked.get("config"))
        with GUARD.within("Tracking.__init__"):
            self.logger[BACKEND] = sink


def _finish(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Tracking.finish`, which closes the loggers that verl knows, or `__del__` in versions that have no other end."""
    try:
        return original(self, *args, **kwargs)
    finally:
        with GUARD.within("Tracking.finish"):
            sink = getattr(self, "logger", {}).pop(BACKEND, None)
            if sink is not None:
                sink.finish(args[0] if args else kwargs.get("exit_code", 0))


def _log_generations(original: Callable[..., Any], self: Any, loggers: Any, samples: Any, step: Any, **kwargs: Any) -> Any:
    """`ValidationGenerationsLogger.log`: samples of (prompt, output, score) from a validation."""
    result = original(self, loggers, samples, step, **kwargs)
    if BACKEND in loggers:
        with GUARD.within("ValidationGenerationsLogger.log"):
            gradwatch.log_samples([_sample(one) for one in samples], step)
    return result


def _sample(row: Sequence[Any]) -> dict[str, Any]:
    prompt, output, score = row[:3]
    return {"group": "validation", "prompt": prompt, "output": output, "rewards": {"score": score}}
