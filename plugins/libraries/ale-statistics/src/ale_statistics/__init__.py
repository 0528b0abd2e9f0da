"""Means with intervals, exact paired tests and corrections; a library."""

from ale_statistics.means import Estimate, estimate, t_quantile
from ale_statistics.pairs import LEVEL, holm, least_p, sign_flip

__all__ = ["LEVEL", "Estimate", "estimate", "holm", "least_p", "sign_flip", "t_quantile"]
