"""The hook for Lightning: gradients by role, what `self.log` records, and checkpoints of a training, at Lightning's own steps.

from gradwatch_hooks.lightning import GradwatchCallback, GradwatchLogger

trainer = Trainer(logger=GradwatchLogger(project="maze"), callbacks=[GradwatchCallback()])
"""

from __future__ import annotations

from gradwatch_hooks.pl.callback import GradwatchCallback
from gradwatch_hooks.pl.logger import GradwatchLogger

__all__ = ["GradwatchCallback", "GradwatchLogger"]
