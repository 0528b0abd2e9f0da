"""What k attempts at each task of a run came to."""
