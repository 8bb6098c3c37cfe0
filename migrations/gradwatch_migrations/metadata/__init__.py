"""The metadata database's migrations: an alembic environment that runs from code, on the connection it is given.

To change the schema add a revision to `versions/`; it must hold for SQLite and for PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError

from gradwatch.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Engine


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the database to the newest schema, or up to a revision, in one transaction; nothing happens where it is there already.

    Raises StoreError where a newer version of gradwatch has written the database.
    """
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, revision)
        except CommandError as error:
            raise StoreError(
                f"the metadata database is at a revision that this version of gradwatch does not know ({error}): "
                "a newer version wrote it; upgrade gradwatch"
            ) from error
