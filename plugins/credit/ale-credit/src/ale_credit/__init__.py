"""Credit schemes: reward, return and weight of each chunk of an episode."""
