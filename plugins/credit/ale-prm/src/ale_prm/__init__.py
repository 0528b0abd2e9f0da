"""A process reward model: a frozen language model and a learned head score steps."""
