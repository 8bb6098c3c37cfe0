"""Write the pages that are made from the code: `python docs/generate.py`; a test holds them equal to it."""

from __future__ import annotations

import inspect
from pathlib import Path

from gradwatch.cli.sparkline import sparkline
from gradwatch.detectors import DETECTORS, Detector
from gradwatch.detectors.base import Case
from gradwatch.importers import IMPORTERS
from gradwatch.metrics import METRICS, Metric
from gradwatch.settings import SETTINGS

METRICS_INTRO = """\
# Metrics

Made from `gradwatch/metrics` by `python docs/generate.py`.

A key is read into a metric and its axes: the stream (`eval_`, `val/`, `rollout/` … in front, `/val` behind), the statistic
(`_mean`, `/max`, `mean@8`), the rank (`rank0/`), and the name of a role, agent or worker group as a segment of its own
(`train/solver/entropy`, `actor/generator-0/grad_norm`). Upper and lower case are one. A key that is not listed here is kept
under its own name; any reward (`average episodic return`) and gradient norm (`grad_norm_encoder`) is found by its words.

| metric | unit | better | meaning | also known as |
|---|---|---|---|---|
"""
HERE = Path(__file__).parent
NAMES_IN_INIT = {"run_id": "id"}
BETTER = {"min": "lower", "max": "higher", "": "–"}


def metrics_page() -> str:
    """The metric catalogue."""
    return METRICS_INTRO + "\n".join(_metric_row(one) for one in METRICS) + "\n"


def _metric_row(one: Metric) -> str:
    aliases = ", ".join(f"`{alias}`" for alias in one.aliases)
    cells = (f"`{one.name}`", one.unit, BETTER[one.better], one.meaning, aliases)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def detector_page(one: Detector) -> str:
    """One detector: what it is for, what it judges by, and what it says of its own examples."""
    doc = inspect.cleandoc(type(one).__doc__ or "")
    parameters = [f"| `{p.name}` | {p.default:g} | {p.unit} | {p.source} |" for p in one.parameters]
    examples = [line for case in (*one.SICK, *one.HEALTHY) for line in _example(case)]
    return "\n".join(
        [
            f"# {one.name}",
            "",
            f"Made from `{type(one).__module__.replace('.', '/')}.py` by `python docs/generate.py`.",
            "",
            _paragraphs(doc),
            "",
            "| parameter | default | unit | source |",
            "|---|---|---|---|",
            *parameters,
            "",
            "## Examples (each is a test)",
            "",
            *examples,
        ]
    )


def _paragraphs(doc: str) -> str:
    """The docstring, with a paragraph of its own for each of its labelled parts."""
    for label in ("Why:", "Known false alarms:", "No early warning", "Source:"):
        doc = doc.replace(f"\n{label}", f"\n\n**{label}**" if label.endswith(":") else f"\n\n{label}")
    return doc.replace("\n\n\n", "\n\n")


def _example(case: Case) -> list[str]:
    said = "; ".join(f"{severity}, steps {start}–{end}" for severity, start, end in case.expected) or "silent"
    steps = list(range(1, len(case.values) + 1))
    mark = (case.expected[0][1], case.expected[-1][2]) if case.expected else None
    line, below = sparkline(steps, list(case.values), mark=mark)
    return [f"**{case.name}** (`{case.metric}`): {said}", "", "```", line, *([below] if below else []), "```", ""]


def formats_page() -> str:
    """The log formats that are read, in the order in which they are tried."""
    rows = [f"| `{one.format}` | {_first_line(type(one))} |" for one in IMPORTERS]
    return "\n".join(
        [
            "# Log formats",
            "",
            "Made from `gradwatch/importers` by `python docs/generate.py`. The format is recognised from content, in this order.",
            "A console log is told more finely as it is read: `hf_console_dict`, `verl_console`, `sb3_table`, `generic_console`.",
            "",
            "| format | what it is |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def settings_page() -> str:
    """Every setting, with its variable and default."""
    rows = [
        f"| `{one.variable}` | `{NAMES_IN_INIT.get(one.name, one.name)}` | {_default(one.default)} | {one.meaning} |"
        for one in SETTINGS
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Made from `gradwatch/settings.py` by `python docs/generate.py`. What is given in code or on the command line comes",
            "before the environment, and that before the default. A wrong value is said at the start, never in a training step.",
            "",
            "| variable | `init(...)` | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _default(value: object) -> str:
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`" if str(value) else "none"


def _first_line(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    made = {HERE / "metrics.md": metrics_page(), HERE / "formats.md": formats_page(), HERE / "settings.md": settings_page()}
    return made | {HERE / "detectors" / f"{one.name}.md": detector_page(one) for one in DETECTORS}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
