"""Metrics of an ale run in Weights & Biases or as TensorBoard event files."""
