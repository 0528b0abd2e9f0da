"""What is the model's doing becomes an observation; what is the sandbox's breaks the episode."""

import asyncio
import errno

import pytest

from ale.errors import SandboxError
from ale.testing.fakes import FolderSandbox
from ale_agent_iflow.files import Files
from ale_agent_iflow.shell import Shell


class Fenced(FolderSandbox):
    """Refuses paths that lead out, with the error that backends raise for it."""

    async def read(self, path, *, max_bytes=None):
        if self.closed:
            raise SandboxError("the sandbox is gone")
        if path.startswith("/"):
            raise PermissionError(errno.EACCES, "it leads out of the sandbox", path)
        return await super().read(path, max_bytes=max_bytes)


class Bare(FolderSandbox):
    """Raises what it is told to, without words."""

    error = OSError()

    async def read(self, path, *, max_bytes=None):
        raise self.error


class Slow(FolderSandbox):
    """Its files are on a disk that does not answer."""

    async def write(self, path, data, *, mode=None):
        await asyncio.Event().wait()


class Unlucky(FolderSandbox):
    """Its first shell dies before the second command is written to it."""

    async def session(self, *, env=None, cwd=None):
        session = await super().session(env=env, cwd=cwd)
        if len(self._processes) == 1:
            session.run = self._die_after_one(session, session.run)
        return session

    def _die_after_one(self, session, run):
        n_runs = 0

        async def dying(command, **options):
            nonlocal n_runs
            n_runs += 1
            if n_runs > 1:
                await session.close()
            return await run(command, **options)

        return dying


@pytest.fixture(params=[Fenced, Bare, Slow, Unlucky])
async def sandbox(request):
    sandbox = request.param()
    yield sandbox
    await sandbox.close()


def only(kind):
    return pytest.mark.parametrize("sandbox", [kind], indirect=True)


@only(Fenced)
async def test_a_path_outside_the_workspace_is_an_observation(sandbox):
    result = await Files(sandbox, max_output_bytes=1000).read("/etc/x", timeout_s=60)
    assert result.error == "/etc/x: it leads out of the sandbox"


@only(Fenced)
async def test_a_removed_sandbox_is_an_error_and_no_observation(sandbox):
    await sandbox.close()
    with pytest.raises(SandboxError):
        await Files(sandbox, max_output_bytes=1000).read("/etc/x", timeout_s=60)


@only(Slow)
async def test_a_file_that_takes_too_long_is_a_timeout(sandbox):
    result = await Files(sandbox, max_output_bytes=1000).write("f", "text", timeout_s=0.05)
    assert result.error == "f: timed out after 0.05 s"
    assert result.timed_out


@only(Unlucky)
async def test_a_shell_that_died_between_two_commands_is_replaced_and_the_command_run(sandbox):
    shell = Shell(sandbox, max_output_bytes=1000)
    assert (await shell.run("echo one", timeout_s=60)).content == "one\n[exit code 0]"
    second = (await shell.run("echo two", timeout_s=60)).content
    assert second.startswith("[the earlier shell has ended; this is a new one")
    assert second.endswith("two\n[exit code 0]")
    await shell.close()


@only(Bare)
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError("f"), "f: No such file or directory"),
        (IsADirectoryError(), "f: Is a directory"),
        (PermissionError(), "f: Permission denied"),
        (FileExistsError(), "f: FileExistsError"),
    ],
)
async def test_an_error_of_a_path_is_put_into_words(sandbox, error, message):
    sandbox.error = error
    assert (await Files(sandbox, max_output_bytes=1000).read("f", timeout_s=60)).error == message


@only(Bare)
@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError()])
async def test_an_error_of_the_backend_is_not_reported_as_one_of_the_path(sandbox, error):
    sandbox.error = error
    with pytest.raises(type(error)):
        await Files(sandbox, max_output_bytes=1000).read("f", timeout_s=60)
