"""Runs the steps on the connection that `ale_look.store.database` gives."""

from alembic import context

given = context.config.attributes
context.configure(
    connection=given["connection"], version_table=given["versions"], transactional_ddl=False
)
context.run_migrations()
