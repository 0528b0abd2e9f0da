"""The sandboxes on this machine, listed and pruned."""
