"""What `VERL_USE_EXTERNAL_MODULES` has verl import in each process of a job: the CPU as its device, and watched engines."""

from __future__ import annotations

import torch
from hooks.verl_real.cpu_platform import use_cpu  # noqa: TID251 - the folder of these tests

from gradwatch_hooks.verl import watch_engines

torch.set_num_threads(1)
use_cpu()
watch_engines(roles=["solver", "verifier"], max_overhead=None)
