"""Containers as sandboxes, whatever engine runs them."""
