"""A curve that was good and is no longer: what `reward_collapse` and `val_cliff` share.

The curve is smoothed by a running median and compared with its own best. It has declined when it lost at least `loss_of_gain` of
what it had gained, by more than its noise explains, for `hold` values in a row. It has recovered when half of the loss is back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import ClassVar

import msgspec

from gradwatch.detectors.base import Episode, SeriesDetector
from gradwatch.detectors.robust import noise_of
from gradwatch.schema import Series

JUMPS = 100
RECOVERED = 0.5
LEARNED = 6.0
LARGEST = 1e150
"""Values are cut here, so that sums and differences of a few stay finite."""


class Rule(msgspec.Struct, frozen=True):
    """How a decline is judged. `smoothing(n)` and `noise_factor(n)` depend on the number n of values so far.

    `hold` is how many smoothed values in a row must be low; 0 takes the width of the smoothing. `raw_best` compares with the best
    single value instead of the best smoothed one.
    """

    smoothing: Callable[[int], int]
    widest: int
    noise_factor: Callable[[int], float]
    loss_of_gain: float
    loss_of_level: float
    hold: int = 0
    raw_best: bool = False


class Curve(msgspec.Struct, frozen=True):
    """A curve so far, turned so that up is good.

    `minimum` is the lowest smoothed value so far, `floor` what it was when the best one came: their difference is the gain.
    `low_since` are the steps at which the smoothed value was low, `fell` the first step since which every single value was.
    """

    count: int = 0
    recent: tuple[float, ...] = ()
    jumps: tuple[float, ...] = ()
    minimum: float = math.inf
    best: float = -math.inf
    best_step: int = 0
    floor: float = 0.0
    low_since: tuple[int, ...] = ()
    fell: int | None = None
    lowest: float = 0.0
    episodes: int = 0
    episode: Episode | None = None


def advance(curve: Curve, rule: Rule, step: int, value: float) -> tuple[Curve, Episode | None]:
    """The curve after one finite value, and the episode that it closed."""
    value = max(-LARGEST, min(LARGEST, value))
    count = curve.count + 1
    width = rule.smoothing(count)
    recent = (*curve.recent, value)[-rule.widest :]
    jumps = curve.jumps
    if curve.recent and not curve.low_since:  # the decline itself is no noise
        jumps = (*jumps, abs(value - curve.recent[-1]))[-JUMPS:]
    curve = msgspec.structs.replace(curve, count=count, recent=recent, jumps=jumps)
    if count < width and not rule.raw_best:
        return curve, None
    level = median(recent[-width:])
    curve = msgspec.structs.replace(curve, minimum=min(curve.minimum, level))
    top = value if rule.raw_best else level
    if top > curve.best:
        return _new_best(curve, top, step)
    if curve.episode is not None:
        return _under_way(curve, curve.episode, step, level)
    return (_watching(curve, rule, step, value, level), None) if count >= width else (curve, None)


def _new_best(curve: Curve, top: float, step: int) -> tuple[Curve, Episode | None]:
    closed = _recovered(curve.episode, step) if curve.episode is not None else None
    floor = min(curve.minimum, top)
    return msgspec.structs.replace(curve, best=top, best_step=step, floor=floor, low_since=(), fell=None, episode=None), closed


def _recovered(episode: Episode, step: int) -> Episode:
    return msgspec.structs.replace(episode, facts={**episode.facts, "recovered": step})


def _under_way(curve: Curve, episode: Episode, step: int, level: float) -> tuple[Curve, Episode | None]:
    lowest = min(curve.lowest, level)
    if level >= curve.best - RECOVERED * (curve.best - lowest):
        after = msgspec.structs.replace(curve, low_since=(), fell=None, episode=None, best=level, best_step=step, floor=lowest)
        return after, _recovered(episode, step)
    facts = {**episode.facts, "lowest": lowest, "level": level}
    episode = msgspec.structs.replace(episode, end=max(step, episode.end), facts=facts)
    return msgspec.structs.replace(curve, lowest=lowest, episode=episode), None


def _watching(curve: Curve, rule: Rule, step: int, value: float, level: float) -> Curve:
    noise = noise_of(curve.jumps) if curve.jumps else 0.0
    gain, drop = curve.best - curve.floor, curve.best - level
    allowed = max(rule.noise_factor(curve.count) * noise, allowed_loss(rule, curve.best, gain, noise))
    fell = None if curve.best - value <= allowed else step if curve.fell is None else curve.fell
    curve = msgspec.structs.replace(curve, fell=fell)
    if drop <= allowed:
        return msgspec.structs.replace(curve, low_since=())
    low_since = (*curve.low_since, step)
    if len(low_since) < (rule.hold or rule.smoothing(curve.count)):
        return msgspec.structs.replace(curve, low_since=low_since)
    facts = {
        "best": curve.best,
        "best_step": curve.best_step,
        "lowest": level,
        "level": level,
        "gain": gain,
        "noise": noise,
    }
    start = low_since[0] if fell is None else min(fell, low_since[0])
    episode = Episode(curve.episodes + 1, start, step, facts)
    return msgspec.structs.replace(curve, low_since=low_since, lowest=level, episodes=curve.episodes + 1, episode=episode)


def allowed_loss(rule: Rule, best: float, gain: float, noise: float) -> float:
    """How much may be lost without alarm: part of the gain where something was learned, else part of the level itself.

    A run that began far below zero has a gain that dwarfs its level: there, half of the level counts too, if it is not
    next to nothing beside the gain.
    """
    if gain <= LEARNED * noise:
        return rule.loss_of_level * abs(best)
    return rule.loss_of_gain * min(gain, max(abs(best), gain / 2))


class DeclineDetector(SeriesDetector[Curve]):
    """Watches for declines by `rule`; a subclass says of which series, which way is up, and what an episode means."""

    memory: ClassVar[type[Curve]] = Curve
    rule: ClassVar[Rule]

    def sign(self, series: Series) -> int:
        """1 where higher is better, −1 where lower is."""
        raise NotImplementedError

    def open_episode(self, memory: Curve) -> Episode | None:
        return memory.episode

    def advance(self, memory: Curve, series: Series, step: int, value: float) -> tuple[Curve, Episode | None]:
        return advance(memory, self.rule, step, self.sign(series) * value) if math.isfinite(value) else (memory, None)


def recovery(facts: dict[str, float]) -> str:
    """What a message adds where the loss was won back."""
    return f"; it recovered at step {facts['recovered']:,}" if "recovered" in facts else ""
