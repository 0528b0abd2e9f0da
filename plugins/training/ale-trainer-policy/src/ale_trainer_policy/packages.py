"""Is the optional dependency torch installed?"""

from ale.plugin import Probe

_CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def probe() -> Probe:
    """Look for torch, without importing it."""
    remedy = "pip install 'torch>=2.6' 'transformers>=5.22,<6' 'peft>=0.19,<1'"
    return Probe.of_package("torch", remedy=f"{remedy} (without CUDA: first {_CPU_BUILD})")
