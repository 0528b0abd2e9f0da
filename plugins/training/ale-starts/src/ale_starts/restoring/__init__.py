"""Starts rollouts from a forked sandbox instead of replaying commands, where that is exact.

`ale_starts.restoring.scheme` has the start scheme; docs/why/restoring.md has the reasons.
"""
