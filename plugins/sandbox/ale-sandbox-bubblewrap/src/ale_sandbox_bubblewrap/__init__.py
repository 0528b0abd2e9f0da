"""The bubblewrap sandbox: namespaces, a layered file system and limits, without a daemon."""
