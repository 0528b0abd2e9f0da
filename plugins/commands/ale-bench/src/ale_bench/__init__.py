"""``ale bench``: run a benchmark against a model, show its results, compare two runs."""
