"""Remote sandboxes: E2B."""
