"""The samples of a step and role: texts as text, numbers as a table."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from dash import html

from gradwatch.schema import Sample
from gradwatch_dashboards.palette import Ink
from gradwatch_dashboards.parts import aria, link, long_text, number, role_name, swatch
from gradwatch_dashboards.view import View, run_path

SHOWN = 30
INFLUENCE = (
    "Its part of this step's gradient, ⟨g_i, g⟩/‖g‖²: below zero it pulls against the step; all sequences together are 100 %"
)


class SamplesInfo(NamedTuple):
    """The samples of `step` and `role` (None: of all roles); `steps` are those that are known to have samples."""

    run: str
    view: View
    step: int | None
    role: str | None
    steps: tuple[int, ...]
    roles: tuple[str, ...]
    samples: tuple[Sample, ...]
    inks: tuple[tuple[str, Ink], ...]


def samples_info(
    run: str,
    view: View,
    at: tuple[int | None, str | None],
    steps: Sequence[int],
    samples: Sequence[Sample],
    inks: Mapping[str, Ink],
) -> SamplesInfo:
    """The table of the samples at a step and role."""
    roles = tuple(role for role in inks if role)
    return SamplesInfo(run, view, at[0], at[1], tuple(steps), roles, tuple(samples), tuple(inks.items()))


def samples_table(info: SamplesInfo) -> list[Any]:
    """The table as it stands on the page."""
    title = html.H2("Samples" if info.step is None else f"Samples at step {info.step:,}", id="samples-title")
    controls = html.Div([_steps(info), _roles(info)], className="toolbar")
    if info.step is None and not info.steps:
        return [title, html.P("None logged: run.log_samples([...], step=…)", className="faint")]
    if not info.samples:
        who = f" of {role_name(info.role)}" if info.role else ""
        return [title, controls, html.P(f"No samples{who} at this step.", className="faint")]
    has_influence = any(one.influence is not None for one in info.samples)
    columns = [html.Th(name, scope="col") for name in ("Role", "Prompt", "Output", "Rewards", "Advantage")]
    columns += [html.Th("Influence", scope="col", title=INFLUENCE)] if has_influence else []
    columns += [html.Th(name, scope="col") for name in ("Tokens", "Format")]
    head = html.Thead(html.Tr(columns))
    inks = dict(info.inks)
    rows = [_row(one, inks, has_influence) for one in info.samples[:SHOWN]]
    more = [html.P(f"More than {SHOWN} samples: choose a role to narrow them down.")] if len(info.samples) > SHOWN else []
    return [title, controls, html.Table([head, html.Tbody(rows)], className="samples", **aria(labelledby="samples-title")), *more]


def _row(one: Sample, inks: Mapping[str, Ink], has_influence: bool) -> html.Tr:
    who = one.agent or role_name(one.role)
    turn = [html.Div(f"turn {one.turn}", className="faint")] if one.turn else []
    group = [html.Div(f"group {one.group}", className="faint")] if one.group else []
    rewards = [html.Div([html.Span(name, className="faint"), f" {number(value)}"]) for name, value in one.rewards.items()]
    return html.Tr(
        [
            html.Th([swatch(inks.get(one.role, inks[""])), " ", who, *turn, *group], scope="row"),
            html.Td(long_text(one.prompt, "prompt")),
            html.Td(long_text(one.output, "output")),
            html.Td(rewards or "–"),
            html.Td(number(one.advantage), className="number"),
            *([html.Td(_share(one.influence), className="number")] if has_influence else []),
            html.Td(_tokens(one), className="number"),
            html.Td(_format(one.format_valid)),
        ]
    )


def _share(influence: float | None) -> str:
    return f"{100 * influence:+.1f} %" if influence is not None and isfinite(influence) else number(influence)


def _tokens(one: Sample) -> str:
    told = ["–" if count is None else f"{count:,}" for count in (one.prompt_tokens, one.output_tokens)]
    return "–" if told == ["–", "–"] else " → ".join(told)


def _format(valid: bool | None) -> Any:
    if valid is None:
        return "–"
    return html.Span("✓ valid" if valid else "✖ invalid", className="healthy" if valid else "critical")


def _steps(info: SamplesInfo) -> html.Div:
    """Links to the neighbouring steps that have samples."""
    at = 0 if info.step is None else info.step
    before, after = bisect_left(info.steps, at) - 1, bisect_right(info.steps, at)
    earlier = info.steps[before] if before >= 0 else None
    later = info.steps[after] if after < len(info.steps) else None
    return html.Div(
        [_step(info, earlier, "← {}", "earlier"), _step(info, later, "{} →", "later")],
        className="switch",
        role="group",
        **aria(label="Neighbouring steps with samples"),
    )


def _step(info: SamplesInfo, to: int | None, form: str, name: str) -> Any:
    if to is None:
        return html.Span(f"none {name}", className="faint")
    return link(form.format(f"step {to:,}"), run_path(info.run, info.view._replace(step=to)), **aria(label=f"{name}: step {to}"))


def _roles(info: SamplesInfo) -> html.Div:
    choices: list[tuple[str | None, str]] = [(None, "all roles"), *((role, role) for role in info.roles)]
    links = [
        link(
            name,
            run_path(info.run, info.view._replace(role="" if role is None and info.view.finding else role)),
            "chosen" if (role or None) == (info.role or None) else "",
            **aria(current="true" if (role or None) == (info.role or None) else "false"),
        )
        for role, name in choices
    ]
    return html.Div([html.Span("role"), *links], className="switch", role="group", **aria(label="Role"))
