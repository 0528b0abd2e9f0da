"""Start schemes: chunk-level initialised resampling (arXiv:2512.24873, 3.2.4.4)."""
