"""A language model of a few thousand random weights, and its tokenizer of one letter a token, both built without a download."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 +=?:"
PAD, END = "<pad>", "<end>"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter."""
    vocabulary = {token: index for index, token in enumerate([PAD, END, *LETTERS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = Split("", "isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, padding_side="left")


def tiny_model(seed: int = 0, *, hidden: int = 16, layers: int = 2) -> Qwen2ForCausalLM:
    """A Qwen2 with random weights from a seed, in float32."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(LETTERS) + 2,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)
