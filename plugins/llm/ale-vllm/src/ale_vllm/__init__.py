"""vLLM as a server that samples for training, in an environment of its own."""
