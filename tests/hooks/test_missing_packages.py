"""Hooks into packages that are not there, and Lightning under its other name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def program(code: str, *missing: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in which packages cannot be imported."""
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("hook", "missing", "says"),
    [
        ("lightning", ("lightning", "lightning.pytorch", "pytorch_lightning"), "pip install lightning"),
        ("accelerate", ("accelerate",), "pip install accelerate"),
    ],
)
def test_a_hook_names_the_package_that_it_needs(tmp_path: Path, hook: str, missing: tuple[str, ...], says: str) -> None:
    done = program(f"import gradwatch_hooks.{hook}", *missing, folder=tmp_path)
    assert says in done.stderr.splitlines()[-1]


TRAIN = """
import pytorch_lightning as pl, torch, gradwatch
from gradwatch_hooks.lightning import GradwatchCallback

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
    def training_step(self, x, index):
        return self.net(x).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

norms = []
gradwatch.init(mode="offline", quiet=True)
callback = GradwatchCallback(on_record=lambda record: norms.append(record.grad_norm))
trainer = pl.Trainer(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[callback])
trainer.fit(Module(), torch.utils.data.DataLoader([torch.ones(2, 2)] * 2, batch_size=None))
print(norms)
"""


def test_lightning_may_be_installed_as_pytorch_lightning_alone(tmp_path: Path) -> None:
    done = program(TRAIN, "lightning", "lightning.pytorch", folder=tmp_path)
    assert done.stdout.count("1.7320") == 2, done.stderr  # √3: two weights and a bias with a gradient of 1
