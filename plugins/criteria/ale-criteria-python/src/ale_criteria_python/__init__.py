"""A criterion for ale: Python asserts, run against the code that a model wrote."""
