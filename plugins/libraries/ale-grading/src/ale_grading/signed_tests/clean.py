"""Commands for grading: by absolute path, in an environment that the agent can't change."""

import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import Attribute

from ale.errors import GradingError, SandboxDamagedError
from ale.protocols import Sandbox
from ale.types import Task

CLEAN: Mapping[str, str] = MappingProxyType(
    {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
    }
)
EXCERPT = 600
PATIENCE = 8.0
"""Seconds by the clock for each of CPU time, as other work may be in the way."""

# $1 name of the scratch folder, then variables and the command, which is given the folder's path
# last. Only the place for temporary files is taken over, as the backend clears it away.
_CLEAN = """
name=$1 && shift && scratch=${TMPDIR:-/tmp}/$name
exec /usr/bin/env -i "TMPDIR=${TMPDIR:-/tmp}" "HOME=$scratch/home" "$@" "$scratch"
"""
_REMOVE = 'rm -rf -- "${TMPDIR:-/tmp}/$1" 2>/dev/null; echo alive'


def clean(
    arguments: Sequence[str], task: Task, env: Mapping[str, str], scratch: str
) -> tuple[str, ...]:
    """`arguments` under an environment of the system's folders, the task's and the criterion's.

    The command is given the path of the scratch folder as one more argument; ``HOME`` lies in it.
    """
    return ("/bin/sh", "-c", _CLEAN, "ale-grading", scratch, *variables(task, env), *arguments)


def variables(task: Task, env: Mapping[str, str]) -> list[str]:
    """The clean environment as ``NAME=VALUE``."""
    return [f"{name}={value}" for name, value in {**CLEAN, **task.environment.env, **env}.items()]


def by_clock(cpu_s: float, longest_s: float) -> float:
    """Seconds by the clock for what may use `cpu_s` of CPU time.

    Args:
        longest_s: not more than this, unless `cpu_s` is more.
    """
    return max(cpu_s, min(PATIENCE * cpu_s, longest_s))


def program(_: object, attribute: "Attribute[Any]", value: str) -> None:
    """Validator of an option that names an interpreter in the sandbox."""
    if not value or ("/" in value and not value.startswith("/")):
        raise ValueError(
            f"{attribute.name} must be a name to be found in the system's folders, or an absolute "
            f"path, found {value!r}"
        )


def new_scratch() -> str:
    """Unguessable name of a folder: 128 random bits."""
    return f"ale-grading-{secrets.token_hex(16)}"


async def remove(sandbox: Sandbox, scratch: str, *, began: bool = False) -> None:
    """Remove what a command left behind, and check that the sandbox still answers.

    Args:
        began: the command had begun, so that the sandbox was well before it.

    Raises:
        SandboxDamagedError: it has no shell any more, and had one.
        GradingError: it does not answer, so the result says nothing about the agent.
        SandboxError: likewise.
    """
    arguments = ("/bin/sh", "-c", _REMOVE, "ale-grading", scratch)
    result = await sandbox.exec(arguments, env={"PATH": CLEAN["PATH"]}, timeout_s=60)
    if result.stdout.strip() != b"alive":
        kind = SandboxDamagedError if began and not result.timed_out else GradingError
        raise kind(f"the sandbox no longer answers (exit code {result.exit_code})")


def excerpt(data: bytes | str, limit: int = EXCERPT) -> str:
    """The end of some output as text, or ``(nothing)``; errors are at the end."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    text = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    text = text.strip()
    if not text:
        return "(nothing)"
    return text if len(text) <= limit else f"... {text[-limit:]}"
