"""A transformer sampled in this process, exact to the token."""
