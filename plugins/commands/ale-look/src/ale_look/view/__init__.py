"""``ale view``: a page over all runs, live, and the same page as a static site."""
