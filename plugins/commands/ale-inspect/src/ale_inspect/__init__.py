"""See a stored run: `ale show`, `ale credit` and `ale report`."""
