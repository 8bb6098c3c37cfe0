import math

import pytest

from gradwatch.exporters.prometheus.gauges import GAUGES, exported
from gradwatch.schema import Point, Series

GAUGE = {one.name.removeprefix("gradwatch_"): one for one in GAUGES}


def value(gauge: str, *series: tuple[Series, float]) -> dict[str, float]:
    return exported([Point(one, 7, number) for one, number in series]).get(GAUGE[gauge].name, {})


@pytest.mark.parametrize(
    ("gauge", "series"),
    [
        ("grad_norm", Series("grad_norm", role="solver")),
        ("grad_share_ratio", Series("grad_share", role="solver")),
        ("perplexity", Series("perplexity", role="solver")),
        ("entropy_nats", Series("entropy", role="solver", stat="mean")),
        ("reward_mean", Series("reward", role="solver", stat="mean")),
        ("reward_std", Series("reward", role="solver", stat="std")),
        ("inflation_ratio", Series("inflation_ratio", role="solver")),
    ],
)
def test_each_gauge_shows_its_metric_and_no_other_gauge_does(gauge: str, series: Series) -> None:
    shown = {name: value(name, (series, 0.5)) for name in GAUGE}
    assert shown == {name: {"solver": 0.5} if name == gauge else {} for name in GAUGE}


def test_every_gauge_of_the_public_contract_is_there() -> None:
    assert set(GAUGE) == set("grad_norm grad_share_ratio perplexity entropy_nats reward_mean reward_std inflation_ratio".split())


def test_the_whole_model_speaks_and_a_module_never_does() -> None:
    module = Series("grad_norm", scope="layers.0")
    assert value("grad_norm", (module, 9.0)) == {}
    assert value("grad_norm", (module, 9.0), (Series("grad_norm"), 1.0)) == {"": 1.0}


def test_training_comes_before_rollouts_and_an_evaluation_never_counts() -> None:
    rollout, held_out = Series("reward", stream="rollout", stat="mean"), Series("reward", stream="eval", stat="mean")
    assert value("reward_mean", (held_out, 0.9)) == {}
    assert value("reward_mean", (held_out, 0.9), (rollout, 0.4)) == {"": 0.4}
    assert value("reward_mean", (rollout, 0.4), (Series("reward", stat="mean"), 0.5)) == {"": 0.5}


def test_all_ranks_together_come_before_one_rank_and_the_lowest_before_the_others() -> None:
    one, three, together = Series("grad_norm", rank=1), Series("grad_norm", rank=3), Series("grad_norm")
    assert value("grad_norm", (three, 3.0), (one, 1.0)) == {"": 1.0}
    assert value("grad_norm", (three, 3.0), (one, 1.0), (together, 2.0)) == {"": 2.0}


def test_a_role_comes_before_its_agents_and_the_first_agent_stands_in_for_it() -> None:
    first, second = (Series("entropy", role="generator", agent=f"generator-{n}") for n in (0, 1))
    assert value("entropy_nats", (first, 1.0), (second, 2.0)) == {"generator": 1.0}
    assert value("entropy_nats", (first, 1.0), (Series("entropy", role="generator"), 3.0)) == {"generator": 3.0}


def test_a_reward_without_a_statistic_is_a_mean() -> None:
    assert value("reward_mean", (Series("reward"), 0.3)) == {"": 0.3}
    assert value("reward_mean", (Series("reward"), 0.3), (Series("reward", stat="mean"), 0.4)) == {"": 0.4}
    assert value("reward_mean", (Series("reward", stat="max"), 1.0)) == {}


def test_a_negative_entropy_is_turned_round_and_gives_way_to_an_entropy() -> None:
    negative = Series("negative_entropy")
    assert value("entropy_nats", (negative, -1.5)) == {"": 1.5}
    assert value("entropy_nats", (negative, -1.5), (Series("entropy"), 1.4)) == {"": 1.4}


def test_values_that_are_not_finite_are_shown_as_they_are() -> None:
    shown = value(
        "grad_norm",
        (Series("grad_norm", role="nan"), math.nan),
        (Series("grad_norm", role="up"), math.inf),
        (Series("grad_norm", role="down"), -math.inf),
    )
    assert math.isnan(shown["nan"])
    assert (shown["up"], shown["down"]) == (math.inf, -math.inf)
