"""Which parameters are measured, under which names and in which groups."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradwatch.errors import SettingsError
from gradwatch.quantities import ParameterGroups, group_parameters
from gradwatch.quantities.module_names import WRAPPERS, clean_names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(2, 2)
        self.mlp = nn.Linear(2, 2)


class Policy(nn.Module):
    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.embed = nn.Embedding(5, 2)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(2, 5, bias=False)


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.add_module(name, inner)


def names(groups: ParameterGroups) -> list[str]:
    return [one.name for one in groups.parameters]


def test_depth_is_the_number_of_name_components_that_make_a_group() -> None:
    model = Policy(layers=2)
    assert group_parameters(model, depth=1).names == ("scale", "embed", "layers", "head")
    assert group_parameters(model, depth=2).names == ("scale", "embed", "layers.0", "layers.1", "head")
    assert group_parameters(model, depth=3).names[2:4] == ("layers.0.attn", "layers.0.mlp")


def test_without_a_depth_it_is_the_deepest_that_fits() -> None:
    assert "layers.0.mlp" in group_parameters(Policy(layers=12)).names
    deep = group_parameters(Policy(layers=40))
    assert len(deep.names) == 43
    assert "layers.39" in deep.names
    assert not deep.notes


def test_a_depth_that_makes_too_many_groups_is_lowered_and_that_is_said() -> None:
    groups = group_parameters(Policy(layers=40), depth=3)
    assert "layers.39" in groups.names
    assert groups.notes == ("depth 3 makes more than 64 groups: depth 2 is used, which makes 43",)


def test_what_is_too_many_even_at_depth_1_is_merged_and_that_is_said() -> None:
    groups = group_parameters(nn.Sequential(*(nn.Linear(1, 1) for _ in range(100))))
    assert len(groups.names) == 64
    assert groups.names[-1] == "(other)"
    assert len(groups.members[-1]) == 2 * (100 - 63)
    assert "all but the first 63" in groups.notes[0]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["layers.1"], [], ["layers.1.attn.weight", "layers.1.attn.bias", "layers.1.mlp.weight", "layers.1.mlp.bias"]),
        (["layers.1.*.bias"], [], ["layers.1.attn.bias", "layers.1.mlp.bias"]),
        ([r"re:^layers\.1[01]\.attn"], ["*.bias"], ["layers.10.attn.weight", "layers.11.attn.weight"]),
        ([], ["layers", "embed"], ["scale", "head.weight"]),
        (["head", "scale"], [], ["scale", "head.weight"]),
    ],
)
def test_patterns_choose_parameters(include: list[str], exclude: list[str], expected: list[str]) -> None:
    assert names(group_parameters(Policy(), include=include, exclude=exclude)) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include": ["layer.*.atn"]}, ["include", "'layer.*.atn' matches no parameter", "'layers"]),
        ({"exclude": ["embd"]}, ["exclude", "'embd' matches no parameter", "'embed'"]),
        ({"include": ["re:layers["]}, ["include", "is no regular expression"]),
        ({"include": "layers"}, ["a list of patterns is expected", "['layers']"]),
        ({"include": ["head"], "exclude": ["head"]}, ["no parameter is left"]),
        ({"depth": 0}, ["depth must be at least 1"]),
        ({"max_groups": 1}, ["max_groups at least 2"]),
    ],
)
def test_a_choice_that_cannot_be_meant_is_refused_in_words(options: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        group_parameters(Policy(), **options)  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_model_that_is_all_frozen_is_refused() -> None:
    with pytest.raises(SettingsError, match="requires a gradient"):
        group_parameters(Policy().requires_grad_(False))


def test_a_tied_weight_is_one_parameter_that_either_name_chooses() -> None:
    model = Policy()
    model.head.weight = model.embed.weight
    groups = group_parameters(model, include=["head"])
    assert names(groups) == ["embed.weight"]
    assert groups.notes == ("embed.weight = head.weight: one weight, counted once, in 'embed.weight'",)


@pytest.mark.parametrize(
    "chain", [["module"], ["_orig_mod"], ["_orig_mod", "module"], ["_fsdp_wrapped_module"], ["model", "base_model"]]
)
def test_wrappers_leave_names_groups_and_patterns_as_they_were(chain: list[str]) -> None:
    plain, wrapped = Policy(), Policy()
    model: nn.Module = wrapped
    for name in chain:
        model = Wrapper(model, name)
    assert names(group_parameters(model)) == names(group_parameters(plain))
    assert group_parameters(model).names == group_parameters(plain).names
    raw = next(name for name, _ in model.named_parameters() if name.endswith("head.weight"))
    assert (
        names(group_parameters(model, include=[raw])) == names(group_parameters(model, include=["head.weight"])) == ["head.weight"]
    )


def test_a_compiled_model_keeps_its_names() -> None:
    assert names(group_parameters(torch.compile(Policy(), backend="eager"))) == names(group_parameters(Policy()))


def test_a_part_of_the_model_that_is_called_like_a_wrapper_keeps_its_name() -> None:
    kept = ["module.weight", "head.weight", "layers.0._orig_mod.attn.module"]
    assert list(clean_names(kept).values()) == ["module.weight", "head.weight", "layers.0.attn.module"]
    assert clean_names(["model.layers.0.weight"]) == {"model.layers.0.weight": "model.layers.0.weight"}


@given(st.sets(st.lists(st.sampled_from([*sorted(WRAPPERS), "model", "a", "b"]), min_size=1, max_size=5).map(".".join), max_size=8))
def test_two_names_never_become_one(found: set[str]) -> None:
    # As in a module tree, no parameter has the name of a module.
    leaves = {f"{name}.weight" for name in found}
    assert len(set(clean_names(leaves).values())) == len(leaves)
