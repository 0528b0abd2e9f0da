"""How a NATS server is reached: options, users and certificates."""
