"""Bringing a rollout to its start by a fork of a sandbox that has been there, where that is exact.

`ale_starts.restoring.scheme` is what a run is given; docs/why/restoring.md is the reasoning.
"""
