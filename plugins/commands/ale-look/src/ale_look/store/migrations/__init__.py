"""The steps by which Alembic brings a database from one version of the tables to the next."""
