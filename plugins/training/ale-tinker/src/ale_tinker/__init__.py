"""A model and a trainer on Tinker. Imports no SDK."""
