"""``python -m ale_agent_iflow`` prints the tools as the ``tools`` of chat completions.

A run does not keep what the model was offered; `ale collect --tools` takes it from a file.
"""

import json
import sys
from typing import Any

from ale_agent_iflow.tools import TOOLS, Tool


def offered(tool: Tool) -> dict[str, Any]:
    """A tool as chat completions have it."""
    spec = tool.spec
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    return {"type": "function", "function": function}


if __name__ == "__main__":
    sys.stdout.write(json.dumps([offered(tool) for tool in TOOLS], indent=2) + "\n")
