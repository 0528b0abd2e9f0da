"""Which packages are missing, and the command that installs them."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from ale.errors import NotUsableError

NEEDED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
REMEDY = (
    "pip install 'trl>=1.16,<2' 'peft>=0.19,<1' 'accelerate>=1.10.1,<2' 'datasets>=4.7' "
    "'safetensors>=0.5' 'transformers>=5.22,<6' 'torch>=2.6' (without CUDA: first pip install "
    "torch --index-url https://download.pytorch.org/whl/cpu)"
)


def installed(name: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def require_packages(needed: Sequence[str] = NEEDED, *, remedy: str = REMEDY) -> None:
    """Check that all of them are installed.

    Raises:
        NotUsableError: a package is missing; the message names each missing one, and the command
            that installs them.
    """
    lacking = [name for name in needed if installed(name) is None]
    if lacking:
        verb = "is" if len(lacking) == 1 else "are"
        raise NotUsableError(f"{', '.join(lacking)} {verb} not installed. Install with: {remedy}")
