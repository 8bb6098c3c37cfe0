"""Which names on a console look like a step, a metric or a setting: console text has no schema, so names must do."""

from __future__ import annotations

import re
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Plurals are left out: `epochs: 10` is a setting.
STEP_NAMES = _words("""
    step global_step global_steps training_step current_steps iter iteration it epoch update episode timestep
    total_timesteps num_timesteps
""")
_METRIC_WORDS = _words("""
    loss losses reward rewards score scores entropy kl perplexity ppl accuracy acc return returns advantage advantages
    variance f1 bleu rouge auc mse mae rmse runtime gradnorm elbo nll ess clipfrac success mfu
""")
_SETTING_WORDS = _words("""
    coef coeff coefficient weight weights type scale scaling fn func function lambda alpha beta gamma eps epsilon path
    name file dir threshold patience interval every num size range shape dim config args version port seed model
    enable use target estimator penalty
""")
_SETTINGS = frozenset({"max_grad_norm", "clip_grad_norm", "kl_ctrl", "use_kl_loss", "init_kl"})
_SPLIT = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=4096)
def is_step_name(name: str) -> bool:
    """Whether the name says where on the step axis a line stands, such as `Iter` or `global step`."""
    return _SPLIT.sub("_", name.strip().lower()).strip("_").removeprefix("train_") in STEP_NAMES


@lru_cache(maxsize=4096)
def is_metric_name(name: str) -> bool:
    """Whether the name is surely a measured thing; `kl_coef` and `reward_fn` are settings about one."""
    lowered = name.strip().lower()
    words = [word for word in _SPLIT.split(lowered) if word]
    if lowered in _SETTINGS or not _SETTING_WORDS.isdisjoint(words):
        return False
    return not _METRIC_WORDS.isdisjoint(words) or ("grad" in words and "norm" in words)
