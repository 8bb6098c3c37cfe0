"""Where runs, points, samples and findings are kept.

`base` has the protocol and costs nothing to import; `open_store` loads the engines.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gradwatch.errors import StoreError

if TYPE_CHECKING:
    from gradwatch.store.local import LocalStore

_ENGINES = ("duckdb", "numpy", "sqlalchemy", "alembic")


def open_store(path: Path | None, memory_mb: int | None = None) -> LocalStore:
    """Open the store in a folder, created if missing, or a new store in memory (None).

    `memory_mb` bounds the memory of the point store of a folder, at the price of speed; else it may take most of the machine's.
    Raises StoreError where the folder is in use, damaged or not a folder, or where the engines are not installed.
    """
    try:
        # The engines take 250 ms to import, and a training machine may not have them.
        from gradwatch.store.local import open_local  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in _ENGINES:
            raise
        raise StoreError(f"the store needs {error.name}: pip install 'gradwatch[server]'") from error
    return open_local(path, memory_mb)
