"""Scorers of the steps of an episode: rules, a model as judge, claims against evidence."""
