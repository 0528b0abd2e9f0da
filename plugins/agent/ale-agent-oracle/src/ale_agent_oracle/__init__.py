"""Agents of `ale` without a model: ``oracle`` and ``noop``, the two ends that tests lean on, and
``echo``, for dry runs."""
