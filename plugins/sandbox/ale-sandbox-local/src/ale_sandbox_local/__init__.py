"""The local sandbox: commands run on the host, in a workspace of their own. Best effort."""
