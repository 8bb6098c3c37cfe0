"""Schema migrations: alembic for the metadata database, numbered SQL for the point store."""
