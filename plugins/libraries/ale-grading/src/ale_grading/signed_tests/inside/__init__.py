"""Programs that run inside a sandbox, with its Python (3.8 or later) and nothing but its standard
library. They are sent as text and never imported on the host.
"""
