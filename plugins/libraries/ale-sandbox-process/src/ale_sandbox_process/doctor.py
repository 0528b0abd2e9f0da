"""What ``ale doctor`` says about a sandbox: the same words for each."""

from ale.types import Capabilities

_LIMITS = (("enforced", "limits enforced"), ("best-effort", "best effort"), ("none", "no limit on"))


def in_words(capabilities: Capabilities, *, label: str) -> dict[str, str]:
    """Rung, limits by how they hold, and every note.

    Args:
        label: what the notes are; each note begins with its subject and a colon.
    """
    facts: dict[str, str] = {"isolation": capabilities.isolation}
    for kept, words in _LIMITS:
        names = sorted(name for name, how in capabilities.limits.items() if how == kept)
        if names:
            facts[words] = ", ".join(names)
    for note in capabilities.notes:
        subject, _, text = note.partition(": ")
        facts[f"{label} ({subject})"] = text
    return facts
