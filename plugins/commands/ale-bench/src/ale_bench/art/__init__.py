"""``ale art train``: train on MBPP by code rewards, with a few flags."""
