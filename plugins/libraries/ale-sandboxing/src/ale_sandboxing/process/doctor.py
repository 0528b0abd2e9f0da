"""Facts of a sandbox for ``ale doctor``, in the same words for each backend."""

from ale.types import Capabilities

_LIMITS = (("enforced", "limits enforced"), ("best-effort", "best effort"), ("none", "no limit on"))


def describe(capabilities: Capabilities, *, label: str) -> dict[str, str]:
    """Isolation level, limits by how they are enforced, and every note.

    Args:
        label: heading of the notes; each note starts with its subject and a colon.
    """
    facts: dict[str, str] = {"isolation": capabilities.isolation}
    for level, words in _LIMITS:
        names = sorted(name for name, how in capabilities.limits.items() if how == level)
        if names:
            facts[words] = ", ".join(names)
    for note in capabilities.notes:
        subject, _, text = note.partition(": ")
        facts[f"{label} ({subject})"] = text
    return facts
