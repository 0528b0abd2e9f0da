"""Texts that conversations get: hints from a file or from feedback, and learned skills."""
