"""The checkpoints of a run, the step worth keeping among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dash import html

from gradwatch.checkpoints.selection import Pick
from gradwatch.schema import BestStep, Checkpoint
from gradwatch_dashboards.parts import aria, number

MAX_CHECKPOINTS = 100


class CheckpointsInfo(NamedTuple):
    """The checkpoints, the newest first, the best step, and the step whose checkpoints are worth keeping, with the reason."""

    checkpoints: tuple[Checkpoint, ...]
    best: BestStep | None
    kept: int | None
    reason: str


def checkpoints_info(checkpoints: Sequence[Checkpoint], pick: Pick, attempt: int) -> CheckpointsInfo:
    """The checkpoints of an attempt; what is worth keeping is picked from the newest alone."""
    own = sorted((one for one in checkpoints if one.attempt == attempt), key=lambda one: -one.step)
    if pick.rated is None or pick.rated.curve.series.attempt != attempt:
        return CheckpointsInfo(tuple(own), None, None, "")
    kept = pick.kept
    if kept is None:
        return CheckpointsInfo(tuple(own), pick.best, None, "")
    return CheckpointsInfo(tuple(own), pick.best, kept.checkpoints[0].step, kept.reason)


def checkpoints_table(info: CheckpointsInfo) -> list[Any]:
    """The table as it stands on the page."""
    title = html.H2(f"Checkpoints ({len(info.checkpoints):,})", id="checkpoints-title")
    said = [html.P(_best(info.best), className="best")] if info.best is not None else []
    if not info.checkpoints:
        return [title, *said, html.P("None logged: run.log_checkpoint(path, step=…)", className="faint")]
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in ("Step", "Where", "Metrics")]))
    rows = [_row(one, _word(one.step, info)) for one in info.checkpoints[:MAX_CHECKPOINTS]]
    said += [html.P(f"★ step {info.kept:,}: {info.reason}", className="faint")] if info.kept is not None else []
    return [title, *said, html.Table([head, html.Tbody(rows)], **aria(labelledby="checkpoints-title"))]


def _best(best: BestStep) -> list[Any]:
    return [html.B(f"Best step {best.step:,}"), f": {best.metric} = {number(best.value)}; {best.reason}"]


def _word(step: int, info: CheckpointsInfo) -> str:
    if step != info.kept:
        return ""
    return "★ best" if info.best is not None and step == info.best.step else "★ best saved"


def _row(one: Checkpoint, word: str) -> html.Tr:
    metrics = ", ".join(f"{name} {number(value)}" for name, value in one.metrics.items())
    step: list[Any] = [f"{one.step:,}", *([html.Div(word, className="best")] if word else [])]
    return html.Tr([html.Th(step, scope="row"), html.Td(one.uri), html.Td(metrics)])
