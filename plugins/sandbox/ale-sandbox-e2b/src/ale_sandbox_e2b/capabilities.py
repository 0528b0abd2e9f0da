"""What can be promised of the service's sandboxes."""

from ale.types import Capabilities
from ale_sandbox_e2b.options import E2bOptions
from ale_sandboxing.remote.capabilities import NOTES

_TEMPLATE = "limits: processors, memory and disk are those of the template"
_IMAGES = "images: a task's image needs a template, named in `templates`"


def capabilities_of(options: E2bOptions) -> Capabilities:
    """Capabilities, with their gaps in `notes`."""
    return Capabilities(
        isolation="vm",
        network_isolation=options.network is not True,
        filesystem_isolation=True,
        process_isolation=True,
        fork="replay",
        snapshot=False,
        images=bool(options.templates),
        limits=dict.fromkeys(("cpu", "memory", "processes", "file_size", "disk"), "none"),
        system_writable=True,
        features=("list-sessions", "open-sibling"),
        notes=(*NOTES, _TEMPLATE, _IMAGES),
    )
