"""Agents of `ale` without a model: ``oracle`` and ``noop``, the two ends that tests lean on,
``attack``, which tries to be graded as a solution, and ``echo``, for dry runs; and `ale validate`,
which tests tasks with the first three."""
