"""Two roles that share one policy, trained by TRL's GRPOTrainer: each role's gradient norm and share, and their cosine, by step.

The model has a few thousand random weights and is built here, so nothing is downloaded and a run takes seconds on a CPU. A solver
is to answer with digits, a verifier with letters; the cosine of their gradients tells whether a step serves both. With --url the
run goes to that collector, else to a store in --data.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

import gradwatch
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch_hooks.torch import StepRecord
from gradwatch_hooks.trl import watch_grpo

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 +=?"
GROUP = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--url", help="of a collector")
    parser.add_argument("--data", default="./gradwatch-data", help="where the store lies, without a collector")
    given = parser.parse_args()
    where = {"url": given.url} if given.url else {"mode": "inprocess", "data": given.data}
    with tempfile.TemporaryDirectory() as folder, gradwatch.init("examples", "trl-two-roles", **where) as run:
        trainer = two_role_trainer(folder, given.steps)
        with watch_grpo(trainer, run=run, max_overhead=None, format_valid=str.isalnum, on_record=show):
            trainer.train()


def two_role_trainer(folder: str, steps: int) -> GRPOTrainer:
    """A trainer whose micro-batches are the rollouts of one prompt, and so of one role: measured whole, and changing nothing."""
    settings = GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        steps_per_generation=1,
        gradient_accumulation_steps=4,
        max_completion_length=8,
        learning_rate=1e-2,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
    )
    set_seed(0)
    tokenizer = letter_tokenizer()
    rows = [
        {"prompt": f"{a}+{b}={'' if role == 'solver' else '?'}", "role": role}
        for a in range(4)
        for b in range(4)
        for role in ("solver", "verifier")
    ]
    return GRPOTrainer(small_model(len(tokenizer)), [fits], settings, Dataset.from_list(rows), processing_class=tokenizer)


def fits(completions: list[str], role: list[str], **_: Any) -> list[float]:
    """The share of characters that the role is asked for: digits of a solver, letters of a verifier."""
    asked = {"solver": str.isdigit, "verifier": str.isalpha}
    return [sum(map(asked[who], text)) / max(1, len(text)) for text, who in zip(completions, role, strict=True)]


def show(record: StepRecord) -> None:
    """One line a step."""
    roles = record.roles
    if not isinstance(roles, RoleGradients) or len(roles.roles) < 2:
        print(f"step {record.step:2}  norm {record.grad_norm:.3f}", flush=True)
        return
    each = "  ".join(f"{role} {roles.norm(role):.3f} ({roles.share(role):.0%})" for role in sorted(roles.roles))
    print(
        f"step {record.step:2}  norm {record.grad_norm:.3f}  {each}  cosine {roles.cosine('solver', 'verifier'):+.2f}", flush=True
    )


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter."""
    tokenizer = Tokenizer(WordLevel({token: at for at, token in enumerate(["<pad>", "<end>", *LETTERS])}, unk_token="<pad>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = Split("", "isolated"), Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", padding_side="left")


def small_model(vocabulary: int) -> Qwen2ForCausalLM:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    tokens = {"vocab_size": vocabulary, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **tokens, max_position_embeddings=64, tie_word_embeddings=False))


if __name__ == "__main__":
    # TRL turns checkpointing on by the name that transformers is about to retire.
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
