"""JSON Schemas of configs, stored runs and rows."""
