"""What is used of Lightning, under whichever of its two names it is installed."""

from __future__ import annotations

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.utilities import rank_zero_only
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("lightning"):
        raise
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]
        from pytorch_lightning.loggers import Logger  # type: ignore[assignment]
        from pytorch_lightning.utilities import rank_zero_only
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pytorch_lightning"):
            raise
        raise ModuleNotFoundError("gradwatch_hooks.lightning needs Lightning: pip install lightning", name="lightning") from error

__all__ = ["Callback", "LightningModule", "Logger", "Trainer", "rank_zero_only"]
