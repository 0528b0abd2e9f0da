"""A fresh container with the changes of another one: what it has, and what nothing in it can do."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ale.errors import SandboxDamagedError
from ale.judging import EVERYTHING
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.images import DEBIAN
from ale_sandboxing.container_testing.tools import Make, opened, out

_CHANGES = """\
set -e
mkdir -p /srv/new /usr/local/bin; echo text >/srv/new/file; chmod 4755 /srv/new/file
printf a >/srv/one; ln /srv/one /srv/two; ln -s one /srv/link; mkfifo /srv/pipe
truncate -s 100M /srv/sparse
echo more >>/etc/group; echo other >/etc/issue
rm /etc/debian_version
rm -r /etc/skel; mkdir /etc/skel; echo new >/etc/skel/new
cp /bin/cat /usr/local/bin/cat; ln -s /bin/true /usr/local/bin/unused
ln -s /bin/grep /usr/local/bin/grep
chown 1234:1234 /srv/new
rm -r /etc/host.conf; mkdir -p /etc/host.conf/in; rm -r /etc/profile.d; ln -s /srv /etc/profile.d
"""
_STATE = """\
cd /
find srv etc/skel usr/local/bin etc/host.conf etc/profile.d -printf '%p %y %m %U %s %n\\n' | sort
cat etc/issue; tail -1 etc/group; ls etc/debian_version 2>&1; cat srv/link
"""


@pytest.mark.asyncio
class JudgeProbes:
    """Promises of a judge."""

    container_image = DEBIAN

    @pytest_asyncio.fixture
    async def early(self, make: Make) -> AsyncIterator[ContainerSandbox]:
        """A sandbox in which no agent has begun."""
        async with opened(make(capabilities=("DOCKER_DEFAULT",))) as sandbox:
            yield sandbox

    @pytest_asyncio.fixture(params=["at once", "ready"])
    async def sandbox(
        self, early: ContainerSandbox, request: pytest.FixtureRequest
    ) -> ContainerSandbox:
        await early.agent_started(None)
        if request.param == "ready":
            await early.prepare_judge()
        return early

    async def test_it_has_the_same_files(self, sandbox: ContainerSandbox) -> None:
        await out(sandbox, _CHANGES)
        # Each stamps what it looks at alike.
        expected = await out(sandbox, _STATE)
        async with sandbox.open_judge() as judge:
            assert await out(judge.sandbox, _STATE) == expected
            assert await judge.has("/srv/new/file")
            assert not await judge.has("/srv/new/file", image=True)
            assert await judge.has("/etc/debian_version", image=True)
            assert not await judge.has("/etc/debian_version")

    async def test_it_says_what_was_used(self, sandbox: ContainerSandbox) -> None:
        await out(sandbox, _CHANGES)
        async with sandbox.open_judge() as judge:
            before = {change.path: change.kind for change in await judge.used()}
            before.pop("/etc/group", None)  # which engines read themselves
            names = ("/etc/debian_version", "/etc/skel/", "/etc/host.conf/")
            assert before == dict.fromkeys(names, "removed")
            await out(judge.sandbox, "/usr/local/bin/cat /srv/two; grep -c . /etc/group; ls /srv")
            used = {change.path: change for change in await judge.used()}
        assert {path: change.kind for path, change in used.items()} == before | {
            "/etc/group": "changed",
            "/srv/one": "added",
            "/srv/two": "added",
            "/usr/local/bin/cat": "added",
            "/usr/local/bin/grep": "added",
        }
        assert used["/etc/group"].only_longer

    async def test_who_used_a_file_cannot_hide_it(self, sandbox: ContainerSandbox) -> None:
        await out(sandbox, "echo a >/srv/a; echo b >/srv/b; echo c >/srv/c")
        async with sandbox.open_judge() as judge:
            await out(
                judge.sandbox, "cat /srv/a; touch -a -d @0 /srv/a; rm /srv/b; dd if=/srv/c of=/d"
            )
            assert [change.path for change in await judge.used()] == ["/srv/a", "/srv/b", "/srv/c"]

    async def test_what_was_there_before_the_agent_is_carried_and_not_told_of(
        self, early: ContainerSandbox
    ) -> None:
        sandbox = early
        await out(sandbox, "echo early >/srv/early; sleep 0.1")
        await sandbox.agent_started(None)
        async with sandbox.open_judge() as judge:
            assert await out(judge.sandbox, "cat /srv/early") == "early"
            assert list(await judge.used()) == []

    async def test_left_out_paths_are_the_images(self, sandbox: ContainerSandbox) -> None:
        image = await out(sandbox, "cat /etc/issue; ls -A /etc/skel; cat /etc/debian_version")
        await out(sandbox, _CHANGES)
        without = ("/etc/issue", "/etc/skel/", "/etc/skel/new", "/etc/debian_version", "/srv")
        async with sandbox.open_judge(without) as judge:
            state = "cat /etc/issue; ls -A /etc/skel; cat /etc/debian_version"
            assert await out(judge.sandbox, state) == image
            assert await out(judge.sandbox, "ls /srv") == ""
            assert await out(judge.sandbox, "ls /usr/local/bin/grep") != ""

    async def test_all_of_the_agents_changes_can_be_left_out(self, early: ContainerSandbox) -> None:
        look = (
            "cat /etc/issue /srv/early; ls -A /etc/skel /etc/profile.d /srv; ls -d /etc/host.conf"
        )
        await out(early, "mkdir -p /srv; echo early >/srv/early; sleep 0.1")
        before = await out(early, look)
        await early.agent_started(None)
        await out(early, _CHANGES)
        async with early.open_judge((EVERYTHING,)) as judge:
            left = (await out(judge.sandbox, look)).splitlines()
        assert [line for line in left if line != "new"] == before.splitlines()  # an empty folder

    async def test_it_says_what_was_made_in_it(self, sandbox: ContainerSandbox) -> None:
        await out(sandbox, "mkdir -p /srv; echo mine >/srv/mine; cp /bin/cat /usr/local/bin/cat")
        async with sandbox.open_judge() as judge:
            assert await judge.made() == []
            await out(
                judge.sandbox,
                "cp /bin/true /bin/new; mv -f /bin/new /bin/cmp; rm /etc/debian_version;"
                "echo 2 >/srv/mine; touch -d @0 /srv/mine; touch /opt/it; rm /opt/it;"
                "cat /srv/mine",
            )
            made = {change.path: change.kind for change in await judge.made()}
            assert {path.removeprefix("/usr"): kind for path, kind in made.items()} == {
                "/bin/cmp": "changed",
                "/etc/debian_version": "removed",
                "/srv/mine": "added",
                "/opt/": "changed",
            }
            await judge.settled()
            assert await judge.made() == []

    async def test_it_says_what_came_and_went(self, sandbox: ContainerSandbox) -> None:
        await out(sandbox, "mkdir -p /srv/deep/er; ln -s /etc /srv/link")
        async with sandbox.open_judge() as judge:
            await judge.watch({"/srv": 1, "/srv/link": 0, "/usr/local/bin": 0, "/nowhere": 0})
            come_and_go = "for p in /srv/a /srv/deep/b /srv/deep/er/c /usr/local/bin/d; do"
            come_and_go += " echo >$p; rm $p; touch ${p%/*}/kept; done; mkdir /srv/e; rmdir /srv/e"
            for _ in range(2):
                await out(judge.sandbox, come_and_go)
                made = {change.path: change.kind for change in await judge.made()}
                gone = ("/srv/a", "/srv/deep/b", "/usr/local/bin/d", "/srv/e/")
                assert {path: made.get(path) for path in gone} == dict.fromkeys(gone, "added")
                assert not [path for path in made if path.startswith(("/srv/link", "/etc"))]
                await judge.settled()
                assert await judge.made() == []

    async def test_it_has_files_of_names_of_its_own(self, make: Make) -> None:
        async with opened(make(capabilities=("DOCKER_DEFAULT",), network=True)) as sandbox:
            first = await out(sandbox, "cat /etc/hosts")
            await sandbox.agent_started(None)
            async with sandbox.open_judge() as judge:
                assert await out(judge.sandbox, "cat /etc/hosts") == first
                assert list(await judge.used()) == []
            await out(sandbox, "printf '127.0.0.1\\tmine\\n' >>/etc/hosts")
            async with sandbox.open_judge() as judge:
                assert list(await judge.used()) == []
                await out(sandbox, "printf '127.0.0.1\\tlate\\n' >>/etc/hosts")
                assert await out(judge.sandbox, "cat /etc/hosts") == f"{first}\n127.0.0.1\tmine"
                assert [(one.path, one.kind) for one in await judge.used()] == [
                    ("/etc/hosts", "changed")
                ]
                await out(judge.sandbox, "echo 127.0.0.1 judge >/etc/hosts")
            assert "judge" not in await out(sandbox, "cat /etc/hosts")
            for without in ("/etc/hosts", EVERYTHING):
                async with sandbox.open_judge((without,)) as judge:
                    assert await out(judge.sandbox, "cat /etc/hosts") == first
                    assert list(await judge.used()) == []

    async def test_files_in_memory_are_carried(self, make: Make) -> None:
        async with opened(make(tmp_mb=8)) as sandbox:
            await sandbox.agent_started(None)
            await out(sandbox, "echo a >/tmp/a; echo b >/dev/shm/b; ln -s /etc /tmp/link")
            async with sandbox.open_judge() as judge:
                assert await out(judge.sandbox, "cat /tmp/a /dev/shm/b") == "a\nb"
                assert await out(judge.sandbox, "readlink /tmp/link") == "/etc"
                used = [(one.path, one.kind) for one in await judge.used()]
                assert sorted(used) == [
                    (path, "added") for path in ("/dev/shm/b", "/tmp/a", "/tmp/link")
                ]
            async with sandbox.open_judge(("/tmp/a", "/dev/shm/b")) as judge:
                assert await out(judge.sandbox, "ls /tmp /dev/shm") == "/dev/shm:\n\n/tmp:\nlink"
                assert list(await judge.used()) == []

    async def test_it_reaches_a_server_and_sees_none_of_its_processes(
        self, sandbox: ContainerSandbox
    ) -> None:
        serve = "cd /srv && echo served >it && exec python3 -m http.server 8111 --bind 127.0.0.1"
        await out(sandbox, f"setsid sh -c '{serve}' >/dev/null 2>&1 </dev/null &")
        assert await sandbox.left_running() == 1
        async with sandbox.open_judge() as judge:
            fetch = (
                "import time, urllib.request as u\n"
                "for _ in range(50):\n"
                "  try: print(u.urlopen('http://127.0.0.1:8111/it').read().decode()); break\n"
                "  except OSError: time.sleep(0.1)\n"
            )
            said = await judge.sandbox.exec(["python3", "-c", fetch])
            assert said.stdout.decode().strip() == "served", said
            assert "8111" not in await out(judge.sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            await judge.sandbox.exec("kill -9 -1")
        assert await sandbox.left_running() == 1
        await sandbox.end_processes()
        assert await sandbox.left_running() == 0

    async def test_one_that_was_prepared_has_the_network_of_a_container_that_was_restarted(
        self, early: ContainerSandbox
    ) -> None:
        sandbox = early
        await sandbox.agent_started(None)
        await sandbox.prepare_judge()
        await asyncio.sleep(2)  # so that it is there before the restart
        # As where the supervisor can't end a process.
        await sandbox._commands._start_again(0, "a test", TimeoutError())
        await self.test_it_reaches_a_server_and_sees_none_of_its_processes(sandbox)

    async def test_a_session_counts_for_what_it_has_started_alone(
        self, sandbox: ContainerSandbox
    ) -> None:
        session = await sandbox.session()
        await session.run("cd /")
        assert await sandbox.left_running() == 0
        await session.run("sleep 1000 &")
        assert await sandbox.left_running() == 1

    async def test_files_with_which_nothing_starts_are_damage(
        self, sandbox: ContainerSandbox
    ) -> None:
        await out(sandbox, "mkfifo /etc/ld.so.preload")
        with pytest.raises(SandboxDamagedError):
            async with sandbox.open_judge():
                pass
