"""The checkpoints of a run, the step worth keeping among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dash import html

from gradwatch.schema import BestStep, Checkpoint
from gradwatch_dashboards.parts import aria, number

MAX_CHECKPOINTS = 100


class CheckpointsInfo(NamedTuple):
    """The checkpoints, the newest first, the best step, and the last one that was saved at or before it."""

    checkpoints: tuple[Checkpoint, ...]
    best: BestStep | None
    before: int | None


def checkpoints_info(checkpoints: Sequence[Checkpoint], best: BestStep | None, attempt: int) -> CheckpointsInfo:
    """The checkpoints of an attempt."""
    own = sorted((one for one in checkpoints if one.attempt == attempt), key=lambda one: -one.step)
    before = next((one.step for one in own if best is not None and one.step <= best.step), None)
    return CheckpointsInfo(tuple(own), best, before)


def checkpoints_table(info: CheckpointsInfo) -> list[Any]:
    """The table as it stands on the page."""
    title = html.H2(f"Checkpoints ({len(info.checkpoints):,})", id="checkpoints-title")
    said = [html.P(_best(info.best), className="best")] if info.best is not None else []
    if not info.checkpoints:
        return [title, *said, html.P("None logged: run.log_checkpoint(path, step=…)", className="faint")]
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in ("Step", "Where", "Metrics")]))
    rows = [_row(one, _word(one.step, info)) for one in info.checkpoints[:MAX_CHECKPOINTS]]
    return [title, *said, html.Table([head, html.Tbody(rows)], **aria(labelledby="checkpoints-title"))]


def _best(best: BestStep) -> list[Any]:
    return [html.B(f"Best step {best.step:,}"), f": {best.metric} = {number(best.value)}; {best.reason}"]


def _word(step: int, info: CheckpointsInfo) -> str:
    if info.best is None or step != info.before:
        return ""
    return "★ best" if step == info.best.step else "★ last before the best step"


def _row(one: Checkpoint, word: str) -> html.Tr:
    metrics = ", ".join(f"{name} {number(value)}" for name, value in one.metrics.items())
    step: list[Any] = [f"{one.step:,}", *([html.Div(word, className="best")] if word else [])]
    return html.Tr([html.Th(step, scope="row"), html.Td(one.uri, className="uri"), html.Td(metrics)])
