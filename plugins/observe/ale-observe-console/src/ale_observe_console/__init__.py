"""Progress of a run on standard error."""
