"""Serves language models and keeps inference servers."""
