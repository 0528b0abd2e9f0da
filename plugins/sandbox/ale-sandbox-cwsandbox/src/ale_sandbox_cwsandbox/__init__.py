"""Remote sandboxes: CoreWeave Sandbox."""
