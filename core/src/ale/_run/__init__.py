"""The run engine: episodes, credit, training and evaluation."""
