"""Trains a policy on episodes as they come, and deploys versions that are not worse."""
