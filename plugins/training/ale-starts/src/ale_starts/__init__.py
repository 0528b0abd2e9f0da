"""Where rollouts begin: chunk-level initialised resampling (arXiv:2512.24873, 3.2.4.4).

For other code: `ale_starts.curves` computes what ``ale forks`` shows, and `ale_starts.experts` has
the experts.
"""
