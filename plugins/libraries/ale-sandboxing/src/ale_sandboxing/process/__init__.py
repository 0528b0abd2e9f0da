"""Shared by sandboxes whose processes run on the host's kernel."""
