"""Inference servers of this machine: started, listed and stopped."""
