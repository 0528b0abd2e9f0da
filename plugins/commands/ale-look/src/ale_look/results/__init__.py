"""Results of k attempts at each task of a run."""
