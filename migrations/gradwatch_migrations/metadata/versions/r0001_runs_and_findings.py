"""Runs, findings and the watcher's state.

Configurations, warnings and findings are JSON text, not a JSON type: they may hold NaN, which PostgreSQL's JSON
refuses.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False, index=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("warnings", sa.Text, nullable=False),
    )
    op.create_table(
        "findings",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("start_step", sa.BigInteger, nullable=False),
        sa.Column("finding", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("silenced_until", sa.Double, nullable=True),
        sa.Column("false_alarm", sa.Boolean, nullable=False),
        sa.UniqueConstraint("run", "fingerprint", name="one_row_an_episode"),
    )
    op.create_table(
        "watch_state",
        sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("detectors", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop the three tables."""
    op.drop_table("watch_state")
    op.drop_table("findings")
    op.drop_table("runs")
