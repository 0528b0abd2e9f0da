"""Is the optional dependency torch installed?"""

from ale.plugin import Probe


def probe() -> Probe:
    """Look for torch, without importing it."""
    remedy = "pip install -e '.[train]' in a clone; else pip install ale-trainer-policy"
    return Probe.of_package("torch", remedy=remedy)
