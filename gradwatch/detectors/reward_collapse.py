"""`reward_collapse`: what the policy had learned to earn is lost again."""

from __future__ import annotations

import math
from typing import ClassVar

from gradwatch.detectors.base import Case, Episode, Parameter, finding, where
from gradwatch.detectors.decline import LEARNED, DeclineDetector, Rule, recovery
from gradwatch.detectors.words import times
from gradwatch.schema import Finding, Series

NOISE = 6.0
RULE = Rule(
    smoothing=lambda count: min(50, max(5, count // 20)),
    widest=50,
    noise_factor=lambda _: NOISE,
    loss_of_gain=0.5,
    loss_of_level=0.3,
)
EARNINGS = frozenset(("reward", "score", "success_rate"))


class RewardCollapse(DeclineDetector):
    """Fires where the smoothed reward lost half of all it had gained (or 30 % of a level that it never raised), beyond its noise.

    Why: after a collapse every further step is wasted, and the checkpoint worth keeping lies before it.
    The reward is smoothed by a running median over 5 to 50 values (a twentieth of the run so far) and must stay low for as many
    values. The drop must exceed six standard deviations of a single value's noise, which is estimated from first differences.
    A run that wins half of the loss back was not lost: its finding is closed as info.
    Known false alarms: the task gets harder on purpose (curriculum); a reward that is a running mean of very few episodes.
    Source: ours; cases Search-R1#88 and ConvSearch-R1#6.
    """

    name: ClassVar[str] = "reward_collapse"
    kind: ClassVar[str] = "reward_collapse"
    rule: ClassVar[Rule] = RULE
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("loss_of_gain", RULE.loss_of_gain, "ratio", "ours: half of what was learned is gone"),
        Parameter("loss_of_level", RULE.loss_of_level, "ratio", "ours: where nothing was learned, part of the level itself"),
        Parameter("noise", NOISE, "standard deviations", "ours: a median of five values beyond chance in 10⁵ steps"),
    )
    HEALTHY: ClassVar[tuple[Case, ...]] = (
        Case("rising with noise", "reward", tuple(i / 60 + 0.2 * math.sin(7.3 * i) for i in range(120))),
        Case("noise about a level", "reward", tuple(0.5 + 0.4 * math.sin(2.39996 * i * i) for i in range(150))),
        Case("one bad batch", "reward", (*[i / 40 for i in range(40)], 0.0, 0.1, *[1.0] * 30)),
        Case("constant", "reward", (0.0,) * 60),
    )
    SICK: ClassVar[tuple[Case, ...]] = (
        Case(
            "learned, then lost",
            "reward",
            (*[i / 40 for i in range(40)], *[0.95, 1.0] * 10, *[0.02, 0.0] * 15),
            (("critical", 61, 90),),
        ),
        Case("never better than at the start", "reward", (*[0.9, 0.85, 0.95, 0.9] * 5, *[0.0] * 20), (("critical", 21, 40),)),
        Case(
            "lost and won back",
            "reward",
            (*[i / 40 for i in range(40)], *[1.0] * 10, *[0.0] * 20, *[1.0] * 20),
            (("info", 51, 72),),
        ),
    )

    def reads(self, series: Series) -> bool:
        training = series.stream.partition(".")[0] in ("train", "rollout")
        return training and series.metric in EARNINGS and series.stat in ("", "mean")

    def sign(self, series: Series) -> int:
        return 1

    def describe(self, series: Series, episode: Episode) -> Finding:
        facts = episode.facts
        message = (
            f"{where(series)} fell from {facts['best']:.4g} (step {facts['best_step']:,}) to {facts['lowest']:.4g} "
            f"since step {episode.start:,}: {_share(facts)}"
        )
        severity = "info" if "recovered" in facts else "critical"
        return finding(self, series, episode, severity, message + recovery(facts), SUGGESTION)


def _share(facts: dict[str, float]) -> str:
    drop, gain, noise = facts["best"] - facts["lowest"], facts["gain"], facts["noise"]
    if gain > 0 and drop <= gain:
        return f"{drop / gain:.0%} of all it had gained"
    if gain > LEARNED * noise:
        return "all it had gained and more"
    return f"{times(drop / noise)} × its noise" if noise > 0 else "after being constant"


SUGGESTION = (
    "go back to the checkpoint before the fall; look at outputs of that step for a hack or for collapse into one answer; lower the "
    "learning rate, raise the KL or entropy term, and check that groups still differ (frac_reward_zero_std)"
)
