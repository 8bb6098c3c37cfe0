"""Lightning's logger: what `self.log` records, at Lightning's own step."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from gradwatch.client.run import Run
from gradwatch_hooks.own_run import OwnRun, mark_end
from gradwatch_hooks.pl.names import Logger, rank_zero_only


class GradwatchLogger(Logger):
    """Logs to `run`, or to a run that it opens on the first process with `settings`, those of `gradwatch.init`.

        trainer = Trainer(logger=GradwatchLogger(project="maze"), callbacks=[GradwatchCallback()])

    A key's prefix picks its stream (`val_loss` is of the stream `eval`); beside a `GradwatchCallback`, what is logged while
    Lightning validates is of that stream whatever its key. Hyperparameters become the run's configuration. Raises SettingsError
    where the run cannot be opened.
    """

    def __init__(self, run: Run | None = None, **settings: Any) -> None:
        super().__init__()
        self.stream: str | None = None
        self._own = OwnRun(run, settings)

    @property
    def experiment(self) -> Run:
        """The run, opened at the first use."""
        return self._own.run

    @property
    def name(self) -> str:
        """The run's name."""
        return self._own.run.name

    @property
    def version(self) -> str:
        """The run's id."""
        return self._own.run.id

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Keep the configuration."""
        self._own.configure(params if isinstance(params, Mapping) else vars(params))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics at a step."""
        self._own.run.log(metrics, step, stream=self.stream)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Wait until everything is durable. The run stays open: a test may follow the training."""
        error = sys.exc_info()[1]
        if status == "failed" and error is not None:
            mark_end(self._own.run, error)
        self._own.flush()
