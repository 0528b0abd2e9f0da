"""Inspect stored runs: `ale show`, `ale show credit` and `ale report`."""
