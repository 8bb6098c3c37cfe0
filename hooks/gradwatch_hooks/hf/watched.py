"""A trainer that is watched: what was put onto it, and how it is taken off again."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from transformers import Trainer

from gradwatch.errors import SettingsError
from gradwatch_hooks.hf.callback import GradwatchCallback
from gradwatch_hooks.hf.raw_loss import RawLoss
from gradwatch_hooks.torch import Watcher
from gradwatch_hooks.watching.own_methods import OwnMethods


class WatchedTrainer:
    """A trainer with a callback of ours, and with methods of its own instance wrapped; `unwatch` takes both off.

    Raises SettingsError where the trainer is watched already.
    """

    def __init__(self, trainer: Trainer, callback: GradwatchCallback) -> None:
        if any(isinstance(one, GradwatchCallback) for one in trainer.callback_handler.callbacks):
            raise SettingsError("this trainer has a GradwatchCallback already: unwatch() it first, or leave the callback out")
        self.trainer = trainer
        self.callback = callback
        self.methods = OwnMethods(trainer)
        trainer.add_callback(callback)
        if trainer.args.logging_nan_inf_filter:
            callback.raw_loss = RawLoss()
            self.methods.wrap("training_step", self._training_step)
        self.methods.wrap("train", self._train)

    @property
    def watcher(self) -> Watcher | None:
        """The watcher of the model, None while it does not train."""
        return self.callback.watcher

    def unwatch(self) -> None:
        """Leave the trainer and its model as they were."""
        self.methods.restore()
        self.callback.end()
        self.trainer.remove_callback(self.callback)

    def __enter__(self) -> WatchedTrainer:
        """The watched trainer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """`unwatch`."""
        self.unwatch()

    def _train(self, train: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # The trainer tells its callbacks nothing of an error or an interrupt.
        try:
            return train(*args, **kwargs)
        finally:
            self.callback.end()

    def _training_step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loss = step(*args, **kwargs)
        with self.callback.guard.within("the loss of a batch"):
            if self.callback.raw_loss is not None:
                self.callback.raw_loss.add(loss)
        return loss
