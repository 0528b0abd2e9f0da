"""What a check needs of a sandbox, and nobody asked the agent for."""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import frozen

from ale.protocols import Sandbox
from ale.types import Task
from ale_grading.signed_tests.clean import clean, new_scratch

_MOST = 200
"""Names that are looked for."""
_PROGRAMS = """
for name; do command -v -- "$name" >/dev/null 2>&1 || printf '%s\\n' "$name"; done
"""
_MODULES = """
import importlib.util, sys
sys.path += filter(None, sys.argv[1].split(":"))
for name in sys.argv[2].split(","):
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        print(name)
"""
# A folder that the agent was given may tell it what to make: only a name that no file has is new
# to it. Read in a sandbox where no agent has worked.
_TOLD = """
for name; do grep -rqwsF -- "$name" . && printf '%s\\n' "$name"; done
"""


def needed_modules(tree: ast.AST) -> frozenset[str]:
    """The packages beside Python's own that a program imports at any rate.

    Not below ``try`` and ``if``: there a program may handle that one is missing.
    """
    found = set[str]()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
        elif not isinstance(node, ast.Try | ast.If):
            found |= needed_modules(node)
    return frozenset(found - sys.stdlib_module_names)


@frozen(kw_only=True)
class Look:
    """Looks for what a check needs, in one sandbox.

    Args:
        untouched: no agent has worked in it: then what its files name is left out, as they may tell
            the agent to make it.
        env: added to the clean environment.
    """

    task: Task
    sandbox: Sandbox
    untouched: bool
    env: Mapping[str, str]

    async def programs(self, names: Iterable[str]) -> frozenset[str]:
        """The programs that are not on the path of grading, of those that the task does not name.

        Raises:
            SandboxError: the sandbox is gone.
        """
        return await self._lacking(("/bin/sh", "-c", _PROGRAMS, "ale-grading"), names)

    async def modules(
        self, names: Iterable[str], *, python: str, import_paths: Sequence[str] = (".",)
    ) -> frozenset[str]:
        """The Python modules that can't be imported, of those that the task does not name.

        Args:
            import_paths: folders of the workspace; if none, nothing there is imported.

        Raises:
            SandboxError: the sandbox is gone.
        """
        alone = () if import_paths else ("-I",)
        command = (python, *alone, "-B", "-c", _MODULES, ":".join(import_paths))
        return await self._lacking(command, names, joined=True)

    async def _lacking(
        self, command: Sequence[str], names: Iterable[str], *, joined: bool = False
    ) -> frozenset[str]:
        wanted = not_named(names, self.task)
        arguments = [",".join(wanted)] if joined else wanted
        missing = await self._listed((*command, *arguments), wanted)
        if self.untouched:
            told = ("/bin/sh", "-c", _TOLD, "ale-grading", *sorted(missing))
            missing -= await self._listed(told, missing)
        return missing

    async def _listed(self, command: Sequence[str], names: Collection[str]) -> frozenset[str]:
        """The names that a command prints; none of none."""
        if not names:
            return frozenset()
        command = clean(command, self.task, self.env, new_scratch())
        result = await self.sandbox.exec(command, timeout_s=60)
        return frozenset(result.stdout.decode("utf-8", "replace").splitlines()) & {*names}


def not_named(names: Iterable[str], task: Task) -> list[str]:
    """The names that stand neither in the goal nor in the reference solution.

    One that does may be the agent's to provide: "install jq", "write solution.py".
    """
    told = "\n".join((task.goal, *(task.solution or ())))
    words = {word.casefold().strip(".-") for word in re.findall(r"[\w.+-]+", told)}
    words |= {part for word in words for part in (*word.split("."), *re.split(r"[.\-]", word))}
    return [name for name in dict.fromkeys(names) if name.casefold() not in words][:_MOST]
