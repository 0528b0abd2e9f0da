"""An episode's sandbox, as the tools use it."""

from ale.protocols import Sandbox
from ale_agent_iflow.files import Files
from ale_agent_iflow.result import Result
from ale_agent_iflow.shell import Shell


class Workspace:
    """A shell and files."""

    def __init__(self, sandbox: Sandbox, *, max_output_bytes: int) -> None:
        self.shell = Shell(sandbox, max_output_bytes=max_output_bytes)
        self.files = Files(sandbox, max_output_bytes=max_output_bytes)

    async def finish(self, summary: str, *, timeout_s: float | None) -> Result:
        """End the episode."""
        return Result(content=summary, finished=True)
