"""``ale eval``: run a benchmark or a folder of tasks, show its results, compare two runs."""
