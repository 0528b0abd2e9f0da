"""The executor ``ray``: one actor on each node of a Ray cluster runs episodes."""
