"""Code shared by trainers of the model that samples. Imports no torch."""
