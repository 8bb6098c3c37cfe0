"""`norm_spike`: the gradient norm of a series jumps far above everything it lately was."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import ClassVar

import msgspec

from gradwatch.detectors.base import Case, Episode, Parameter, SeriesDetector, finding, where
from gradwatch.detectors.robust import quantile
from gradwatch.detectors.words import at_steps, times
from gradwatch.schema import Finding, Series

WINDOW = 50
WARM_UP = 3
SETTLED = 9
OVER_Q90 = 2.5
OVER_MAX = 1.5
FEW = 8
OVER_START = 5.0
CRITICAL = 10.0
TINY = 0.01
TAIL = 5
GAP = 3


class NormMemory(msgspec.Struct, frozen=True):
    """`window`: the values that count as normal. `spikes`: (count, value) of those that lately did not.

    `tiny`: how many values in a row were next to nothing; `since`: how many normal ones came after the last spike.
    """

    count: int = 0
    window: tuple[float, ...] = ()
    settled: bool = False
    spikes: tuple[tuple[int, float], ...] = ()
    tiny: int = 0
    since: int = 0
    episodes: int = 0
    episode: Episode | None = None


class NormSpike(SeriesDetector[NormMemory]):
    """Fires where a norm exceeds 2.5 × the 90th percentile and 1.5 × the maximum of the last 50 normal values of its series.

    Why: a jump of the norm is the first sign of a poisoned batch, a bad advantage or a diverging policy, and one clipped step in
    the wrong direction can undo many good ones. The reference is the window's upper tail, not its mean: heavy-tailed norms
    (GRPO with small groups) have a high tail and stay silent, quiet ones have a low tail and fire early.
    Spiking, non-finite and near-zero values never enter the window. Five spikes among 50 values are no spikes any more but the
    series' tail, and join it; five in a row are a new level, which is learned afresh.
    Known false alarms: a batch of an unusual kind (long context, new task) logged once.
    Source: ours; compared with ZClip (EMA z > 2.5) and OLMo (6σ over 128 steps), which judge by mean and deviation.
    """

    name: ClassVar[str] = "norm_spike"
    kind: ClassVar[str] = "norm_spike"
    memory: ClassVar[type[NormMemory]] = NormMemory
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "window",
            WINDOW,
            "values",
            "ours: long enough for a 90th percentile, short enough to follow a decaying norm",
        ),
        Parameter("over_q90", OVER_Q90, "ratio", "ours: near ZClip's z of 2.5 where the deviation equals the mean"),
        Parameter("over_max", OVER_MAX, "ratio", "ours: a new maximum by half; cf. Megatron's 10 × maximum of the first 100"),
        Parameter(
            "few", FEW, "values", "ours: over_max grows by few/n while the window has n values: a maximum of few is soon beaten"
        ),
        Parameter("over_start", OVER_START, "ratio", "ours: with 3 to 8 values the maximum is all there is"),
        Parameter("critical", CRITICAL, "ratio", "Megatron-LM: 10 × is a large norm"),
    )
    HEALTHY: ClassVar[tuple[Case, ...]] = (
        Case("decaying from a high start", "grad_norm", tuple(60.0 / (1 + i) + 1 + 0.1 * (i % 3) for i in range(80))),
        Case(
            "heavy-tailed throughout",
            "grad_norm",
            tuple(math.exp(NormalDist().inv_cdf((0.6180339 * i + 0.3) % 1)) for i in range(200)),
        ),
        Case("constant groups beside live ones", "grad_norm", tuple(0.7 if i % 6 == 0 else 0.003 for i in range(120))),
        Case("zeros, then values", "grad_norm", (*[0.0] * 20, 0.5, *[0.0] * 20, *[0.4, 0.5, 0.6] * 10)),
        Case("a hundredfold scale from the start", "grad_norm", tuple(100.0 + i % 5 for i in range(60))),
    )
    SICK: ClassVar[tuple[Case, ...]] = (
        Case("one spike", "grad_norm", (*[1.0, 1.2, 0.9, 1.1] * 6, 4.5, *[1.0, 1.1] * 6), (("warning", 25, 25),)),
        Case(
            "a NaN before it does not hide it",
            "grad_norm",
            (*[1.0, 1.2] * 9, math.nan, *[1.0, 1.1] * 4, 50.0, 1.0),
            (("critical", 28, 28),),
        ),
        Case(
            "two in a short run",
            "grad_norm",
            (14.98, 9.78, 7.64, 92.10, 29.00, 5.21, 7.83, 7.79, 11140.0),
            (("warning", 4, 4), ("critical", 9, 9)),
        ),
    )

    def reads(self, series: Series) -> bool:
        # The norm of one module tells where the whole one came from; alone it moves too freely to be called a spike.
        is_of_a_module = bool(series.scope) and not series.role
        return series.metric == "grad_norm" and series.stat in ("", "mean", "max") and not is_of_a_module

    def open_episode(self, memory: NormMemory) -> Episode | None:
        return memory.episode

    def advance(self, memory: NormMemory, series: Series, step: int, value: float) -> tuple[NormMemory, Episode | None]:
        if not math.isfinite(value) or value <= 0:  # a norm of exactly 0 says that there was no signal
            return memory, None
        memory = msgspec.structs.replace(memory, count=memory.count + 1)
        reference = spike_reference(memory, value)
        if reference is not None:
            return _spiking(memory, step, value, reference)
        memory, closed = _age(memory)
        return _normal(memory, value), closed

    def describe(self, series: Series, episode: Episode) -> Finding:
        facts = episode.facts
        ratio = facts["peak"] / facts["reference"]
        severity = "critical" if ratio >= CRITICAL else "warning"
        message = (
            f"{where(series)} spiked to {facts['peak']:.4g} {at_steps(episode.start, episode.end)}: {times(ratio)} × the "
            f"{facts['reference_name']} of the {facts['values']} values before it ({facts['reference']:.4g})"
        )
        return finding(self, series, episode, severity, message, SUGGESTION)


SUGGESTION = (
    "look at the samples of that step first; then clip the norm (max_grad_norm near the usual value) or skip such a step, lower "
    "the learning rate, and check advantages and importance ratios for outliers (ZClip, arXiv 2504.02507)"
)


def spike_reference(memory: NormMemory, value: float) -> tuple[float, str] | None:
    """The level that `value` spikes over and its name, or None where it does not spike."""
    window = memory.window
    if not memory.settled:
        top = max(window, default=0.0)
        return (top, "maximum") if len(window) >= WARM_UP and top > 0 and value > OVER_START * top else None
    ordered = sorted(window)
    q90 = quantile(ordered, 0.9)
    over_max = OVER_MAX * (1 + FEW / len(ordered))
    return (q90, "90th percentile") if value > OVER_Q90 * q90 and value > over_max * ordered[-1] else None


def _spiking(memory: NormMemory, step: int, value: float, reference: tuple[float, str]) -> tuple[NormMemory, Episode | None]:
    episode, episodes = memory.episode, memory.episodes
    if episode is None:
        episodes += 1
        facts = {"peak": value, "reference": reference[0], "reference_name": reference[1], "values": len(memory.window)}
        episode = Episode(episodes, step, step, facts)
    else:
        facts = {**episode.facts, "peak": max(value, episode.facts["peak"])}
        episode = msgspec.structs.replace(episode, end=max(step, episode.end), facts=facts)
    recent = tuple(one for one in memory.spikes if one[0] > memory.count - WINDOW)
    spikes = (*recent, (memory.count, value))
    if len(spikes) < TAIL:
        return msgspec.structs.replace(memory, spikes=spikes, tiny=0, since=0, episodes=episodes, episode=episode), None
    high = tuple(one for _, one in spikes)
    in_a_row = spikes[0][0] == memory.count - TAIL + 1
    window = high if in_a_row else (*memory.window, *high)[-WINDOW:]
    settled = memory.settled and not in_a_row
    return NormMemory(count=memory.count, window=window, settled=settled, episodes=episodes), episode


def _age(memory: NormMemory) -> tuple[NormMemory, Episode | None]:
    """One normal value later: an episode closes when `GAP` of them have passed."""
    since = memory.since + 1
    if memory.episode is not None and since > GAP:
        return msgspec.structs.replace(memory, since=since, episode=None), memory.episode
    return msgspec.structs.replace(memory, since=since), None


def _normal(memory: NormMemory, value: float) -> NormMemory:
    """Take a value into the window, unless it is next to nothing: such a value says that groups had no signal."""
    window = memory.window
    if window and value < TINY * quantile(sorted(window), 0.9):
        if memory.tiny + 1 >= WINDOW:
            return msgspec.structs.replace(memory, window=(value,), settled=False, tiny=0)
        return msgspec.structs.replace(memory, tiny=memory.tiny + 1)
    window = (*window, value)[-WINDOW:]
    if not memory.settled and len(window) >= SETTLED:
        return msgspec.structs.replace(memory, window=window[WARM_UP:], settled=True, tiny=0)
    return msgspec.structs.replace(memory, window=window, tiny=0)
