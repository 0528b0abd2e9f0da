"""Runs of several machines with equal paths, and the worker of an episode.

In SQLite a path stays unique: the file lies beside the directories that it is made from.
"""

from alembic import op
from sqlalchemy import Column, Text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change the constraint, and add the column; earlier episodes name no worker."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("runs_path_key", "runs", type_="unique")
        op.create_unique_constraint("runs_of_host", "runs", ["host", "path"])
    op.add_column("episodes", Column("worker", Text))
    op.create_index("episodes_by_worker", "episodes", ["worker", "started"])
