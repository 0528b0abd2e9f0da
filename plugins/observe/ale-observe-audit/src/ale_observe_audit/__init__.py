"""Every event of a run as a line of a hash chain, and its verification."""
