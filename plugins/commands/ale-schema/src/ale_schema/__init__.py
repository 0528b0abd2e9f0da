"""JSON Schemas of what people and runs write."""
