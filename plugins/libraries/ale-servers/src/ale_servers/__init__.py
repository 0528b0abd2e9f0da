"""Inference servers that sample for training: one protocol, its client, weights and registry."""
