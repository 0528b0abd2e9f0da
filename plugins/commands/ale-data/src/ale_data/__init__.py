"""Data sets of stored runs, as commands of `ale`."""
