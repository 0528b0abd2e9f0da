"""A fresh sandbox with the changes of another one, and which of them were used in it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from attrs import evolve

from ale.errors import SandboxDamagedError
from ale.judging import EVERYTHING
from ale.protocols import Sandbox
from ale.types import ExecResult, SandboxSpec
from ale_sandbox_bubblewrap.backend import BubblewrapBackend
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox

Build = Callable[..., BubblewrapBackend]
CHANGES = """\
set -e
mkdir -p /srv/new; echo text >/srv/new/file; printf a >/srv/one; ln -s one /srv/link; mkfifo /srv/p
echo more >>/etc/services; rm /etc/shells; cp /bin/cat /usr/local/bin/cat
cp /bin/true /usr/local/bin/unused; rm /usr/bin/cmp
rm -r /opt/old; mkdir /opt/old; echo new >/opt/old/new
ln /srv/one /opt/two; touch -h -d @5 /srv/link
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/srv/socket")'
"""
STATE = """\
cd /; find srv usr/local/bin opt -printf '%p %y %m %U %s %l\\n' | sort
stat -c %Y srv/link; [ srv/one -ef opt/two ] && echo one file
tail -1 etc/services; ls etc/shells usr/bin/cmp 2>&1
"""


async def out(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.exec(command, timeout_s=60)
    return result.stdout.decode().strip()


@pytest_asyncio.fixture
async def sandbox(shared: Build) -> AsyncIterator[BubblewrapSandbox]:
    """One with a layer below, in which a folder is."""
    async with shared().open(SandboxSpec()) as first:
        await out(first, "mkdir /opt/old; echo old >/opt/old/file")
        fork = await first.fork()
    assert isinstance(fork, BubblewrapSandbox)
    await fork.prepare_judge()
    yield fork
    await fork.close()


async def test_it_has_the_same_files_and_says_which_were_used(sandbox: BubblewrapSandbox) -> None:
    await out(sandbox, CHANGES)
    expected = await out(sandbox, STATE)
    async with sandbox.open_judge() as judge:
        removed = {"/etc/shells", "/usr/bin/cmp", "/opt/old/"}
        assert {change.path: change.kind for change in await judge.used()} == dict.fromkeys(
            removed, "removed"
        )
        assert await out(judge.sandbox, STATE) == expected
        await out(judge.sandbox, "cat /srv/link; touch -a -d @0 /srv/one; cat /etc/services")
        used = {change.path: change for change in await judge.used()}
        assert {path: change.kind for path, change in used.items()} == {
            **dict.fromkeys(removed, "removed"),
            "/etc/services": "changed",
            "/srv/link": "added",
            "/srv/one": "added",
            "/opt/two": "added",
            "/usr/local/bin/cat": "added",
        }
        assert used["/etc/services"].only_longer
        assert await judge.has("/srv/one")
        assert not await judge.has("/srv/one", image=True)
        assert await judge.has("/usr/bin/cmp", image=True)
        assert not await judge.has("/usr/bin/cmp")
    assert await out(sandbox, "cat /srv/one") == "a"


async def test_left_out_paths_are_the_hosts(sandbox: BubblewrapSandbox) -> None:
    state = "ls /opt/old; tail -1 /etc/services; ls /usr/bin/cmp"
    host = await out(sandbox, state)
    await out(sandbox, CHANGES + "mkdir -p /srv/__pycache__/in")
    without = ("/opt/old/", "/opt/old/new", "/etc/services", "/usr/bin/cmp")
    async with sandbox.open_judge((*without, "__pycache__", "/srv/new")) as judge:
        assert await out(judge.sandbox, state) == host
        assert await out(judge.sandbox, "ls /srv") == "link\none\np\nsocket"


async def test_all_of_the_agents_changes_can_be_left_out(sandbox: BubblewrapSandbox) -> None:
    look = "ls /opt/old /etc/shells /usr/bin/cmp; tail -1 /etc/services; find /srv -type f"
    before = await out(sandbox, look)
    await out(sandbox, CHANGES)
    async with sandbox.open_judge((EVERYTHING,)) as judge:
        assert await out(judge.sandbox, look) == before


async def test_it_says_what_was_made_in_it(sandbox: BubblewrapSandbox) -> None:
    await out(sandbox, CHANGES)
    async with sandbox.open_judge() as judge:
        assert await judge.made() == []
        await out(
            judge.sandbox,
            "cp /bin/true /bin/new; mv -f /bin/new /bin/tac; echo 2 >/srv/one;"
            "touch -d @0 /srv/one; echo >>/etc/services; rm /opt/old/new; cat /srv/one",
        )
        made = {change.path: change.kind for change in await judge.made()}
        assert made == {
            "/usr/bin/tac": "changed",
            "/srv/one": "added",
            "/opt/two": "added",
            "/etc/services": "changed",
            "/opt/old/": "changed",
        }
        await judge.settled()
        assert await judge.made() == []


async def test_files_in_memory_are_carried_and_told_of(sandbox: BubblewrapSandbox) -> None:
    await out(
        sandbox, "cd /dev/shm; mkdir deep; echo a >deep/a; echo b >b; ln -s /etc link; chmod 700 b"
    )
    state = "cd /dev/shm && find . -printf '%p %y %m %u\\n' | sort"
    expected = await out(sandbox, state)
    async with sandbox.open_judge() as judge:
        assert await out(judge.sandbox, state) == expected
        assert not [one for one in await judge.used() if one.path.startswith("/dev")]
        await out(
            judge.sandbox, "cat /dev/shm/deep/a; touch -a -d @0 /dev/shm/deep/a; rm /dev/shm/b"
        )
        used = [one.path for one in await judge.used() if one.path.startswith("/dev")]
        assert used == ["/dev/shm/b", "/dev/shm/deep/a"]
    async with sandbox.open_judge(("/dev/shm/deep", "link")) as judge:
        assert await out(judge.sandbox, "ls /dev/shm") == "b"
    async with sandbox.open_judge((EVERYTHING,)) as judge:
        assert await out(judge.sandbox, "ls -A /dev/shm") == ""


async def test_it_says_what_came_and_went(sandbox: BubblewrapSandbox) -> None:
    await out(sandbox, "mkdir -p /srv/deep; ln -s /etc /srv/link")
    async with sandbox.open_judge() as judge:
        await judge.watch({"/srv": 1, "/srv/link": 0, "/usr/local/bin": 0, "/nowhere": 0})
        gone = ("/srv/a", "/srv/deep/b", "/usr/local/bin/c")
        for _ in range(2):
            await out(
                judge.sandbox, f"touch {' '.join(gone)}; rm {' '.join(gone)}; touch /srv/kept"
            )
            made = {change.path: change.kind for change in await judge.made()}
            assert {path: made.get(path) for path in gone} == dict.fromkeys(gone, "added")
            await judge.settled()
            assert await judge.made() == []


async def test_what_was_there_before_the_agent_is_carried_and_not_told_of(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as sandbox:
        await out(sandbox, "echo early >/srv/early; sleep 0.1")
        await sandbox.prepare_judge()
        async with sandbox.open_judge() as judge:
            assert await out(judge.sandbox, "cat /srv/early") == "early"
            assert list(await judge.used()) == []


async def test_a_busy_machine_is_not_taken_for_the_agent(
    sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command of a judge is late; in the next one it is not."""
    exec_, late = BubblewrapSandbox.exec, [True]

    async def first_late(self: BubblewrapSandbox, command: Any, **options: Any) -> ExecResult:
        result = await exec_(self, command, **options)
        return evolve(result, exit_code=124, timed_out=True) if late and late.pop() else result

    await out(sandbox, "echo a >/srv/one")
    monkeypatch.setattr(BubblewrapSandbox, "exec", first_late)
    async with sandbox.open_judge() as judge:
        assert await out(judge.sandbox, "cat /srv/one") == "a"
    assert not late


async def test_nothing_of_the_agents_runs_before_its_files_are_looked_at(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as sandbox:
        await out(sandbox, "mkfifo /etc/ld.so.preload")
        with pytest.raises(SandboxDamagedError):
            async with sandbox.open_judge():
                pass
    async with shared().open(SandboxSpec()) as sandbox:
        await out(sandbox, "rm /bin/sh /usr/bin/sh")
        with pytest.raises(SandboxDamagedError):
            async with sandbox.open_judge():
                pass


async def test_what_is_left_running_is_counted_and_not_there(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as sandbox:
        session = await sandbox.session()
        await session.run("cd /")
        assert await sandbox.left_running() == 0
        await session.run("sleep 1000 &")
        assert await sandbox.left_running() == 1
        async with sandbox.open_judge() as judge:
            assert "1000" not in await out(judge.sandbox, "cat /proc/[0-9]*/cmdline")
            await judge.sandbox.exec("kill -9 -1")
        assert await sandbox.left_running() == 1


async def test_what_lies_in_layers_that_forks_and_snapshots_froze_is_carried(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as sandbox:
        await out(sandbox, "echo early >/srv/early; mkdir /opt/old; echo old >/opt/old/file")
        await (await sandbox.fork()).close()
        await sandbox.prepare_judge()
        await out(sandbox, CHANGES + "rm /srv/early")
        await (await sandbox.fork()).close()
        assert len(sandbox.record.layers) == 3
        await out(sandbox, "echo late >/srv/late; rm /srv/one; cp /bin/tac /usr/local/bin/cat")
        await sandbox.snapshot()
        expected = await out(sandbox, STATE)
        assert len(sandbox.record.layers) == 4
        async with sandbox.open_judge() as judge:
            assert await out(judge.sandbox, STATE) == expected
            await out(judge.sandbox, "cat /srv/late /etc/services")
            assert {change.path: change.kind for change in await judge.used()} == {
                **dict.fromkeys(("/etc/shells", "/usr/bin/cmp", "/opt/old/"), "removed"),
                "/srv/early": "removed",
                "/srv/link": "added",
                "/etc/services": "changed",
                "/srv/late": "added",
                "/usr/local/bin/cat": "added",
            }
