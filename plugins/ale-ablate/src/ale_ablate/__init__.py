"""Compares configs over seeds."""
