"""Which charts a run has, how they are called, and in which sections they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gradwatch.metrics import metric
from gradwatch.metrics.optimisation import GRADIENTS, LOSSES, POLICY
from gradwatch.metrics.outcomes import PROGRESS, REWARDS, SCORES, TEXT
from gradwatch.schema import Finding, Series, Span

SEP = "\x1f"
FOUND, MODULES, STATISTICS, OTHER = "found", "modules", "statistics", "other"
FEW = 8
"""A run with no more metrics of its own than this shows them at once."""

MAX_CHARTS = 24
"""Charts of one section that are drawn; the reader narrows down what lies beyond by name."""

_ENTROPIES = frozenset("entropy negative_entropy perplexity kl approx_kl".split())
_MEASURED = frozenset("role_grad_coverage role_grad_error loss_scale step_skipped".split())
_GROUPED = frozenset(
    "groups group_size group_prompts groups_excluded frac_groups_of_one frac_groups_all_right frac_groups_all_wrong "
    "inflation_ratio measured_inflation predicted_inflation inflation_covariance inflation_covariance_share "
    "mean_gap var_ratio".split()
)
_CALLS = frozenset(
    "call_frequency calls call_share calls_per_trajectory trajectory_share turns prompt_tokens output_tokens call_seconds "
    "failure_frequency".split()
)
_SCOPED = frozenset(("grad_cosine", "reward_component", "role_grad_coverage", "role_grad_error"))
"""Metrics whose scope is no module of a model: another role, a reward function, an engine."""

_WORDS = {"grad": "gradient", "kl": "KL", "std": "std", "adv": "advantage", "frac": "fraction", "logp": "log-prob", "wer": "WER"}


class Chart(NamedTuple):
    """One chart: a metric of one stream, statistic and module group, with a line per role."""

    metric: str
    stream: str = "train"
    stat: str = ""
    scope: str = ""

    @property
    def id(self) -> str:
        """The chart's name on the page and in a figure's id."""
        return SEP.join(self)


class Section(NamedTuple):
    """Charts that belong together. `charts` are those that are drawn, `more` counts those beyond.

    `by_role` says whether one of them has a line of a single role.
    """

    key: str
    title: str
    charts: tuple[Chart, ...]
    more: int = 0
    opened: bool = True
    by_role: bool = False


def _names(*groups: Sequence[object]) -> frozenset[str]:
    return frozenset(getattr(one, "name", "") for group in groups for one in group)


_GROUPS = (
    ("gradients", "Gradients", _names(GRADIENTS) - _MEASURED, True),
    ("losses", "Losses", _names(LOSSES) - _ENTROPIES, True),
    ("rewards", "Rewards and scores", _names(REWARDS, SCORES) - _GROUPED, True),
    ("entropy", "Entropy, perplexity, KL", _ENTROPIES, True),
    ("lengths", "Lengths and format", _names(TEXT) - _CALLS, True),
    ("groups", "Groups and baselines", _GROUPED, False),
    ("calls", "Calls of roles", _CALLS, False),
    ("policy", "Policy updates", _names(POLICY), False),
    ("progress", "Progress and speed", _names(PROGRESS), False),
    ("measured", "Skipped steps, and how roles were measured", _MEASURED, False),
)
SECTIONS = (
    FOUND,
    *(key for key, _, _, opened in _GROUPS if opened),
    OTHER,
    *(key for key, _, _, opened in _GROUPS if not opened),
    STATISTICS,
    MODULES,
)
_TITLES = {
    FOUND: "Where findings are",
    **{key: title for key, title, *_ in _GROUPS},
    OTHER: "The run's own metrics",
    STATISTICS: "Spread: std, min, max and other statistics",
    MODULES: "By module",
}
_OPEN = frozenset((FOUND, *(key for key, *_, opened in _GROUPS if opened)))


def chart_of(one: Series | Finding) -> Chart:
    """The chart on which a series or a finding is drawn. A mean stands beside what was logged as one number."""
    return Chart(one.metric, one.stream, "" if one.stat == "mean" else one.stat, one.scope)


def title(chart: Chart) -> str:
    """What a chart is called: `Gradient norm · eval · layer 3 (max)`."""
    words = [_WORDS.get(word, word) for word in chart.metric.replace("/", " / ").split("_")]
    text = " ".join(words)
    text = text[:1].upper() + text[1:] if metric(chart.metric) is not None else chart.metric
    stream = "" if chart.stream == "train" else f" · {chart.stream}"
    scope = f" {'with' if chart.metric == 'grad_cosine' else '·'} {chart.scope}" if chart.scope else ""
    return text + stream + scope + (f" ({chart.stat})" if chart.stat not in ("", "mean") else "")


def unit(chart: Chart) -> str:
    """The unit of a chart's values, "" where they have none or it is not known."""
    known = metric(chart.metric)
    return "" if known is None or known.unit == "1" else known.unit


def meaning(chart: Chart) -> str:
    """What the catalogue says of a chart's metric."""
    known = metric(chart.metric)
    return "" if known is None else known.meaning


def sections(spans: Iterable[Span], findings: Iterable[Finding], words: str, flipped: Sequence[str]) -> list[Section]:
    """The charts of a run by section, those with findings first; only the ones whose name holds all of `words`."""
    charts: dict[Chart, bool] = {}
    for one in spans:
        charts[chart_of(one.series)] = charts.get(chart_of(one.series), False) or bool(one.series.role)
    wanted = sorted((chart for chart in charts if _named(chart, words)), key=_order)
    found = [chart for chart in dict.fromkeys(place(finding, charts) for finding in findings) if chart in wanted]
    held: dict[str, list[Chart]] = {key: [] for key in SECTIONS}
    held[FOUND] = found
    for chart in wanted:
        if chart not in found:
            held[_section(chart)].append(chart)
    return [_cut(key, some, _is_open(key, some, words) != (key in flipped), charts) for key, some in held.items() if some]


def place(finding: Finding, charts: Iterable[Chart]) -> Chart:
    """The chart that shows a finding: its own series', else one of its metric."""
    own = chart_of(finding)
    if own in charts:
        return own
    akin = [one for one in charts if (one.metric, one.stream) == (finding.metric, finding.stream)]
    return min(akin, key=lambda one: (one.scope, one.stat), default=own)


def _is_open(key: str, charts: Sequence[Chart], words: str) -> bool:
    return key in _OPEN or bool(words) or (key == OTHER and len(charts) <= FEW)


def _cut(key: str, charts: Sequence[Chart], opened: bool, by_role: Mapping[Chart, bool]) -> Section:
    drawn = tuple(charts[:MAX_CHARTS])
    return Section(key, _TITLES[key], drawn, len(charts) - len(drawn), opened, any(by_role[one] for one in drawn))


def _named(chart: Chart, words: str) -> bool:
    name = f"{title(chart)} {chart.metric}".casefold()
    return all(word in name for word in words.casefold().split())


def _section(chart: Chart) -> str:
    if chart.scope and chart.metric not in _SCOPED:
        return MODULES
    if chart.stat not in ("", "mean"):
        return STATISTICS
    for key, _, names, _ in _GROUPS:
        if chart.metric in names:
            return key
    return "losses" if chart.metric.casefold().endswith("loss") else OTHER


def _order(chart: Chart) -> tuple[object, ...]:
    rank = _CATALOGUE.get(chart.metric, len(_CATALOGUE))
    return rank, chart.stream != "train", _natural(chart.metric), chart.stat, _natural(chart.scope)


def _natural(name: str) -> list[tuple[int, str]]:
    """An order in which `layers.2` comes before `layers.10`."""
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part) for part in re.split(r"(\d+)", name)]


_CATALOGUE = {one.name: at for at, one in enumerate((*GRADIENTS, *LOSSES, *REWARDS, *SCORES, *TEXT, *POLICY, *PROGRESS))}
