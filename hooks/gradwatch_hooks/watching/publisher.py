"""What becomes of a record: the run that it is logged to, and what is said of it once on the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwatch.client.notices import Notices
from gradwatch.client.run import Run
from gradwatch.client.start import newest
from gradwatch.errors import SettingsError
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.held_samples import with_influence
from gradwatch_hooks.watching.record import StepRecord, to_log
from gradwatch_hooks.watching.sequence_figures import inflation


def run_to_log_to(run: Run | None, may_be_none: bool) -> Run | None:
    """The run that was given, else the newest. Raises SettingsError where it is finished, or there is none and one is needed."""
    if run is None and may_be_none:
        return None
    chosen = run or newest()
    if chosen.is_over:
        raise SettingsError(f"run {chosen.id} is finished: call gradwatch.init() before watch()")
    return chosen


class Publisher:
    """Logs for one set of weights. Of several processes that share them, one writes what is equal on all (`is_writer`)."""

    def __init__(self, run: Run | None, policy: str, is_writer: bool, notices: Notices) -> None:
        self._run = run
        self._policy = policy
        self._is_writer = is_writer
        self._notices = notices

    def log(
        self, metrics: Mapping[str, Any], step: int, *, role: str = "", agent: str = "", scope: str = "", stream: str | None = None
    ) -> None:
        """`Run.log` under the policy."""
        if self._run is not None:
            self._run.log(metrics, step, role=role, agent=agent, policy=self._policy, scope=scope, stream=stream)

    def by_role(self, values: Mapping[str, Mapping[str, float]], step: int) -> None:
        """Log this process's own numbers by role."""
        for role, metrics in values.items():
            self.log(metrics, step, role=role)

    def update_ratios(self, ratios: Mapping[str, float], step: int) -> None:
        """Log how far a step moved the weights, by module group."""
        if self._is_writer:
            for scope, ratio in ratios.items():
                self.log({"update_to_weight_ratio": ratio}, step, scope=scope)

    def record(self, record: StepRecord, samples: Sequence[Mapping[str, Any]]) -> None:
        """Log a record and its samples, and say once for each reason why something is not measured."""
        self._say(record)
        if self._run is None:
            return
        if self._is_writer:
            for metrics, role, agent, scope in to_log(record):
                self.log(metrics, record.step, role=role, agent=agent, scope=scope)
            if record.nonfinite:
                self._run.log_event(record.nonfinite, kind="nonfinite", step=record.step)
        if samples:
            influence = record.roles.influence if isinstance(record.roles, RoleGradients) else ()
            self._run.log_samples(with_influence(samples, influence), record.step)
            if isinstance(record.roles, RoleGradients):
                self.by_role(inflation(record.roles, samples), record.step)

    def _say(self, record: StepRecord) -> None:
        if record.why:
            self._notices.once(f"norm:{record.why}", f"gradient norm unavailable at step {record.step}: {record.why}")
        if isinstance(record.roles, Unavailable):
            reason = record.roles.reason
            self._notices.once(f"roles:{reason[:60]}", f"role gradients unavailable at step {record.step}: {reason}")
