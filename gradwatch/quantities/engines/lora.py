"""The engine `lora`: the exact gradients of low-rank adapters, small enough to be held whole."""

from __future__ import annotations

from gradwatch.quantities.engines.tapped import Tapped


class LoRA(Tapped):
    """`Exact` where the trained weights are small: each speaker's are held, K times their size in float32.

    They add up exactly over passes and processes. A larger weight that trains beside them is measured as `Exact` measures it.
    Source of the adapters: Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models"; those of PEFT are linear maps.
    """

    name = "lora"
    small = 1 << 22
