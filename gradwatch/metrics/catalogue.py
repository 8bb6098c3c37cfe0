"""Every metric that gradwatch knows: its unit, the direction that is better, its meaning, and its names elsewhere.

An alias is written in lower case, without the stream (`eval/`, `val_`), the statistic (`_mean`, `/max`) and the names of roles
and ranks: `keys.resolve` takes those off before it looks here.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric. `better` is "min", "max" or "" where neither end is better."""

    name: str
    unit: str
    better: str
    meaning: str
    aliases: tuple[str, ...] = ()


def _gradients() -> tuple[Metric, ...]:
    return (
        Metric(
            "grad_norm",
            "1",
            "",
            "L2 norm of the gradient before clipping",
            (
                "gradient_norm",
                "gnorm",
                "grad norm",
                "total_norm",
                "grad_norm_before_clip",
                "global_grad_norm",
                "gradnorm",
            ),
        ),
        Metric("update_to_weight_ratio", "ratio", "", "‖Δw‖ / ‖w‖ of one optimizer step", ("update_ratio",)),
        Metric("grad_share", "ratio", "", "⟨g_k, g⟩/‖g‖² of role k; sums to 1, may be negative", ()),
        Metric("instance_coherence", "1", "", "‖Σg‖²/Σ‖g‖² over a role's instances; 1 = independent, k = aligned", ()),
        Metric("loss_scale", "1", "", "AMP loss scale", ("scale", "loss scale", "amp_scale", "grad_scale")),
        Metric("num_zeros", "count", "", "zero entries in the gradient (Megatron)", ("num zeros",)),
        Metric(
            "param_norm",
            "1",
            "",
            "L2 norm of the weights",
            ("params norm", "params_norm", "parameter_norm", "weight_norm"),
        ),
    )


def _losses() -> tuple[Metric, ...]:
    return (
        Metric(
            "loss",
            "nats",
            "min",
            "the loss that is minimised",
            ("total_loss", "lm loss", "lm_loss", "loss_total", "training_loss", "nll_loss", "ce_loss", "epoch_loss"),
        ),
        Metric(
            "policy_loss",
            "1",
            "",
            "policy-gradient part of the loss; its value says little",
            (
                "pg_loss",
                "policy_gradient_loss",
                "actor_loss",
                "loss_actor",
                "loss_pg",
                "loss_objective",
                "loss/policy_gradient_loss",
                "policy/pg_loss",
            ),
        ),
        Metric(
            "value_loss",
            "1",
            "min",
            "critic's regression loss (no validation loss)",
            (
                "vf_loss",
                "critic_loss",
                "critic/loss",
                "critic/vf_loss",
                "loss_critic",
                "value_function_loss",
                "loss/value_function_loss",
            ),
        ),
        Metric("kl_loss", "nats", "", "KL term of the loss", ("loss_kl",)),
        Metric(
            "perplexity",
            "1",
            "min",
            "exp of the mean negative log-likelihood",
            ("ppl", "lm loss ppl", "training_ppl", "epoch_perplexity", "perplexity_step", "perplexity_epoch"),
        ),
        Metric(
            "entropy",
            "nats",
            "",
            "mean policy entropy per token or action",
            ("policy_entropy", "actor_entropy", "actor/entropy_loss", "objective/entropy"),
        ),
        Metric(
            "negative_entropy",
            "nats",
            "",
            "entropy with its sign turned, as Stable-Baselines3 logs it",
            ("entropy_loss",),
        ),
        Metric(
            "kl",
            "nats",
            "",
            "KL to the reference policy",
            ("kl_avg", "objective/kl", "reverse_kl", "actor/reward_kl_penalty", "ref_kl", "kl_divergence"),
        ),
        Metric(
            "approx_kl",
            "nats",
            "",
            "estimated KL of one update",
            (
                "ppo_kl",
                "kl_approx",
                "approxkl",
                "loss/approximate_kullback-leibler",
                "approximate_kullback_leibler",
                "policy/approxkl_avg",
            ),
        ),
    )


def _rewards() -> tuple[Metric, ...]:
    return (
        Metric(
            "reward",
            "1",
            "max",
            "what the policy is trained on, mean over rollouts",
            (
                "rewards",
                "return",
                "returns_episode",
                "episode_reward",
                "ep_rew",
                "episode_return",
                "episodic_return",
                "r",
                "objective/scores",
                "avg_reward",
                "team_reward",
                "outcome_reward",
            ),
        ),
        Metric("score", "1", "max", "task score before penalties", ("scores", "objective/rlhf_reward", "task_score")),
        Metric("reward_component", "1", "max", "one reward function's part; `scope` names the function", ()),
        Metric(
            "frac_reward_zero_std",
            "ratio",
            "min",
            "share of groups in which every rollout earned the same",
            ("frac_zero_std", "zero_std_ratio", "frac_groups_zero_std"),
        ),
        Metric("advantage", "1", "", "advantages after normalisation", ("advantages", "adv", "input_info/advantage")),
        Metric("adv_norm", "1", "", "norm of one agent's advantages (Dr. MAS)", ()),
        Metric("adv_std", "1", "", "standard deviation of one agent's advantages (Dr. MAS)", ()),
        Metric(
            "inflation_ratio",
            "ratio",
            "",
            "(σ_k² + (μ_k − μ)²)/σ², by which a global baseline inflates role k (Dr. MAS, lemma 4.2)",
            ("inflation_factor",),
        ),
        Metric("mean_gap", "1", "", "μ_k − μ of one agent (Dr. MAS)", ()),
        Metric("var_ratio", "ratio", "", "σ_k²/σ² of one agent (Dr. MAS)", ()),
        Metric("value", "1", "", "the critic's value estimates", ("values", "vf_preds", "value_estimate")),
        Metric(
            "return_target",
            "1",
            "",
            "the critic's regression targets",
            ("returns", "discounted_rewards", "input_info/discounted_rewards"),
        ),
        Metric(
            "explained_variance",
            "ratio",
            "max",
            "1 − Var[return − value]/Var[return]",
            ("vf_explained_var", "explained variance"),
        ),
    )


def _policy() -> tuple[Metric, ...]:
    return (
        Metric(
            "clip_fraction",
            "ratio",
            "",
            "share of tokens whose ratio was clipped",
            (
                "clipfrac",
                "pg_clipfrac",
                "clip_frac",
                "clip_ratio",
                "clip_factor",
                "loss/clip_factor",
                "clip_ratio/region",
                "policy/clipfrac_avg",
            ),
        ),
        Metric("clip_fraction_low", "ratio", "", "share clipped from below", ("clip_ratio/low", "pg_clipfrac_lower")),
        Metric("clip_fraction_high", "ratio", "", "share clipped from above", ("clip_ratio/high",)),
        Metric(
            "importance_ratio",
            "ratio",
            "",
            "π_new/π_old per token",
            ("ratio", "sampling/importance_sampling_ratio", "importance_sampling_ratio", "ppo_ratio"),
        ),
        Metric(
            "logp_difference",
            "nats",
            "",
            "|log π_train − log π_rollout|",
            ("sampling/sampling_logp_difference", "sampling_logp_difference", "rollout_probs_diff"),
        ),
        Metric("chi2_token", "1", "", "E[ρ²] − 1 over tokens", ()),
        Metric("effective_sample_size", "ratio", "max", "ESS of the importance weights", ("ess",)),
        Metric("action_std", "1", "", "standard deviation of a Gaussian policy", ("policy_std", "std")),
    )


def _text() -> tuple[Metric, ...]:
    return (
        Metric(
            "response_length",
            "tokens",
            "",
            "tokens of the sampled output",
            (
                "completion_length",
                "completions/length",
                "completions",
                "response_len",
                "resp_len",
                "output_length",
                "gen_len",
                "val/response_length",
            ),
        ),
        Metric(
            "terminated_length",
            "tokens",
            "",
            "tokens of outputs that ended by themselves",
            ("completions/terminated_length",),
        ),
        Metric(
            "clipped_ratio",
            "ratio",
            "min",
            "share of outputs cut at the length limit",
            (
                "completions/clipped_ratio",
                "response_length/clip_ratio",
                "truncation_rate",
                "response/clip_ratio",
                "truncated_ratio",
            ),
        ),
        Metric("prompt_length", "tokens", "", "tokens of the prompt", ("prompt_len", "input_length")),
        Metric("prompt_clipped_ratio", "ratio", "min", "share of prompts cut at the limit", ("prompt_length/clip_ratio",)),
        Metric(
            "episode_length",
            "steps",
            "",
            "environment steps of one episode",
            ("ep_len", "episode_steps", "l", "ep_length", "episode_len", "length"),
        ),
        Metric(
            "format_valid",
            "ratio",
            "max",
            "share of outputs in the required format",
            ("format_valid_rate", "valid_action", "format_mean", "valid_ratio"),
        ),
        Metric(
            "call_frequency",
            "ratio",
            "",
            "share of turns in which a role was called",
            ("tools/call_frequency", "call_freq"),
        ),
        Metric("failure_frequency", "ratio", "min", "share of calls that failed", ("tools/failure_frequency",)),
    )


def _scores() -> tuple[Metric, ...]:
    return (
        Metric(
            "accuracy",
            "ratio",
            "max",
            "share of right answers",
            (
                "acc",
                "accuracies",
                "token_accuracy",
                "final_answer_accuracy",
                "correct_rate",
                "exact_match",
                "em",
                "top1",
                "rewards/accuracies",
            ),
        ),
        Metric(
            "success_rate",
            "ratio",
            "max",
            "share of solved episodes",
            ("success", "win_rate", "winrate", "is_success", "solve_rate"),
        ),
        Metric("pass_rate", "ratio", "max", "pass@k", ("pass@1", "pass", "avg@n", "pass_at_1", "pass_at_k")),
        Metric("f1", "ratio", "max", "F1 score", ("f1_score", "macro_f1", "micro_f1")),
        Metric("bleu", "1", "max", "BLEU", ("sacrebleu",)),
        Metric("rouge", "ratio", "max", "ROUGE", ("rouge1", "rouge2", "rougel", "rougelsum")),
        Metric("map", "ratio", "max", "mean average precision", ("map50", "map_50", "auc", "roc_auc", "auroc")),
        Metric("wer", "ratio", "min", "word error rate", ("word_error_rate",)),
        Metric("cer", "ratio", "min", "character error rate", ("character_error_rate",)),
        Metric("error", "1", "min", "error", ("mae", "mse", "rmse", "error_rate")),
    )


def _progress() -> tuple[Metric, ...]:
    return (
        Metric(
            "step",
            "steps",
            "",
            "the step itself",
            (
                "global_step",
                "_step",
                "current_steps",
                "iteration",
                "iter",
                "training/global_step",
                "trainer/global_step",
                "update",
                "timestep",
                "num_timesteps",
                "total_timesteps",
                "time/total_timesteps",
                "time/iterations",
                "iterations",
                "total/steps",
            ),
        ),
        Metric("epoch", "epochs", "", "passes over the data", ("training/epoch", "epochs", "total/epochs", "trainer/epoch")),
        Metric("learning_rate", "1", "", "learning rate", ("lr", "actor/lr", "critic/lr", "learning rate", "policy_lr")),
        Metric(
            "num_tokens",
            "tokens",
            "",
            "tokens seen so far",
            (
                "tokens",
                "num_input_tokens_seen",
                "tokens_seen",
                "total_tokens",
                "perf/total_num_tokens",
                "total_tokens_processed",
            ),
        ),
        Metric("episodes", "count", "", "episodes so far", ("time/episodes", "total/episodes", "rollout/episodes")),
        Metric(
            "step_time",
            "s",
            "min",
            "seconds a step",
            (
                "time_per_step",
                "timing_s/step",
                "perf/time_per_step",
                "iter_time_s",
                "step_time_s",
                "train_runtime",
                "train/time(s)",
                "elapsed time per iteration (ms)",
            ),
        ),
        Metric(
            "throughput",
            "1/s",
            "max",
            "work a second",
            (
                "perf/throughput",
                "samples_per_second",
                "steps_per_second",
                "tokens_per_second",
                "fps",
                "time/fps",
                "train_samples_per_second",
                "train_steps_per_second",
                "tok/s",
            ),
        ),
        Metric(
            "memory",
            "GB",
            "min",
            "device memory",
            ("perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb", "max_memory"),
        ),
    )


METRICS: tuple[Metric, ...] = (*_gradients(), *_losses(), *_rewards(), *_policy(), *_text(), *_scores(), *_progress())


@cache
def by_alias() -> dict[str, Metric]:
    """Every name and alias, each to its metric."""
    table: dict[str, Metric] = {}
    for one in METRICS:
        for alias in (one.name, *one.aliases):
            table.setdefault(alias, one)
    return table


@cache
def metric(name: str) -> Metric | None:
    """The catalogue's entry for a metric name, None for a name of the user's own."""
    found = by_alias().get(name)
    return found if found is not None and found.name == name else None
