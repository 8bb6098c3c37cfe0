"""gradwatch: gradient-health observability for multi-agent LLM reinforcement learning.

Importing this package loads none of its parts and no third-party package, so a training script pays nothing for it until `init`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gradwatch.client.run import Run
    from gradwatch.client.transport import Transport
    from gradwatch.schema import Advice

__version__ = "0.1.0"

__all__ = ["Run", "advice", "finish", "flush", "init", "log", "log_checkpoint", "log_event", "log_samples"]


def init(
    project: str | None = None,
    name: str | None = None,
    *,
    id: str | None = None,
    resume: str = "allow",
    config: Any = None,
    roles: Any = None,
    url: str | None = None,
    api_key: str | None = None,
    mode: str | None = None,
    dir: str | Path | None = None,
    data: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Open a run, or join or resume the one that `id` (or GRADWATCH_RUN_ID) names; the newest run is what `log` logs to.

    `config` is any mapping, namespace or dataclass; `roles` maps each role to what is to be known of it (`policy`, `agents` ...).
    `mode` is `online`, `offline` (to the spool folder `dir`, for `gradwatch sync`), `inprocess` (to a store in `data`, with no
    collector) or `disabled`. `settings` are further rows of the settings table. `quiet` leaves out the lines on stderr.

    With `resume="allow"` nothing waits for the network. `must` and `never` ask the collector: RefusedError where the run does not
    exist, or does; UnavailableError where no collector answers. SettingsError where a setting is wrong.
    """
    from gradwatch.client.start import start  # noqa: PLC0415 - `import gradwatch` stays thin
    from gradwatch.settings import load_settings  # noqa: PLC0415

    loaded = load_settings(project=project, run_id=id, url=url, api_key=api_key, mode=mode, dir=dir, data=data, **settings)
    return start(loaded, name, resume, config, roles, quiet, _in_process)


def log(metrics: Mapping[str, Any], step: int | None = None, **axes: Any) -> None:
    """`Run.log` of the newest active run."""
    _newest().log(metrics, step, **axes)


def log_samples(samples: Iterable[Any], step: int | None = None) -> None:
    """`Run.log_samples` of the newest active run."""
    _newest().log_samples(samples, step)


def log_checkpoint(uri: Any, step: int | None = None, **facts: Any) -> None:
    """`Run.log_checkpoint` of the newest active run."""
    _newest().log_checkpoint(uri, step, **facts)


def log_event(message: str, **facts: Any) -> None:
    """`Run.log_event` of the newest active run."""
    _newest().log_event(message, **facts)


def advice() -> list[Advice]:
    """`Run.advice` of the newest active run."""
    return _newest().advice()


def flush(timeout: float | None = None) -> bool:
    """`Run.flush` of the newest active run."""
    return _newest().flush(timeout)


def finish(status: str = "finished") -> None:
    """`Run.finish` of the newest active run."""
    _newest().finish(status)


def _newest() -> Run:
    from gradwatch.client.start import newest  # noqa: PLC0415

    return newest()


def _in_process(data: Path) -> Transport:
    from gradwatch.collector.inprocess import InProcess  # noqa: PLC0415

    return InProcess(data)


def __getattr__(name: str) -> Any:
    if name == "Run":
        from gradwatch.client.run import Run  # noqa: PLC0415

        return Run
    raise AttributeError(f"module 'gradwatch' has no attribute {name!r}")
