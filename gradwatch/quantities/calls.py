"""How often each role was called, in how many turns, and what it took in tokens and seconds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import isnan, nan
from typing import NamedTuple

from gradwatch.quantities.per_role import OVERALL


class Call(NamedTuple):
    """One call of a role: the trajectory that it belongs to, its turn there, its tokens and seconds. NaN is not known."""

    role: str
    trajectory: Hashable = None
    turn: int = 0
    prompt_tokens: float = nan
    output_tokens: float = nan
    seconds: float = nan


def measure_calls(calls: Iterable[Call], roles: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """By role and metric key, those of all under the empty role: `calls`, `call_share` (of all calls), `calls_per_trajectory` (over
    all trajectories), `trajectory_share` (of those in which the role was called), `turns/mean|max` (different turns of the role in
    a trajectory that called it), `prompt_tokens`, `output_tokens` and `call_seconds` (sums), `prompt_length/mean|max`,
    `response_length/mean|max` and `call_seconds/mean|max` (of one call).

    A role of `roles` that was not called has 0 `calls` and no other number. What no call of a role knows (NaN) is absent; where
    some know, sums and means are of those.
    """
    rows = list(calls)
    trajectories = len({call.trajectory for call in rows})
    called = dict.fromkeys((*roles, *(call.role for call in rows)))
    by_role = {role: [call for call in rows if call.role == role] for role in called if role != OVERALL}
    return {role: _numbers(own, len(rows), trajectories) for role, own in {**by_role, OVERALL: rows}.items()}


def _numbers(own: Sequence[Call], calls: int, trajectories: int) -> dict[str, float]:
    if not own:
        return {"calls": 0.0}
    turns: dict[Hashable, set[int]] = {}
    for call in own:
        turns.setdefault(call.trajectory, set()).add(call.turn)
    return {
        "calls": float(len(own)),
        "call_share": len(own) / calls,
        "calls_per_trajectory": len(own) / trajectories,
        "trajectory_share": len(turns) / trajectories,
        **_each("turns", [float(len(one)) for one in turns.values()]),
        **_amounts("prompt_tokens", "prompt_length", [call.prompt_tokens for call in own]),
        **_amounts("output_tokens", "response_length", [call.output_tokens for call in own]),
        **_amounts("call_seconds", "call_seconds", [call.seconds for call in own]),
    }


def _amounts(total: str, each: str, values: Sequence[float]) -> dict[str, float]:
    known = [float(value) for value in values if not isnan(value)]
    return {total: sum(known), **_each(each, known)} if known else {}


def _each(metric: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{metric}/mean": sum(values) / len(values), f"{metric}/max": max(values)}
