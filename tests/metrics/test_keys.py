"""How the keys of each framework are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwatch.metrics import METRICS, Axes, resolve
from gradwatch.metrics.catalogue import by_alias


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # Hugging Face Trainer and TRL
        ("loss", Axes("loss")),
        ("eval_loss", Axes("loss", "eval")),
        ("grad_norm", Axes("grad_norm")),
        ("learning_rate", Axes("learning_rate")),
        ("train/grad_norm", Axes("grad_norm")),
        ("reward", Axes("reward")),
        ("reward_std", Axes("reward", stat="std")),
        ("rewards/format_reward/mean", Axes("reward_component", stat="mean", scope="format_reward")),
        ("eval_rewards/format_reward/std", Axes("reward_component", "eval", "std", scope="format_reward")),
        ("frac_reward_zero_std", Axes("frac_reward_zero_std")),
        ("completions/mean_length", Axes("response_length", stat="mean")),
        ("completions/max_terminated_length", Axes("terminated_length", stat="max")),
        ("completions/clipped_ratio", Axes("clipped_ratio")),
        ("clip_ratio/high_max", Axes("clip_fraction_high", stat="max")),
        ("clip_ratio/region_mean", Axes("clip_fraction", stat="mean")),
        ("sampling/sampling_logp_difference/max", Axes("logp_difference", stat="max")),
        ("sampling/importance_sampling_ratio/min", Axes("importance_ratio", stat="min")),
        ("tools/failure_frequency", Axes("failure_frequency")),
        ("num_tokens", Axes("num_tokens")),
        ("eval_wer", Axes("wer", "eval")),
        # verl and Dr. MAS
        ("actor/grad_norm", Axes("grad_norm", policy="actor")),
        ("critic/grad_norm", Axes("grad_norm", policy="critic")),
        ("actor/lr", Axes("learning_rate")),
        ("actor/entropy", Axes("entropy")),
        ("actor/entropy_loss", Axes("entropy")),
        ("actor/pg_loss", Axes("policy_loss")),
        ("actor/pg_clipfrac", Axes("clip_fraction")),
        ("actor/ppo_kl", Axes("approx_kl")),
        ("critic/score/mean", Axes("score", stat="mean")),
        ("critic/rewards/max", Axes("reward", stat="max")),
        ("critic/advantages/min", Axes("advantage", stat="min")),
        ("critic/returns/mean", Axes("return_target", stat="mean")),
        ("response_length/mean", Axes("response_length", stat="mean")),
        ("response_length/clip_ratio", Axes("clipped_ratio")),
        ("training/global_step", Axes("step")),
        ("val-core/gsm8k/acc/mean@8", Axes("accuracy", "eval", "mean@8", scope="gsm8k")),
        ("val-aux/aime_2024/reward/mean@16", Axes("reward", "eval", "mean@16", scope="aime_2024")),
        ("actor/Qwen2.5-7B_Search Agent/grad_norm", Axes("grad_norm", role="Search Agent", policy="Qwen2.5-7B_Search Agent")),
        ("adv_std/Search Agent/mean", Axes("adv_std", stat="mean", role="Search Agent")),
        ("adv_norm/Verifier/max", Axes("adv_norm", stat="max", role="Verifier")),
        # prime-rl: {train|eval}/{env}/{agent}/{metric}/{stat}
        ("train/math/solver/reward/mean", Axes("reward", stat="mean", role="solver", scope="math")),
        ("eval/search/verifier/entropy/max", Axes("entropy", "eval", "max", role="verifier", scope="search")),
        # stable-baselines3
        ("rollout/ep_rew_mean", Axes("reward", "rollout", "mean")),
        ("rollout/ep_len_mean", Axes("episode_length", "rollout", "mean")),
        ("train/entropy_loss", Axes("negative_entropy")),
        ("train/value_loss", Axes("value_loss")),
        ("eval/mean_reward", Axes("reward", "eval", "mean")),
        ("time/fps", Axes("throughput")),
        # multi-agent CSV
        ("train/orchestrator/entropy", Axes("entropy", role="orchestrator")),
        ("collection/ghas/reward/episode_reward_mean", Axes("reward", "rollout", "mean", role="ghas")),
        ("train/ghas/grad_norm_loss_critic", Axes("grad_norm", role="ghas", scope="loss_critic")),
        # verl's rollout correction, prime-rl's mismatch
        ("rollout_corr/k3_kl", Axes("rollout_kl")),
        ("rollout_corr/kl", Axes("rollout_kl_k1")),
        ("rollout_corr/chi2_token", Axes("chi2_token")),
        ("rollout_corr/training_ppl", Axes("perplexity")),
        ("mismatch_kl/mean", Axes("rollout_kl", stat="mean")),
        # ours: a metric and its statistic
        ("importance_ratio/max", Axes("importance_ratio", stat="max")),
        ("reward/std", Axes("reward", stat="std")),
        ("critic/rewards/std", Axes("reward", stat="std")),
        ("reward/count", Axes("reward", stat="count")),
        ("advantage/nonfinite", Axes("advantage", stat="nonfinite")),
        ("reward_component/length/mean", Axes("reward_component", stat="mean", scope="length")),
        ("solver/kl/max", Axes("kl", stat="max", role="solver")),
        ("grad_norm_per_share", Axes("grad_norm_per_share")),
        ("train/std", Axes("action_std")),
        # instances and ranks
        ("train/generator-0/grad_norm", Axes("grad_norm", role="generator", agent="generator-0")),
        ("rank0/grad_norm", Axes("grad_norm", rank=0)),
        ("train/rank_3/loss", Axes("loss", rank=3)),
        # others
        ("val_loss", Axes("loss", "eval")),
        ("Loss/val", Axes("loss", "eval")),
        ("Accuracy/test", Axes("accuracy", "eval")),
        ("Average Episodic Reward/info", Axes("reward", stat="mean")),
        ("layers/3/grad_norm", Axes("grad_norm", scope="layers/3")),
        ("val loss", Axes("loss", "eval")),
        ("train loss", Axes("loss")),
        ("test accuracy", Axes("accuracy", "eval")),
        ("solver/eval/accuracy", Axes("accuracy", "eval", role="solver")),
        ("layer_3/grad_norm", Axes("grad_norm", scope="layer/3")),
        ("lm loss", Axes("loss")),
        ("grad norm", Axes("grad_norm")),
    ],
)
def test_a_frameworks_key_becomes_axes(key: str, expected: Axes) -> None:
    assert resolve(key) == expected


UNKNOWN = (
    "max_grad_norm",
    "rewards/chosen",
    "rewards/margins",
    "best_episode_reward",
    "my/own/thing",
    "eval_runtime",
    "clip_grad_norm",
    "",
    "/",
    "a" * 10_000,
)


@pytest.mark.parametrize("key", UNKNOWN)
def test_an_unknown_key_keeps_its_own_name(key: str) -> None:
    assert resolve(key).metric == key


def test_the_sign_turned_entropy_is_no_entropy() -> None:
    assert resolve("train/entropy_loss").metric != resolve("actor/entropy_loss").metric


@given(st.text())
def test_any_key_is_accepted(key: str) -> None:
    assert resolve(key).metric or not key


def test_every_metric_is_listed_once_and_its_names_lead_to_it() -> None:
    names = [one.name for one in METRICS]
    assert len(names) == len(set(names))
    claimed = [alias for one in METRICS for alias in (one.name, *one.aliases)]
    assert sorted(claimed) == sorted(by_alias())
    assert all(one.better in ("min", "max", "") and one.unit and one.meaning for one in METRICS)
