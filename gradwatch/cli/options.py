"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How a command answers."""

    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="a run's id or name (then the newest)")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", help="folder of the store; else the collector at GRADWATCH_URL is asked, or GRADWATCH_DATA opened where none runs"
    ),
]
