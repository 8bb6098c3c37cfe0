"""The pages that are made from the code say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import gradwatch
from gradwatch.settings import SETTINGS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    stale = [path.name for path, text in generator().pages().items() if not path.exists() or path.read_text() != text]
    assert not stale, "run python docs/generate.py"


def test_no_page_of_a_detector_that_is_gone_is_left() -> None:
    made = {path for path in generator().pages() if path.parent.name == "detectors"}
    assert set((DOCS / "detectors").glob("*.md")) - {DOCS / "detectors" / "accuracy.md"} == made


def test_init_takes_every_setting_by_the_name_that_the_page_gives_it() -> None:
    names = re.findall(r"^\| `GRADWATCH_\w+` \| `(\w+)` \|", (DOCS / "settings.md").read_text(), re.MULTILINE)
    assert len(names) == len(SETTINGS)
    for name, setting in zip(names, SETTINGS, strict=True):
        given = {name: setting.default, "mode": "disabled"}
        gradwatch.init(quiet=True, **given).finish()
