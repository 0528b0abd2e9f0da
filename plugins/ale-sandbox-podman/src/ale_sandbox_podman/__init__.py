"""Podman containers as sandboxes."""
