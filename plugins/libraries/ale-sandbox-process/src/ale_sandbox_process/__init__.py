"""What sandboxes whose processes run on this very kernel share."""
