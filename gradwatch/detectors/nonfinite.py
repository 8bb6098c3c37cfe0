"""`nonfinite`: a metric became NaN or infinite; one finding for all that it dragged along."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import msgspec

from gradwatch.detectors.base import Case, Episode, Parameter, finding, where
from gradwatch.schema import Block, Finding, Series

CLEAN_AFTER = 20
MAX_MEMBERS = 50
COUNTED = "nonfinite"
"""The statistic of a series whose values count the non-finite entries of an array; its moments are of the finite ones."""
CORE = frozenset(
    "loss policy_loss value_loss kl_loss grad_norm param_norm perplexity entropy kl approx_kl reward score advantage "
    "importance_ratio logp_difference value".split()
)


class _Member(msgspec.Struct, frozen=True):
    """One series of an episode: its non-finite values so far, and how many finite ones came since the last."""

    first: int
    last: int
    count: int
    value: str
    finite: int = 0


class _Scope(msgspec.Struct, frozen=True):
    """One stream of one role in one attempt: the episode under way there, by the series that it has reached."""

    episodes: int = 0
    members: dict[str, _Member] = {}
    series: dict[str, Series] = {}


class _Place(NamedTuple):
    """Where a series' trouble is kept: by its stream and role, apart for what training depends on and what it does not."""

    own: str
    core: str
    key: str

    def home(self, scopes: Mapping[str, _Scope]) -> str:
        """The scope of its own kind, or the core's where trouble is under way there, which then drags this series along."""
        own, core = scopes.get(self.own), scopes.get(self.core)
        in_own = own is not None and self.key in own.members
        return self.core if core is not None and core.members and not in_own else self.own


def _place(series: Series) -> _Place:
    base = f"{series.attempt}\x1f{series.stream}\x1f{series.role}\x1f{series.policy}"
    core = f"{base}\x1fcore"
    own = core if series.metric in CORE else f"{base}\x1fauxiliary"
    return _Place(
        own, core, f"{series.source_key or series.metric}\x1f{series.stat}\x1f{series.agent}\x1f{series.scope}\x1f{series.rank}"
    )


class NonFinite:
    """Fires at the first NaN or infinity of any metric, and follows it until every series was finite for 20 values.

    Why: a NaN in loss or gradient ends a run that goes on silently; a skipped AMP step is normal, a streak of them is not.
    A single non-finite gradient norm, and auxiliary metrics, are warnings; a streak in a metric that training depends on is
    critical. The series that was non-finite at the earliest step names the finding, the rest are listed in its evidence; an
    auxiliary metric that was undefined before does not hide a loss that fails later.
    Known false alarms: a metric that is undefined by nature (explained variance of a constant return).
    No early warning is claimed: a NaN often comes without any precursor.
    Source: verl#2505, trl#6702, verl-omni (streaks), GradScaler documentation.
    """

    name: ClassVar[str] = "nonfinite"
    kind: ClassVar[str] = "nonfinite"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("clean_after", CLEAN_AFTER, "values", "ours: NaN every few steps is one trouble, not many"),
    )
    HEALTHY: ClassVar[tuple[Case, ...]] = (
        Case("finite, zero and huge", "loss", (0.0, -0.0, 1e308, -1e308, 5e-324)),
        Case("no point at all", "loss", ()),
    )
    SICK: ClassVar[tuple[Case, ...]] = (
        Case("one skipped step", "grad_norm", (1.0, 1.0, math.nan, *[1.0] * 25), (("warning", 3, 3),)),
        Case("a streak", "loss", (1.0, 1.0, math.nan, math.nan, math.nan), (("critical", 3, 5),)),
        Case("an infinity", "loss", (1.0, math.inf, 1.0), (("critical", 2, 2),)),
        Case("an auxiliary key", "my/own", (math.nan,) * 5, (("warning", 1, 5),)),
        Case("twice, far apart", "loss", (math.nan, *[1.0] * 25, -math.inf), (("critical", 1, 1), ("critical", 27, 27))),
    )

    def reads(self, series: Series) -> bool:
        return True

    def load(self, state: bytes) -> dict[str, _Scope]:
        return msgspec.msgpack.decode(state, type=dict[str, _Scope]) if state else {}

    def dump(self, state: dict[str, _Scope]) -> bytes:
        return msgspec.msgpack.encode(state)

    def update(self, state: dict[str, _Scope], block: Block) -> tuple[dict[str, _Scope], list[Finding]]:
        after = dict(state)
        findings: list[Finding] = []
        places = [_place(one) for one in block.series]
        touched: dict[str, None] = {}
        for at, step, value in zip(block.index, block.step, block.value, strict=True):
            place = places[at]
            name = place.home(after)
            scope = after.get(name)
            if value > 0 if block.series[at].stat == COUNTED else not math.isfinite(value):
                after[name] = _nonfinite(scope or _Scope(), place.key, block.series[at], step, value)
                touched[name] = None
            elif scope is not None and place.key in scope.members:
                scope, closed = _finite(scope, place.key)
                findings += [self._describe(scope, closed=True)] if closed else []
                after[name] = _Scope(scope.episodes) if closed else scope
        findings += [self._describe(after[name], closed=False) for name in touched if after[name].members]
        return after, findings

    def _describe(self, scope: _Scope, closed: bool) -> Finding:
        members = sorted(scope.members.items(), key=lambda item: (item[1].first, scope.series[item[0]].metric not in CORE))
        key, first = members[0]
        series = scope.series[key]
        end = max(member.last for _, member in members)
        others = [scope.series[name].source_key or scope.series[name].metric for name, _ in members[1:]]
        count = f"{first.count} value{'s' if first.count > 1 else ''}"
        message = f"{where(series)} became {first.value} at step {first.first:,} ({count} until step {first.last:,})"
        if others:
            named = ", ".join(where(scope.series[name]) for name, _ in members[1:4])
            message += f"; with it {len(others)} more: {named}{' …' if len(others) > 3 else ''}"
        facts = {"value": first.value, "count": first.count, "others": others}
        episode = Episode(scope.episodes, first.first, end, facts, closed)
        one = finding(self, series, episode, _severity(scope), message, _suggestion(series))
        kind = "core" if any(one.metric in CORE for one in scope.series.values()) else "auxiliary"
        return msgspec.structs.replace(one, subject=f"{series.stream} {kind}")


def _finite(scope: _Scope, key: str) -> tuple[_Scope, bool]:
    member = scope.members[key]
    members = {**scope.members, key: msgspec.structs.replace(member, finite=min(member.finite + 1, CLEAN_AFTER))}
    closed = all(one.finite >= CLEAN_AFTER for one in members.values())
    return msgspec.structs.replace(scope, members=members), closed


def _nonfinite(scope: _Scope, key: str, series: Series, step: int, value: float) -> _Scope:
    known = scope.members.get(key)
    if known is None and len(scope.members) >= MAX_MEMBERS:
        return scope
    name = _name(series, value)
    if known is None:
        member = _Member(step, step, 1, name)
    else:
        member = msgspec.structs.replace(known, last=max(step, known.last), count=known.count + 1, finite=0)
    members = {**scope.members, key: member}
    episodes = scope.episodes if scope.members else scope.episodes + 1
    return _Scope(episodes, members, {**scope.series, key: series} if known is None else scope.series)


def _name(series: Series, value: float) -> str:
    if series.stat == COUNTED:
        return "partly non-finite"
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _severity(scope: _Scope) -> str:
    core = [(scope.series[key].metric, member) for key, member in scope.members.items() if scope.series[key].metric in CORE]
    skipped_only = all(metric == "grad_norm" and member.count == 1 for metric, member in core)
    return "warning" if skipped_only else "critical"


def _suggestion(series: Series) -> str:
    if series.metric == "reward":
        return (
            "a reward function returned None or NaN: guard it, and leave the group out of the group's mean and standard deviation"
        )
    if series.metric in CORE:
        return (
            "if it is a single step under fp16 loss scaling, nothing; else stop, go back to the last finite checkpoint, and find "
            "the first module with a non-finite output (bf16 instead of fp16, lower learning rate, epsilon in logs and divisions)"
        )
    return "see whether the metric is defined for such a batch; it does not by itself mean that training is broken"
