"""Makes a sandbox ready for tests: nothing of the agent's may come between them and a verdict."""

import posixpath
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from ale.errors import NoVerdictError
from ale.protocols import Sandbox
from ale_tasks_harbor import integrity
from ale_tasks_harbor.integrity import Record
from ale_tasks_harbor.paths import SandboxPaths

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN = {
    "PATH": f"/usr/local/sbin:/usr/local/bin:{SYSTEM}",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
"""Where there is no record of the sandbox's own."""
STEP_S = 120.0
_ROUNDS = 5
_OUTPUT = 8 << 20
_REWARD = 1 << 16

# $1 folder of the logs, then other paths. What is not this user's to remove is left.
_REMOVE = """
logs=$1 && shift
if [ -L "$logs" ] || { [ -e "$logs" ] && [ ! -d "$logs" ]; }; then rm -f -- "$logs"; fi
rm -rf -- "$logs/verifier" "$@" 2>/dev/null
:
"""
# Likewise, after it: fails where something is left, and says whether the folders could be made.
_MAKE = """
bad() { [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; }
if bad "$1"; then echo "$1 can not be removed" >&2; exit 1; fi
logs=$1 && shift
for path in "$logs/verifier" "$@"; do
  if bad "$path" || [ -n "$(ls -A "$path" 2>/dev/null)" ]; then
    echo "$path can not be emptied" >&2
    exit 1
  fi
done
cd "$logs" 2>/dev/null || exit 0
mkdir -m 777 artifacts 2>/dev/null
mkdir -p verifier agent artifacts && chmod 777 verifier && echo made
:
"""
# $1 a file: the record is signed, so it does not matter what reads it.
_SHOW = '[ -f "$1" ] && [ ! -L "$1" ] && cat -- "$1"; :'
_LOOK = ["/bin/sh", "-c", "id -u 2>/dev/null || echo; exec cat /proc/self/environ"]
# $1 a folder
_FULL = 'for file in "$1"/*; do if [ -e "$file" ]; then echo full; break; fi; done'
# $1 a new folder, then paths
_MOVE_AWAY = """
set -e
folder=$1 && shift && mkdir -m 700 -- "$folder"
number=0
for path in "$@"; do number=$((number + 1)) && mv -- "$path" "$folder/$number"; done
"""
# $1 a new folder, then pairs of program and file
_SHIMS = """
set -e
folder=$1 && shift && mkdir -m 755 -- "$folder"
while [ $# -gt 0 ]; do
  if [ -x "$2" ]; then printf '#!%s\\nexec "%s" "$@"\\n' /bin/sh "$2" >"$folder/$1"; fi
  if [ -e "$folder/$1" ]; then chmod 755 "$folder/$1"; fi
  shift 2
done
"""


@frozen(kw_only=True)
class PreparedSandbox:
    """A sandbox that is ready, and what had to be done for it."""

    environment: Mapping[str, str]
    notes: Sequence[str] = field(factory=tuple)
    root: str | None = None
    """Name of root, where the sandbox's user is another."""


@frozen(kw_only=True)
class Verdict:
    """Files that the tests have left in the folder of the logs."""

    as_json: bytes | None
    as_text: bytes | None


class TestPreparation:
    """Prepares one sandbox.

    Args:
        key: of the record; None where the task writes none.
        instruction: of the task.
    """

    def __init__(
        self, sandbox: Sandbox, places: SandboxPaths, key: str | None, instruction: str = ""
    ) -> None:
        self._sandbox = sandbox
        self._places = places
        self._key = key
        self._instruction = instruction
        # If not, all is done as the sandbox's user; what that user can't move away is an error.
        self._switches = "switch-user" in sandbox.capabilities.features
        self._root: str | None = None
        self._path = CLEAN["PATH"]

    async def ready(self) -> PreparedSandbox:
        """Put out of the way whatever the agent has put in it.

        Raises:
            NoVerdictError: the record is gone, or something can't be moved.
            SandboxError: the sandbox is gone.
        """
        record = await self._record()
        notes: list[str] = []
        environment: Mapping[str, str] = CLEAN
        if record is not None:
            environment = dict(record.environment)
            self._path = environment.get("PATH", self._path)
            self._root = None if record.uid == 0 or not self._switches else "0"
            environment, notes = await self._cured(record, environment)
        own = record is not None and record.has_tests
        await self._empty([] if own else [self._places.tests])
        if own:
            notes.append(f"the image has its own {self._places.tests}, which was not emptied")
        root = None if self._root is None else "root"
        return PreparedSandbox(environment=environment, notes=notes, root=root)

    async def _record(self) -> Record | None:
        if self._key is None:
            return None
        for place in self._places.records:
            data = await self._sh(_SHOW, place, root=False)
            record = integrity.verified(data, self._key)
            if record is not None:
                return record
        raise NoVerdictError(
            "the agent has removed or changed the record of what the image held "
            f"({' or '.join(self._places.records)}), so the tests prove nothing"
        )

    async def _cured(
        self, record: Record, environment: Mapping[str, str]
    ) -> tuple[Mapping[str, str], list[str]]:
        notes: list[str] = []
        for _ in range(_ROUNDS):
            found = integrity.changes(record.look, await self._look(record), self._instruction)
            if not found.planted:
                break
            target = f"/tmp/.ale-moved-{secrets.token_hex(8)}"  # noqa: S108 - made anew, or it fails
            await self._sh(_MOVE_AWAY, target, *found.planted)
            notes += [f"moved away: {path}" for path in found.planted]
        else:
            raise NoVerdictError(f"planted files can't be moved away: {', '.join(found.planted)}")
        if not found.shadowed:
            return environment, notes
        shims = f"/tmp/.ale-programs-{secrets.token_hex(8)}"  # noqa: S108 - made anew, or it fails
        await self._sh(_SHIMS, shims, *(word for pair in found.shadowed.items() for word in pair))
        named = ", ".join(sorted(found.shadowed))
        notes.append(f"the image's own programs were put before the agent's on PATH: {named}")
        return {**environment, "PATH": f"{shims}:{self._path}"}, notes

    async def _empty(self, others: Sequence[str]) -> None:
        """Make the folders for the tests and their verdict anew."""
        if self._root is not None:
            await self._sh(_REMOVE, self._places.logs, *others, root=False)
        await self._sh(_REMOVE, self._places.logs, *others)
        if await self._sh(_MAKE, self._places.logs, *others) == b"made\n":
            return
        # By the engine, which may write where root without privileges may not.
        with tempfile.TemporaryDirectory() as name:
            for folder in ("verifier", "agent", "artifacts"):
                made = Path(name) / "logs" / folder
                made.mkdir(parents=True)
                made.chmod(0o777)
            (Path(name) / "logs").chmod(0o755)
            await self._sandbox.upload(Path(name) / "logs", self._places.logs)

    async def fresh(self, *, tests_in_image: bool) -> PreparedSandbox:
        """Make ready what no agent has been in, though files of one's may be there.

        Args:
            tests_in_image: the image has a folder for the tests, which is left as it is.

        Raises:
            NoVerdictError, SandboxError: as `ready`.
        """
        await self._empty([] if tests_in_image else [self._places.tests])
        if tests_in_image:
            await self._sh('chmod -R +x -- "$1"', self._places.tests)
        shown = await self._sandbox.exec(_LOOK, timeout_s=STEP_S)
        uid, _, environment = shown.stdout.partition(b"\n")
        root = "root" if self._switches and uid.strip() not in (b"", b"0") else None
        return PreparedSandbox(environment=integrity.variables(environment), root=root)

    async def has_artifacts(self) -> bool:
        """Is there anything in the folder that is kept without being named?"""
        return await self._sh(_FULL, f"{self._places.logs}/artifacts", root=False) == b"full\n"

    async def clear(self) -> None:
        """Leave nothing of the tests, their verdict and what is kept to who comes after them."""
        await self._empty([self._places.tests, f"{self._places.logs}/artifacts"])

    async def _look(self, record: Record) -> integrity.Look:
        # The look is at what this PATH leads to; it needs no program but stat, from elsewhere.
        output = await self._sh(f'{integrity.LOOK}\nlook "$@"', *record.folders, path=self._path)
        entries = [part.decode("utf-8", "surrogateescape") for part in output.split(b"\0")]
        return integrity.look_of(entries)

    async def _sh(
        self, script: str, *arguments: str, path: str = SYSTEM, root: bool = True
    ) -> bytes:
        """Run a script as root, with programs from the system's own folders."""
        result = await self._sandbox.exec(
            ["/bin/sh", "-c", script, "ale", *arguments],
            env={"PATH": path, "BASH_ENV": "", "ENV": "", "LC_ALL": "C"},
            cwd="/",
            user=self._root if root else None,
            timeout_s=STEP_S,
            max_output_bytes=_OUTPUT,
        )
        if result.exit_code != 0 or result.timed_out or result.truncated:
            output = result.stderr.decode("utf-8", "replace").strip()[-600:]
            how = "took too long" if result.timed_out else f"ended with {result.exit_code}"
            raise NoVerdictError(
                f"the sandbox could not be made ready for the tests ({how}): {output}"
            )
        return result.stdout

    async def verdict(self) -> Verdict:
        """The files that the tests have written.

        No program of the sandbox reads them: the agent may have replaced its shell.

        Raises:
            NoVerdictError: a reward is there that can't be read.
        """
        return Verdict(
            as_json=await self._reward("reward.json"), as_text=await self._reward("reward.txt")
        )

    async def _reward(self, name: str) -> bytes | None:
        path = f"{self._places.logs}/verifier/{name}"
        try:
            return await self._sandbox.read(path, max_bytes=_REWARD)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoVerdictError(f"{path} can't be read: {error}") from error

    async def put(self, sources: Sequence[str], script: str) -> None:
        """Put tests in their place: folders by content, scripts by name; `script` can be run."""
        for source in map(Path, sources):
            target = self._places.tests
            if not source.is_dir():
                target = posixpath.join(target, source.name)
            await self._sandbox.upload(source, target)
        # By their owner, who is the sandbox's user: root without privileges may not.
        modes = 'chmod +x -- "$1/$2" && chmod 755 -- "$1"'
        await self._sh(modes, self._places.tests, script, root=False)
