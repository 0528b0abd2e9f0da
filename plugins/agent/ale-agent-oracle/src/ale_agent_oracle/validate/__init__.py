"""A gate for tasks: `ale validate`."""
