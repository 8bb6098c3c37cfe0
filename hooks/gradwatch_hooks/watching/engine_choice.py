"""Which engine measures a batch: the user's, or the cheapest that is true for it and changes no gradient bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from gradwatch.errors import SettingsError
from gradwatch.quantities.engines.backwards import Backwards
from gradwatch.quantities.engines.engine import Engine, Target
from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.lora import LoRA
from gradwatch.quantities.engines.micro import Micro
from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.engines.split import Split
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.unavailable import Unavailable

AUTO = "auto"
ENGINES: dict[str, Callable[[Target], Engine]] = {one.name: one for one in (Micro, LoRA, Neutral, Exact, Split, Backwards)}


class EngineChoice:
    """Engines of one model, each made when it is first needed.

    `auto`: micro-batches of one speaker → micro; a model of which only LoRA weights train → lora; mixed batches → neutral;
    sequences in which several roles speak → backwards. A mixed batch makes all steps after it be measured as mixed, since what the
    engines measure cannot be added up across them. Raises SettingsError for a name that there is not.
    """

    def __init__(self, name: str, target: Callable[[], Target]) -> None:
        if name != AUTO and name not in ENGINES:
            raise SettingsError(f"engine={name!r}: choose among {AUTO}, {', '.join(ENGINES)}")
        self._name = name
        self._make_target = target
        self._made: dict[str, Engine] = {}
        self._is_mixed = False
        self._speaks_within = False

    def _target(self) -> Target:
        target = self._make_target()
        return replace(target, may_trace=False) if self._name == AUTO else target

    def of(self, batch: BatchRoles) -> Engine | Unavailable:
        """The engine for a batch."""
        if self._name != AUTO:
            return self._engine(self._name)
        self._speaks_within = self._speaks_within or batch.is_mixed_within
        self._is_mixed = self._is_mixed or batch.only_speaker is None
        if self._speaks_within:
            return self._engine("backwards")
        if not self._is_mixed:
            return self._engine("micro")
        target = self._target()
        if is_compiled(target.model):
            return Unavailable(
                "several roles in one backward of a compiled model: taps would change what is compiled, and so its rounding. Give "
                "each role its own micro-batch, or choose engine='split' or 'exact' and watch before the model's first call"
            )
        return self._engine("lora" if trains_only_lora(target) else "neutral")

    def mixed(self) -> None:
        """Some process saw a mixed batch: from now on all measure as for such."""
        self._is_mixed = True

    def clear(self) -> None:
        """Begin the next step with every engine."""
        for engine in self._made.values():
            engine.clear()

    def detach(self) -> None:
        """Leave the model as it was."""
        for engine in self._made.values():
            engine.detach()
        self._made = {}

    def _engine(self, name: str) -> Engine:
        engine = self._made.get(name)
        if engine is None:
            engine = self._made[name] = ENGINES[name](self._target())
        return engine


def is_compiled(model: nn.Module) -> bool:
    """Whether `torch.compile` was applied to a model or to a part of it."""
    return any(hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) is not None for one in model.modules())


def trains_only_lora(target: Target) -> bool:
    """Whether all weights that train are low-rank adapters."""
    trained = [one.name for one in target.parameters if one.parameter.requires_grad]
    return bool(trained) and all("lora_" in name for name in trained)
