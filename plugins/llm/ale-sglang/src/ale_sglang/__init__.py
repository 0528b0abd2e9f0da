"""SGLang as a server that samples for training. Never run against a real SGLang."""
