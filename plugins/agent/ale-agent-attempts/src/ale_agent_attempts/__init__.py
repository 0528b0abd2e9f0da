"""Agents without tools: ``single-shot`` answers once, ``code-attempts`` until tests pass, and
``steps`` in tags."""
