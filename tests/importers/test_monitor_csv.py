"""What the reader of `monitor.csv` promises."""

from __future__ import annotations

import math
from pathlib import Path

from gradwatch.importers.base import Row
from gradwatch.importers.monitor_csv import MonitorCsv
from gradwatch.importers.source import Source


def read(tmp_path: Path, text: str) -> tuple[list[Row], list[str]]:
    path = tmp_path / "monitor.csv"
    path.write_text(text, newline="")
    source = Source(path)
    assert MonitorCsv().recognises(source.head())
    return list(MonitorCsv().rows(source)), source.all_warnings()


def test_each_line_is_an_episode_on_the_wall_clock(tmp_path: Path) -> None:
    rows, warnings = read(
        tmp_path, '#{"t_start": 1000.5, "env_id": "E"}\r\nr,l,t,is_success\r\n1.5,193,80.25,True\r\n2,4,90,False\r\n'
    )
    assert rows[0].config == {"t_start": 1000.5, "env_id": "E"}
    assert [(row.step, row.wall_time) for row in rows[1:]] == [(1, 1080.75), (2, 1090.5)]
    assert rows[1].values == {"r": 1.5, "l": 193.0, "t": 80.25, "is_success": 1.0}
    assert warnings == []


def test_a_restart_goes_on_counting_episodes(tmp_path: Path) -> None:
    part = '#{"t_start": 1000}\nr,l,t\n1,2,3\n'
    rows, _ = read(tmp_path, part + part.replace("1000", "2000"))
    assert [(row.step, row.wall_time) for row in rows if row.values] == [(1, 1003.0), (2, 2003.0)]


def test_a_broken_header_costs_the_clock_and_a_half_line_itself(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, '#{"t_start": \nr,l,t\n1,2,3\n4,')
    assert [row.values for row in rows if row.values] == [{"r": 1.0, "l": 2.0, "t": 3.0}]
    assert math.isnan(rows[1].wall_time)
    assert len(warnings) == 2


def test_other_files_are_not_recognised() -> None:
    assert not any(MonitorCsv().recognises(head) for head in (b"r,l,t\n1,2,3\n", b"# comment\na,b\n", b""))
