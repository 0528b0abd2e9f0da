"""Full-text search over the turns: FTS5 in SQLite, a tsvector in PostgreSQL.

Both find the same words: letters and digits in a row, without regard to case.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_SQLITE = (
    """CREATE VIRTUAL TABLE turn_words USING fts5(
        text, content='turns', content_rowid='id', tokenize='unicode61 remove_diacritics 0')""",
    """CREATE TRIGGER turn_words_insert AFTER INSERT ON turns BEGIN
        INSERT INTO turn_words (rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER turn_words_delete AFTER DELETE ON turns BEGIN
        INSERT INTO turn_words (turn_words, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
    "INSERT INTO turn_words (turn_words) VALUES ('rebuild')",
)
_POSTGRESQL = (
    """ALTER TABLE turns ADD COLUMN words tsvector GENERATED ALWAYS AS (
        to_tsvector('simple', regexp_replace(text, '[^[:alnum:]]+', ' ', 'g'))) STORED""",
    "CREATE INDEX turns_words ON turns USING gin (words)",
)


def upgrade() -> None:
    """Add the index, and fill it from the turns that are stored."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _SQLITE if sqlite else _POSTGRESQL:
        op.execute(statement)
