"""What a training loop is advised to do about the findings that are open. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradwatch.schema import ROLLBACK, SKIP_STEP, STOP, Advice, Checkpoint, Finding, StoredFinding

SPIKE = "norm_spike"


def advise(
    findings: Sequence[StoredFinding],
    checkpoints: Sequence[Checkpoint],
    attempt: int,
    newest_steps: Mapping[str, int],
    now: float,
) -> list[Advice]:
    """Advice for an attempt that is under way, one for each critical finding of it that calls for something.

    A spike of the gradient norm passes by itself: it asks to skip its step, as long as that is the newest of its stream
    (`newest_steps`). Any other trouble that goes on asks to go back to the newest checkpoint before it, or to stop.
    """
    calling = [one for one in findings if one.finding.attempt == attempt and _calls(one, now)]
    return [advice for one in calling if (advice := _advice(one, checkpoints, newest_steps)) is not None]


def _calls(one: StoredFinding, now: float) -> bool:
    silent = one.silenced_until is not None and now < one.silenced_until
    going_on = one.status == "open" and not one.finding.closed
    return going_on and one.finding.severity == "critical" and not one.false_alarm and not silent


def _advice(one: StoredFinding, checkpoints: Sequence[Checkpoint], newest_steps: Mapping[str, int]) -> Advice | None:
    found = one.finding
    if found.kind == SPIKE:
        at_hand = found.end_step == newest_steps.get(found.stream)
        return Advice(action=SKIP_STEP, reason=found.message, finding=one.id, step=found.end_step) if at_hand else None
    target = _before(found, checkpoints)
    if target is None:
        return Advice(action=STOP, reason=found.message, finding=one.id)
    return Advice(action=ROLLBACK, reason=found.message, finding=one.id, step=target.step, uri=target.uri)


def _before(found: Finding, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The newest checkpoint before the trouble: of the finding's attempt, else of the one before, whose weights it began with."""
    fit = [one for one in checkpoints if one.step < found.start_step and one.attempt <= found.attempt]
    fit = [one for one in fit if not (one.policy and found.policy) or one.policy == found.policy]
    return max(fit, key=lambda one: (one.attempt, one.step, one.wall_time), default=None)
