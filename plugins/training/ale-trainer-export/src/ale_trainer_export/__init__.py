"""A weighted data set for models that are trained elsewhere; the policy is not changed."""
