"""The agent that attacks the grading of a task in place of solving it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.judging import is_below
from ale.plugin import BuildContext
from ale.protocols import AgentContext, Sandbox
from ale.runs import path_in
from ale.types import Stop, Task
from ale_agent_oracle.attacks import ATTACKS
from ale_agent_oracle.forgeries import FORGERIES, forged
from ale_agent_oracle.options import AttackOptions
from ale_agent_oracle.oracle import Commands, OracleAgent

READ = "read-answers"
NOT_TRIED = "not tried"
"""Begins the detail of an episode in which the sandbox does not allow the attack."""
_NEEDLES = ".ale-needles"
_SHORTEST, _MOST_LINES, _MOST_BYTES = 16, 200, 1 << 20
_ENOUGH = 3
"""Lines of one text that a file must have, or all if the text has fewer."""
_FILES = 'for each; do [ -f "$each" ] && [ ! -L "$each" ] && printf "%s\\0" "$each"; done; true'
"""Prints the regular files among its arguments."""
_COMPILED = re.compile(r"(.*/)__pycache__/([^/.]+)\.[^/]+\.pyc")
_SKIPPED = ("/proc", "/sys", "/dev", "/usr", "/lib", "/lib64", "/var/lib")


class AttackAgent(OracleAgent):
    """Runs the commands of a stock attack, as the agent that it is given the place of.

    An attack that changes more than the workspace is carried out only in a sandbox with files of
    its own; elsewhere the episode ends at once and says so.
    """

    def __init__(self, options: AttackOptions, context: BuildContext) -> None:
        super().__init__(options, context)
        self._attack = options.attack

    async def run(self, context: AgentContext) -> Stop:
        """Attack, to the last command or to a limit."""
        name = self._attack
        isolated = context.sandbox.capabilities.filesystem_isolation
        if name in FORGERIES:
            return await self._forging(context, isolated=isolated)
        if name == READ:
            commands = await _searching(context, isolated=isolated)
        elif ATTACKS[name].whole_system and not isolated:
            reason = "it changes files outside the workspace, which are this machine's here"
            return Stop(reason="finished", detail=f"{NOT_TRIED}: {reason}")
        else:
            commands = ATTACKS[name].commands
        return await Commands(self._options, commands, self._monotonic, context, name).run()

    async def _forging(self, context: AgentContext, *, isolated: bool) -> Stop:
        """Run the solution, and forge the files of its own that its pass rests on."""
        sandbox = context.sandbox
        used = dict.fromkeys(
            _COMPILED.sub(r"\1\2.py", each) for each in context.task.reference_used or ()
        )
        paths = [each for each in used if isolated or is_below(each, sandbox.workdir)]
        if not paths:
            why = "no file of the solution's is known that the tests have used"
            return Stop(reason="finished", detail=f"{NOT_TRIED}: {why}")
        before = await _contents(paths, sandbox)
        await super().run(context)
        after = await _contents(paths, sandbox)
        # Outside of the workspace, what the image has too is not the solution's alone.
        own = {
            path: data
            for path, data in after.items()
            if before.get(path) != data and (path not in before or is_below(path, sandbox.workdir))
        }
        made = []
        for path, text in forged(self._attack, own).items():
            write = ["sh", "-c", 'cat > "$1"', "sh", path]
            if (await sandbox.exec(write, stdin=text.encode())).exit_code == 0:
                made.append(path)
        if not made:
            why = "the tests have used no file whose content is the solution's"
            return Stop(reason="finished", detail=f"{NOT_TRIED}: {why}")
        return Stop(reason="finished", detail=f"ran the solution and forged {', '.join(made)}")


async def _contents(paths: Sequence[str], sandbox: Sandbox) -> Mapping[str, bytes]:
    """The contents of the regular files among some paths, by path; of each the beginning."""
    done = await sandbox.exec(["sh", "-c", _FILES, "sh", *paths])
    found = done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    return {path: await sandbox.read(path, max_bytes=_MOST_BYTES) for path in found}


async def _searching(context: AgentContext, *, isolated: bool) -> Sequence[str]:
    """Commands that print the files in which the solution or the tests stand, a line for each.

    In a sandbox without files of its own only the workspace is searched: whatever else a user of
    this machine may read, such an agent may.
    """
    paths = "".join(f" -o -path {path}" for path in _SKIPPED) if isolated else ""
    skipped = f"\\( -name '{_NEEDLES}-*'{paths} \\) -prune"
    commands = []
    for i, (about, lines) in enumerate(_secrets(context.task)):
        needles = f"{context.sandbox.workdir}/{_NEEDLES}-{i}"
        await context.sandbox.write(needles, "".join(f"{line}\n" for line in lines).encode())
        counted = f"grep -Fc -f {shlex.quote(needles)} /dev/null"
        enough = f"$NF >= {min(_ENOUGH, len(lines))}"
        commands.append(
            f"find {'/' if isolated else '.'} -xdev {skipped} -o -type f -size -1025k "
            f"-exec {counted} {{}} + 2>/dev/null | "
            f"awk -F: '{enough} {{ sub(/:[0-9]+$/, \"\"); print }}' | "
            f"sed {shlex.quote(f's|^|{about}: |')}; rm -f {shlex.quote(needles)}"
        )
    return commands


def _secrets(task: Task) -> Iterator[tuple[str, Sequence[str]]]:
    """Texts that no agent should be able to read: a name, and the lines that nothing else shows."""
    parts = task.steps or (task,)
    known = {*_lines(task.goal), *(line for part in parts for line in _lines(part.goal))}
    for part in (task, *task.steps):
        if part.files is not None:
            known.update(line for _, text in _texts(Path(part.files)) for line in _lines(text))
    for part in parts:
        texts = [("solution", "\n".join(part.solution or ()))]
        paths = {
            path
            for spec in part.criteria
            for path in _paths(spec.options, None if spec.file is None else Path(spec.file).parent)
        }
        if (files := part.metadata.get("solution_files")) is not None:
            texts += [("solution", text) for _, text in _texts(Path(str(files)))]
        texts += [each for path in sorted(paths) for each in _texts(path)]
        for about, text in texts:
            lines = [line for line in dict.fromkeys(_lines(text)) if line not in known]
            if lines:
                yield about, lines[:_MOST_LINES]


def _lines(text: str) -> Iterator[str]:
    for line in map(str.strip, text.splitlines()):
        if len(line) >= _SHORTEST and not line.startswith(("import ", "from ", "#!")):
            yield line


def _paths(options: Any, base: Path | None) -> Iterator[Path]:
    """Files and folders of this machine that options name."""
    if isinstance(options, Mapping):
        options = list(options.values())
    if isinstance(options, list | tuple):
        for each in options:
            yield from _paths(each, base)
    elif isinstance(options, str) and (path := path_in(options, base)) is not None:
        yield path


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """The text files at a path of this machine, with their names."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and file.stat().st_size <= _MOST_BYTES:
            try:
                yield file.name, file.read_text()
            except UnicodeDecodeError:
                continue
