"""Shared by sandboxes that a service runs somewhere else."""
