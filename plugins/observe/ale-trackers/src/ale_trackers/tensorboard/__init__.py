"""Metrics of a run as TensorBoard event files."""
