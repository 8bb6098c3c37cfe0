"""Hooks for verl: a logger for its `Tracking`, and role gradients inside its workers.

Importing this package makes `gradwatch` a logger that verl knows. verl imports it by itself, in each of its processes, where
gradwatch is installed (entry point of the group `verl.plugins`); `VERL_USE_EXTERNAL_MODULES=gradwatch_hooks.verl` does the same.
Forks without plugins import it in Ray's `worker_process_setup_hook`, or anywhere before `Tracking` is made.

    trainer.logger='["console","gradwatch"]'                      # what the trainer logs
    watch_engines(roles=["solver", "verifier"])                   # what each role adds to the gradients, in the workers
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradwatch_hooks.verl.tracking import TrackingSink, install

if TYPE_CHECKING:
    from gradwatch_hooks.verl.dr_mas import watch_dp_actor
    from gradwatch_hooks.verl.role_ids import add_role_ids
    from gradwatch_hooks.verl.rollouts import samples_of
    from gradwatch_hooks.verl.worker import watch_engines, watch_worker

__all__ = ["TrackingSink", "add_role_ids", "install", "samples_of", "watch_dp_actor", "watch_engines", "watch_worker"]

# Loaded where they are used: verl imports this package in every process, and hides what fails then.
_ELSEWHERE = {
    "watch_dp_actor": "dr_mas",
    "add_role_ids": "role_ids",
    "samples_of": "rollouts",
    "watch_engines": "worker",
    "watch_worker": "worker",
}

install()


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
