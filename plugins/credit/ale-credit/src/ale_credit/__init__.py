"""Credit schemes: what each chunk of an episode earned."""
