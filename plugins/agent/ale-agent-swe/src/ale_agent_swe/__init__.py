"""The agent ``plan-patch-test`` for repositories."""
