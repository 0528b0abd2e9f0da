"""Run episodes on workers over NATS, and publish the events of runs there."""
