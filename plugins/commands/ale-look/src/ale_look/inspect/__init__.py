"""Inspect stored runs: `ale show`, `ale credit` and `ale report`."""
