"""The package that all of this needs, and an install may leave out."""

from ale.plugin import Probe


def probe() -> Probe:
    """Is NATS's client installed?"""
    remedy = 'pip install "nats-py>=2.15,<3"; in a clone: pip install -e ".[nats]"'
    return Probe.of_package("nats-py", remedy=remedy)
