"""``python -m ale_agent_iflow`` prints the tools as the ``tools`` of chat completions.

For runs stored without the tools of their requests; see `ale data collect --tools`.
"""

import json
import sys
from typing import Any

from ale_agent_iflow.tools import TOOLS, Tool


def chat_tool(tool: Tool) -> dict[str, Any]:
    """A tool as in a chat completion."""
    spec = tool.spec
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    return {"type": "function", "function": function}


if __name__ == "__main__":
    sys.stdout.write(json.dumps([chat_tool(tool) for tool in TOOLS], indent=2) + "\n")
