"""What trainers of the model that samples share. Imports no torch."""
