"""What a reader looks at, as it stands in the address: a link restores it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode

METRICS, ROLES = VIEWS = ("metrics", "roles")
AUTO, FULL, LOG = AXES = ("auto", "full", "log")


class View(NamedTuple):
    """The state of a run's page. None and empty stand for what the page chooses by itself.

    `first` and `last` are the zoomed step range, `step` is the step whose samples are shown, `flipped` names the sections of
    charts that are not as they are by default, open or closed.
    """

    attempt: int | None = None
    metric: str = ""
    role: str | None = None
    first: int | None = None
    last: int | None = None
    step: int | None = None
    finding: str = ""
    view: str = METRICS
    axis: str = AUTO
    flipped: tuple[str, ...] = ()


def parse(search: str | None) -> View:
    """The view of an address's query string; what cannot be read is left out."""
    given = {key: values[-1] for key, values in parse_qs((search or "").lstrip("?"), keep_blank_values=True).items()}
    return View(
        attempt=_number(given.get("attempt")),
        metric=given.get("metric", ""),
        role=given.get("role"),
        first=_number(given.get("from")),
        last=_number(given.get("to")),
        step=_number(given.get("step")),
        finding=given.get("finding", ""),
        view=_one_of(VIEWS, given.get("view")),
        axis=_one_of(AXES, given.get("axis")),
        flipped=tuple(dict.fromkeys(filter(None, given.get("flip", "").split(",")))),
    )


def search(view: View) -> str:
    """The query string of a view, "?" alone where it is the default one."""
    fields = {
        "attempt": view.attempt,
        "metric": view.metric or None,
        "role": view.role,
        "from": view.first,
        "to": view.last,
        "step": view.step,
        "finding": view.finding or None,
        "view": None if view.view == METRICS else view.view,
        "axis": None if view.axis == AUTO else view.axis,
        "flip": ",".join(view.flipped) or None,
    }
    return "?" + urlencode({key: value for key, value in fields.items() if value is not None}, safe=",")


def run_path(run: str, view: View | None = None) -> str:
    """The address of a run's page."""
    return f"/runs/{quote(run, safe='')}" + ("" if view is None else search(view))


def flip(view: View, section: str) -> View:
    """The view with a section opened or closed."""
    flipped = tuple(one for one in view.flipped if one != section)
    return view._replace(flipped=flipped if len(flipped) < len(view.flipped) else (*flipped, section))


def _number(text: str | None) -> int | None:
    body = (text or "").removeprefix("-")
    return int(text or "") if body.isascii() and body.isdigit() and len(body) < 19 else None


def _one_of(allowed: Sequence[str], given: str | None) -> str:
    return given if given is not None and given in allowed else allowed[0]
