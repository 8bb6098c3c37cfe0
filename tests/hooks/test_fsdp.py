"""The hook contract on models that are sharded over processes: FSDP2 and FSDP1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp
from contracts.hook_contract import HookContract
from contracts.hook_job import Job, first_norm
from loops.fsdp_ranks import ACCUMULATION, RANKS, flat, sharded, work
from loops.plain import PlainTorch
from torch import Tensor, nn

# Torch says that FSDP1 is the old one, and that one process has nothing to shard.
pytestmark = [pytest.mark.filterwarnings("ignore:FSDP:FutureWarning"), pytest.mark.filterwarnings("ignore:.*NO_SHARD")]


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sharding needs a process group, also over one process."""
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class FSDP2(PlainTorch):
    def wrapped(self, job: Job) -> nn.Module:
        return sharded(job.net())

    def weights(self, model: nn.Module) -> Mapping[str, Tensor]:
        return {name: one.full_tensor() for name, one in model.state_dict().items()}


class FSDP1(PlainTorch):
    def wrapped(self, job: Job) -> nn.Module:
        return flat(job.net())

    def clip(self, model: Any, most: float) -> None:
        model.clip_grad_norm_(most)


class TestFSDP2(HookContract):
    adapter: ClassVar = FSDP2()


class TestFSDP1(HookContract):
    """FSDP1 itself has to find the tensors in the model's output; it adds up gradients where no engine sees them."""

    adapter: ClassVar = FSDP1()
    may_answer_oddly: ClassVar = False
    knows_roles: ClassVar = False


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(folder),), nprocs=RANKS)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]


TRUTH = first_norm(Job(None, ranks=RANKS, accumulation=ACCUMULATION))


@pytest.mark.parametrize(("way", "error"), [("sharded", 1e-5), ("flat", 1e-5), ("bf16", 0.02), ("bf16_checkpointed", 0.02)])
def test_micro_batches_that_are_summed_late_have_the_norm_of_one_process(
    ranks: list[dict[str, Any]], way: str, error: float
) -> None:
    for found in ranks:
        assert found[way] == [pytest.approx(TRUTH, rel=error), ""]


def test_gradients_that_were_never_summed_have_no_norm_rather_than_0(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        norm, why = found["unsynced"]
        assert norm is None
        assert "no parameter has a gradient" in why
