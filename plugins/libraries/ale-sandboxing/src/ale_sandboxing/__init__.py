"""Shared by sandboxes, each part by those of one kind; a library."""
