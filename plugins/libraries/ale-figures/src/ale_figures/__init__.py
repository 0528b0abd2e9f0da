"""Charts, statistics of attempts, and success along an expert's episode; a library."""
