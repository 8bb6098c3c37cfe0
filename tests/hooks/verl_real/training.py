"""A worker of verl's own on the CPU: a tiny Qwen2 in its FSDP2 engine, trained on rows that belong to two roles."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import verl  # noqa: F401 - before what its plugins import
from hooks.verl_real.cpu_platform import use_cpu  # noqa: TID251 - the folder of these tests
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

ROLES = ("solver", "verifier")
LENGTHS = (7, 5, 6, 8, 3, 9, 4, 6)
VOCABULARY = 64
SCALE = 20.0
STEPS = 2
CLIP = 1.0


def save_model(folder: Path) -> str:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def rows(rank: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """The sequences of a rank, their roles (B,) and advantages (B,)."""
    generator = torch.Generator().manual_seed(rank)
    sequences = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    roles = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1]).roll(rank)
    return sequences, roles, torch.linspace(-1, 2, len(LENGTHS))


def batch(rank: int, **settings: Any) -> Any:
    """What the trainer sends to a worker: the fields of `update_actor`, and each row's number."""
    from verl.utils import tensordict_utils as tu

    sequences, roles, advantages = rows(rank)
    return tu.get_tensordict(
        tensor_dict={
            "input_ids": jagged(sequences),
            "position_ids": jagged([torch.arange(len(one)) for one in sequences]),
            "loss_mask": jagged([torch.ones(len(one), dtype=torch.int64) for one in sequences]),
            "advantage": advantages,
            "row": torch.arange(len(sequences)),
            "agent_id": [ROLES[role] for role in roles],
        },
        non_tensor_dict={"temperature": 1.0, "calculate_entropy": False, "epochs": 1, "seed": 1, **settings},
    )


def jagged(each: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(each, layout=torch.jagged)


def make_worker(model: str, world: int, **settings: Any) -> Any:
    """A `TrainingWorker` of verl's, its engine initialized."""
    from verl.workers.engine_workers import TrainingWorker

    worker = TrainingWorker(worker_config(model, world, **settings))
    worker.reset()
    return worker


def worker_config(model: str, world: int, **settings: Any) -> Any:
    """Settings: `packed` rows, `pad` to a length, rows in a `micro` batch (else at most 16 tokens), `lr`, `lora_rank`."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig

    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return TrainingWorkerConfig(
        model_type="language_model",
        model_config=HFModelConfig(
            path=model,
            load_tokenizer=False,
            override_config={"attn_implementation": "sdpa"},
            enable_gradient_checkpointing=settings.get("checkpointing", True),
            use_remove_padding=settings.get("packed", True),
            lora_rank=settings.get("lora_rank", 0),
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            fsdp_size=world,
            mixed_precision=precision,
            use_torch_compile=False,
            use_no_sync_for_gradient_accumulation=not settings.get("sync", False),
            use_dynamic_bsz=not settings.get("micro"),
            max_token_len_per_gpu=16,
            infer_max_token_len_per_gpu=16,
            infer_micro_batch_size_per_gpu=2,
            micro_batch_size_per_gpu=settings.get("micro"),
            pad_to_length=settings.get("pad", False),
            pad_to_length_bucket=8,
        ),
        optimizer_config=FSDPOptimizerConfig(lr=settings.get("lr", 0.0), clip_grad=CLIP, total_training_steps=10),
        checkpoint_config=CheckpointConfig(),
        profiler_config=None,
    )


class Loss:
    """`loss_of_rows`, NaN at the micro-batch `bad`. It notes which rows came in which micro-batch."""

    def __init__(self, bad: int | None = None) -> None:
        self.seen: list[list[int]] = []
        self.bad = bad

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
        loss, metrics = loss_of_rows(model_output, data)
        is_bad = len(self.seen) == self.bad
        self.seen.append(data["row"].tolist())
        return loss * float("nan") if is_bad else loss, metrics


def loss_of_rows(model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
    """−Σ advantage · log p of each row's own next tokens."""
    log_probs = model_output["log_probs"].unbind()
    total = sum(one[:-1].sum() * weight for one, weight in zip(log_probs, data["advantage"], strict=True))
    return -torch.as_tensor(total) / SCALE, {}


def true_gradients(model: str, steps: list[list[list[int]]], double: bool = True) -> dict[str, list[float]]:
    """The norm of each role's gradient, and of all, at each step, by a backward of its own. `steps`: step → rank → rows."""
    net = AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager")
    net = net.double() if double else net
    found: dict[str, list[float]] = {}
    for of_ranks in steps:
        for name, wanted in [("", (0, 1)), *[(name, (index,)) for index, name in enumerate(ROLES)]]:
            net.zero_grad()
            for rank, numbers in enumerate(of_ranks):
                sequences, roles, advantages = rows(rank)
                for number in numbers:
                    if int(roles[number]) in wanted:
                        ids = sequences[number][None]
                        logp = net(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]).sum()
                        (-logp * advantages[number] / SCALE / len(of_ranks)).backward()
            norms = [one.grad.norm() for one in net.parameters() if one.grad is not None]
            found.setdefault(name, []).append(float(torch.stack(norms).norm()))
    return found


def update(rank: int, world: int, url: str, run: str, model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One update of two mini-batches, in a worker that is watched as a user would: what it came to on this rank."""
    import gradwatch
    from gradwatch_hooks.verl import watch_worker

    os.environ.update(GRADWATCH_URL=url, GRADWATCH_RUN_ID=run)
    worker = make_worker(model, world, **settings)
    loss = Loss(settings.get("bad"))
    worker.set_loss_fn(loss)
    data = batch(rank, mini_batch_size=len(LENGTHS) // STEPS * world, dataloader_kwargs={"shuffle": True}, global_steps=17)
    if "options" not in settings:
        output = worker.train_mini_batch(data)
    else:
        with watch_worker(worker, roles=ROLES, **{"max_overhead": None, **settings["options"]}) as watch:
            worker.infer_batch(batch(rank, compute_loss=True))
            loss.seen.clear()
            output = worker.train_mini_batch(data)
            assert watch.watcher.failures == 0
    if rank == 0 and "options" in settings:
        gradwatch.finish()
    return {"seen": loss.seen, "norms": list(output["metrics"]["grad_norm"]), "weights": digest(worker.engine.module)}


def digest(module: Any) -> str:
    """A hash of all bits of this rank's weights."""
    found = hashlib.sha256()
    for parameter in module.parameters():
        found.update(parameter.to_local().detach().numpy().tobytes())
    return found.hexdigest()


def updates(rank: int, world: int, folder: str, url: str, model: str, cases: dict[str, dict[str, Any]]) -> None:
    """An update for each case, in a run of its own."""
    os.environ["GRADWATCH_DIR"] = f"{folder}/spool"
    found = {name: update(rank, world, url, f"{name}-{world}", model, settings) for name, settings in cases.items()}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))


def on_ranks(world: int, folder: Path, url: str, model: str, cases: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """`updates` on gloo ranks; returns what each came to."""
    mp.spawn(_rank, (world, str(folder), url, model, cases), nprocs=world)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def _rank(rank: int, world: int, folder: str, *given: Any) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    use_cpu()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    updates(rank, world, folder, *given)
    dist.destroy_process_group()
