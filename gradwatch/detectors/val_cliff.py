"""`val_cliff`: the held-out metric turns and falls away from its best."""

from __future__ import annotations

import math
from typing import ClassVar

from gradwatch.detectors.base import Case, Episode, Parameter, finding, where
from gradwatch.detectors.decline import DeclineDetector, Rule, recovery
from gradwatch.metrics import metric
from gradwatch.schema import Finding, Series

RULE = Rule(
    smoothing=lambda _: 3,
    widest=3,
    noise_factor=lambda count: 1 + math.sqrt(2 * math.log(max(count, 2))),
    loss_of_gain=0.5,
    loss_of_level=0.1,
    hold=1,
    raw_best=True,
)
HELD_OUT = frozenset(
    "loss perplexity reward score accuracy success_rate pass_rate f1 bleu rouge map wer cer error format_valid".split()
)


class ValCliff(DeclineDetector):
    """Fires where the median of three evaluations lost half of what the best one had gained (or 10 % of a level never bettered).

    Why: the last checkpoint is then not the best one, and what the run optimises is no longer what it is judged by.
    The best of n noisy values exceeds their mean by about σ√(2 ln n), so the drop must exceed that and one σ more.
    Known false alarms: a held-out loss rises while the task's own metric still improves; an RL run's `eval_loss`, which is a
    surrogate near zero.
    Source: ours; extreme-value bound of Gaussian noise. Compared with SageMaker Debugger's Overfit rule.
    """

    name: ClassVar[str] = "val_cliff"
    kind: ClassVar[str] = "val_cliff"
    rule: ClassVar[Rule] = RULE
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("loss_of_gain", RULE.loss_of_gain, "ratio", "ours: half of what was learned is gone"),
        Parameter("loss_of_level", RULE.loss_of_level, "ratio", "ours: where nothing was learned, part of the level itself"),
    )
    HEALTHY: ClassVar[tuple[Case, ...]] = (
        Case("falls and flattens", "loss", tuple(1 + 1 / (1 + i) for i in range(30)), stream="eval"),
        Case(
            "noise about a level",
            "accuracy",
            tuple(0.7 + 0.05 * math.sin(2.39996 * i * i) for i in range(60)),
            stream="eval",
        ),
        Case("one bad evaluation", "accuracy", (0.3, 0.4, 0.5, 0.6, 0.1, 0.62, 0.65), stream="eval"),
    )
    SICK: ClassVar[tuple[Case, ...]] = (
        Case("overfits", "loss", (1.2, 1.0, 0.92, 0.91, 0.95, 1.0, 1.06, 1.11, 1.15, 1.2), (("warning", 8, 10),), stream="eval"),
        Case("worse from the start", "loss", (0.32, 0.36, 0.39, 0.41, 0.42), (("warning", 4, 5),), stream="eval"),
        Case(
            "accuracy falls off",
            "accuracy",
            (0.2, 0.4, 0.6, 0.7, 0.71, 0.7, 0.2, 0.1, 0.1, 0.1),
            (("warning", 7, 10),),
            stream="eval",
        ),
    )

    def reads(self, series: Series) -> bool:
        held_out = series.stream.partition(".")[0] == "eval" and series.metric in HELD_OUT
        return held_out and series.stat.partition("@")[0] in ("", "mean")

    def sign(self, series: Series) -> int:
        known = metric(series.metric)
        return -1 if known is not None and known.better == "min" else 1

    def describe(self, series: Series, episode: Episode) -> Finding:
        facts, sign = episode.facts, self.sign(series)
        verb = "rose" if sign < 0 else "fell"
        message = (
            f"held-out {where(series)} {verb} from {sign * facts['best']:.4g} (its best, step {facts['best_step']:,}) to "
            f"{sign * facts['lowest']:.4g} since step {episode.start:,}"
        )
        severity = "info" if "recovered" in facts else "warning"
        return finding(self, series, episode, severity, message + recovery(facts), SUGGESTION)


SUGGESTION = (
    "keep the checkpoint of the best step instead of the last; stop earlier, or regularise (fewer epochs, lower learning rate, "
    "more data, KL to the reference policy)"
)
