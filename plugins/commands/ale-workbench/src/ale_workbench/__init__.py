"""Commands that set up a machine and extend `ale`."""
