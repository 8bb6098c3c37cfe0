"""Boxed tables become one row each."""

from __future__ import annotations

from pathlib import Path

from gradwatch.importers.base import Row
from gradwatch.importers.console import Console
from gradwatch.importers.sb3_table import TableReader
from gradwatch.importers.source import Source

TABLE = """\
---------------------------------
| rollout/           |          |
|    ep_len_mean     | 134      |
|    ep_rew_m...     | 87.6     |
| time/              |          |
|    total_timesteps | 2048     |
---------------------------------
"""
OLD_TABLE = """\
---------------------------
| entropy loss | 0.68     |
| kl           | -1.4e-05 |
---------------------------
"""


def read(text: str) -> list[Row]:
    reader = TableReader()
    rows = [row for line in text.splitlines() if line[:1] in "|-" for row in reader.read(line)]
    return rows + reader.finish()


def test_sections_become_prefixes() -> None:
    (row,) = read(TABLE)
    assert row.values == {"rollout/ep_len_mean": 134.0, "rollout/ep_rew_m...": 87.6, "time/total_timesteps": 2048.0}
    assert row.step is None


def test_tables_without_sections_keep_their_names() -> None:
    (row,) = read(OLD_TABLE)
    assert row.values == {"entropy loss": 0.68, "kl": -1.4e-05}


def test_each_table_is_a_row() -> None:
    assert len(read(TABLE + OLD_TABLE + TABLE)) == 3


def test_a_line_of_someone_else_inside_a_table_does_no_harm() -> None:
    lines = TABLE.splitlines()
    assert read("\n".join([*lines[:3], "UserWarning: x", *lines[3:]]))[0].values == read(TABLE)[0].values


def test_a_table_cut_off_at_the_end_is_read() -> None:
    (row,) = read("\n".join(TABLE.splitlines()[:4]))
    assert row.values == {"rollout/ep_len_mean": 134.0, "rollout/ep_rew_m...": 87.6}


def test_a_lost_rule_between_tables_is_noticed() -> None:
    body = "\n".join(OLD_TABLE.splitlines()[1:3])
    assert len(read(f"--------------------\n{body}\n{body}\n")) == 2


def test_other_tables_are_no_rows() -> None:
    assert read("| metric | value |\n|--------|-------|\n| loss | 0.5 |\n| kl | 1 |\n") == []
    assert read("--------------------\n| a | 1 | 2 |\n| b | 1 | 2 |\n--------------------\n") == []


def test_the_evaluations_line_is_not_counted_beside_its_table(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("Eval num_timesteps=10000, episode_reward=115.83 +/- 0.00\nEpisode length: 160.00 +/- 0.00\n" + TABLE)
    source = Source(path)
    assert len(list(Console().rows(source))) == 1
    assert source.format == "sb3_table"
