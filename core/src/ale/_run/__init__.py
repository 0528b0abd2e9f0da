"""The stages of a run and the loop that joins them."""
