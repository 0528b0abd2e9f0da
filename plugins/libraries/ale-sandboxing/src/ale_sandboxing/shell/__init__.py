"""What sandboxes that run a shell share."""
