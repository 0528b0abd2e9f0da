"""Task sources for ale: MBPP, HumanEval, GSM8K, MATH, and JSON lines of any fields."""
