"""Ways to cut an agent's trajectory into chunks, the steps of its decision process."""
