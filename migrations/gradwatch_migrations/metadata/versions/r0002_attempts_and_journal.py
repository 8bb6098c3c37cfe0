"""Attempts and their processes, checkpoints, events; a run's roles; a finding's severity as a column, to be counted."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the four tables and the two columns."""
    op.add_column("runs", sa.Column("roles", sa.Text, nullable=False, server_default="{}"))
    op.add_column("findings", sa.Column("severity", sa.Text, nullable=False, server_default="info"))
    if not op.get_context().as_sql:  # a script for another database has no rows to read
        _fill_severity()
    op.create_table(
        "attempts",
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("launch", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("ended", sa.Double, nullable=True),
    )
    op.create_table(
        "processes",
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("process", sa.Text, primary_key=True),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("rank", sa.BigInteger, nullable=True),
        sa.Column("opener", sa.Boolean, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("policy", sa.Text, primary_key=True),
        sa.Column("uri", sa.Text, primary_key=True),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("wall_time", sa.Double, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), nullable=False, index=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=True),
        sa.Column("wall_time", sa.Double, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop what `upgrade` created."""
    for table in ("events", "checkpoints", "processes", "attempts"):
        op.drop_table(table)
    op.drop_column("findings", "severity")
    op.drop_column("runs", "roles")


def _fill_severity() -> None:
    connection = op.get_bind()
    for identity, finding in connection.execute(sa.text("SELECT id, finding FROM findings")).all():
        values = {"id": identity, "severity": json.loads(finding)["severity"]}
        connection.execute(sa.text("UPDATE findings SET severity = :severity WHERE id = :id"), values)
