"""Texts that every conversation of a task gets: from the config, a file, or stored feedback."""
