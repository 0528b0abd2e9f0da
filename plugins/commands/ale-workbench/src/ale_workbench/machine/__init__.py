"""The commands ``ale init`` and ``ale status``: what this machine has, and what runs on it."""
