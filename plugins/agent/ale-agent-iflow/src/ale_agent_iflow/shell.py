"""The shell tool: one persistent session, reopened when it has ended."""

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES, Sandbox, Session
from ale.text import on_a_terminal
from ale.types import ExecResult
from ale_agent_iflow.result import Result, cut_middle, whole_lines


class Shell:
    """At most one open session of a sandbox.

    Args:
        max_output_bytes: of stdout and stderr together; longer output is cut in the middle.
    """

    def __init__(self, sandbox: Sandbox, *, max_output_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_output_bytes = max_output_bytes
        self._session: Session | None = None

    async def run(self, command: str, *, timeout_s: float | None) -> Result:
        """Run `command` in the session, opening one where there is none.

        Raises:
            SandboxError: the sandbox has failed.
        """
        session, note = await self._open()
        try:
            result = await self._run(session, command, timeout_s)
        except SandboxError:
            if not session.closed:
                raise
            # The shell died between two commands (a background job can kill it): nothing ran.
            # If the sandbox itself had failed, opening a session would fail too.
            session, note = await self._open()
            result = await self._run(session, command, timeout_s)
        return self._result(result, note, timeout_s=timeout_s, ended=session.closed)

    async def close(self) -> None:
        """End the session. May be called again."""
        if self._session is not None:
            await self._session.close()

    async def _open(self) -> tuple[Session, str]:
        if self._session is not None and not self._session.closed:
            return self._session, ""
        first = self._session is None
        self._session = await self._sandbox.session()
        note = "[the earlier shell has ended; this is a new one, with cd and variables reset]\n"
        return self._session, "" if first else note

    async def _run(self, session: Session, command: str, timeout_s: float | None) -> ExecResult:
        # More than is shown, so that the number of bytes left out is known in all but huge cases.
        capture = max(DEFAULT_OUTPUT_BYTES, self._max_output_bytes)
        return await session.run(command, timeout_s=timeout_s, max_output_bytes=capture)

    def _result(
        self, result: ExecResult, note: str, *, timeout_s: float | None, ended: bool
    ) -> Result:
        out = on_a_terminal(result.stdout.decode("utf-8", "backslashreplace"))
        err = on_a_terminal(result.stderr.decode("utf-8", "backslashreplace"))
        text = whole_lines(out) + (f"[stderr]\n{whole_lines(err)}" if err else "")
        shown, cut = cut_middle(text, self._max_output_bytes, more=result.truncated)
        if result.timed_out:
            error: str | None = f"timed out after {timeout_s or 0.0:.4g} s"
            end = f"[{error}; the command was killed and the shell ended with it]"
        else:
            error = f"exit code {result.exit_code}" if result.exit_code else None
            end = f"[exit code {result.exit_code}{'; the shell has ended' if ended else ''}]"
        return Result(
            content=f"{note}{whole_lines(shown)}{end}",
            error=error,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            truncated=cut or result.truncated,
        )
