"""The processes of a launch, and the ranks of torchrun; a library."""
