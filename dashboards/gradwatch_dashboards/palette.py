"""Colours: one of each role everywhere, one of each severity, and what a figure needs of the light and the dark theme.

Role colours keep a contrast of 3 : 1 against both backgrounds and stay apart under red-green colour blindness; roles from the
fourth on are dashed as well, so that no line is told by its colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

ROLE_COLOURS = ("#1a73c8", "#d9541e", "#0e9a72", "#c22fe0", "#a25152", "#8489e1")
WHOLE_RUN = "#808890"
SOLID = 3
"""So many roles are told by colour and legend; each further one is dashed too."""

DASHES = ("dash", "dot", "dashdot")


class Ink(NamedTuple):
    """How a role is drawn."""

    colour: str
    dash: str = "solid"


class Theme(NamedTuple):
    """What a figure takes from the page around it."""

    text: str
    grid: str
    hover: str
    severities: Mapping[str, str]


THEMES: Mapping[str, Theme] = {
    "light": Theme("#4a5361", "#e3e7ec", "#ffffff", {"critical": "#b3124a", "warning": "#8a6100", "info": "#4a6a8a"}),
    "dark": Theme("#b3bcc8", "#2c323c", "#22272f", {"critical": "#ff6b95", "warning": "#e8b33a", "info": "#9dbbd8"}),
}

SEVERITY_SHAPES: Mapping[str, str] = {"critical": "◆", "warning": "▲", "info": "●", "healthy": "✓"}


def role_inks(declared: Iterable[str], seen: Iterable[str]) -> dict[str, Ink]:
    """Each role's ink: the declared roles in their order, then the others by name; "" stands for the whole run."""
    names = [*dict.fromkeys(declared)]
    names += sorted({name for name in seen if name} - set(names))
    return {**{name: _ink(at) for at, name in enumerate(names)}, "": Ink(WHOLE_RUN)}


def _ink(at: int) -> Ink:
    colour = ROLE_COLOURS[at % len(ROLE_COLOURS)]
    return Ink(colour) if at < SOLID else Ink(colour, DASHES[(at - SOLID) // len(ROLE_COLOURS) % len(DASHES)])
