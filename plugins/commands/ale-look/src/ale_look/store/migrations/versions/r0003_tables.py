"""The tables, and full-text search over the turns: FTS5 in SQLite, a tsvector in PostgreSQL.

Both find the same words: letters and digits in a row, without regard to case. The tables are those
of now: a further step changes what an older version of this package has made.
"""

from alembic import op

from ale_look.store.schema import metadata

revision = "0003"
down_revision = None

_SQLITE = (
    """CREATE VIRTUAL TABLE turn_words USING fts5(
        text, content='turns', content_rowid='id', tokenize='unicode61 remove_diacritics 0')""",
    """CREATE TRIGGER turn_words_insert AFTER INSERT ON turns BEGIN
        INSERT INTO turn_words (rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER turn_words_delete AFTER DELETE ON turns BEGIN
        INSERT INTO turn_words (turn_words, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
)
_POSTGRESQL = (
    """ALTER TABLE turns ADD COLUMN words tsvector GENERATED ALWAYS AS (
        to_tsvector('simple', regexp_replace(text, '[^[:alnum:]]+', ' ', 'g'))) STORED""",
    "CREATE INDEX turns_words ON turns USING gin (words)",
)


def upgrade() -> None:
    """Make them."""
    connection = op.get_bind()
    metadata.create_all(connection)
    for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
