"""The tools as a file, for what is trained on stored episodes."""

import json
import subprocess
import sys

from ale_agent_iflow.tools import TOOLS


def test_the_module_prints_the_tools_as_chat_completions_have_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ale_agent_iflow"], capture_output=True, check=True
    )
    printed = json.loads(done.stdout)
    assert [tool["type"] for tool in printed] == ["function"] * len(TOOLS)
    for tool, printed_tool in zip(TOOLS, printed, strict=True):
        assert printed_tool["function"] == {
            "name": tool.spec.name,
            "description": tool.spec.description,
            "parameters": tool.spec.parameters,
        }
