from __future__ import annotations

from itertools import combinations

import pytest

from gradwatch_dashboards.palette import ROLE_COLOURS, SOLID, THEMES, WHOLE_RUN, role_inks

BACKGROUNDS = {"light": "#ffffff", "dark": "#171a20"}
# Machado, Oliveira, Fernandes 2009: what full protanopia and deuteranopia leave of a linear colour.
NORMAL = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))


def linear(colour: str) -> tuple[float, ...]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (one, other))
    return (light + 0.05) / (dark + 0.05)


def oklab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, one)) for one in rgb)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.793617785 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.808675766 * short,
    )


def seen(colour: str, eye: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    rgb = linear(colour)
    return oklab(tuple(sum(weight * part for weight, part in zip(row, rgb, strict=True)) for row in eye))


@pytest.mark.parametrize("theme", BACKGROUNDS)
@pytest.mark.parametrize("colour", [*ROLE_COLOURS, WHOLE_RUN])
def test_a_line_stands_out_from_both_backgrounds(theme: str, colour: str) -> None:
    assert contrast(colour, BACKGROUNDS[theme]) >= 3


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_text_in_a_figure_has_the_contrast_of_text(theme: str) -> None:
    inks = (THEMES[theme].text, *THEMES[theme].severities.values())
    assert min(contrast(ink, BACKGROUNDS[theme]) for ink in inks) >= 4.5


@pytest.mark.parametrize("eye", [NORMAL, PROTANOPIA, DEUTERANOPIA])
def test_roles_told_by_colour_alone_stay_apart_for_every_eye(eye: tuple[tuple[float, ...], ...]) -> None:
    apart = [
        sum((a - b) ** 2 for a, b in zip(seen(one, eye), seen(other, eye), strict=True)) ** 0.5
        for one, other in combinations(ROLE_COLOURS[:SOLID], 2)
    ]
    assert min(apart) > 0.1


def test_declared_roles_come_first_in_their_order_then_the_others_by_name() -> None:
    inks = role_inks(["verifier", "search"], ["search", "zeta", "alpha", "", "verifier"])
    assert list(inks) == ["verifier", "search", "alpha", "zeta", ""]


def test_a_role_keeps_its_colour_when_another_one_appears() -> None:
    before, after = role_inks(["a", "b"], ["a"]), role_inks(["a", "b"], ["a", "b", "new"])
    assert {role: after[role] for role in before} == before


def test_no_two_of_eighteen_roles_are_drawn_alike() -> None:
    inks = role_inks([f"role {at:02}" for at in range(18)], [])
    assert len(set(inks.values())) == 19
