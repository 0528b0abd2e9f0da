"""Looks at stored runs."""
