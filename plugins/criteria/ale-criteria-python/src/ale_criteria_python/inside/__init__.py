"""What runs in the sandbox. Sent as text, joined to one module: standard library, Python 3.8."""
