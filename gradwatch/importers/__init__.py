"""Readers of the logs that training frameworks leave behind.

`IMPORTERS` is asked in order; the first that recognises a file's first bytes reads it. The console importer takes any text, so it
comes last.
"""

from gradwatch.importers.base import Importer
from gradwatch.importers.console import Console, Notebook
from gradwatch.importers.csv_table import CsvTable
from gradwatch.importers.json_records import JsonDictOfLists, JsonList
from gradwatch.importers.jsonl import Jsonl, VerlJsonl
from gradwatch.importers.monitor_csv import MonitorCsv
from gradwatch.importers.tensorboard_events import TensorboardEvents
from gradwatch.importers.trainer_state import TrainerState

IMPORTERS: tuple[Importer, ...] = (
    TensorboardEvents(),
    TrainerState(),
    VerlJsonl(),
    Jsonl(),
    JsonList(),
    JsonDictOfLists(),
    MonitorCsv(),
    CsvTable(),
    Notebook(),
    Console(),
)

__all__ = ["IMPORTERS", "Importer"]
