"""Harbor and Terminal-Bench task folders, read as they are, and graded by their own tests."""
