"""What the models said: rollouts as text, and what they earned."""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One rollout's text and numbers: what a role was asked and answered at a step, and what it earned.

    `attempt` 0 stands for the attempt of the process that logs it.
    """

    step: int
    role: str = ""
    agent: str = ""
    turn: int = 0
    group: str = ""
    prompt: str = ""
    output: str = ""
    rewards: dict[str, float] = {}
    advantage: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    format_valid: bool | None = None
    influence: float | None = None
    flags: int = 0
    attempt: int = 0
