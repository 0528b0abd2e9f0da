"""Metrics of a run in Weights & Biases."""
