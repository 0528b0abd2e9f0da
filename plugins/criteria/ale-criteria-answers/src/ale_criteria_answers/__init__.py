"""Criteria for ale that grade a short answer: a number, a formula, a text or a letter."""
