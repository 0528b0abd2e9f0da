"""The column `scores.contested`; the runs are read again for it."""

import sqlalchemy as sa
from alembic import op

from ale_look.store.schema import files

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column where the step before, of an older version, has made the table without it."""
    connection = op.get_bind()
    if any(each["name"] == "contested" for each in sa.inspect(connection).get_columns("scores")):
        return
    op.add_column("scores", sa.Column("contested", sa.Float))
    again = {"size": -1, "modified_ns": -1, "line_at": 0, "line_sha256": ""}
    connection.execute(sa.update(files).values(**again))
