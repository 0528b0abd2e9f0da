"""A language model that plays a written script or a recorded run."""
