"""An index of stored runs in a database, which is built from the run directories."""
