"""`ale launch`, and launchers for one machine and for torchrun."""
