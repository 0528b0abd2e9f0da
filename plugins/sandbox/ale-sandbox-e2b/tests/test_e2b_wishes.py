"""What the service is asked for, and what is refused before it is asked."""

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ale.errors import NotUsableError, SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_e2b import plugin
from ale_sandbox_e2b.options import E2bOptions
from ale_sandboxing.remote.testing.services import FakeService

Make = Callable[..., Any]


async def asked(service: FakeService, backend: SandboxBackend, spec: SandboxSpec) -> Any:
    """What one creation sent."""
    async with backend.open(spec):
        pass
    return service.calls("create")[-1]["wanted"]


async def test_template_lifetime_and_metadata_reach_the_service(
    service: FakeService, make: Make
) -> None:
    backend = make(
        tags={"run": "r7"}, templates={"debian:12": "mine"}, metadata={"team": "rl"}, lifetime_s=60
    )
    spec = SandboxSpec(image="debian:12", tags={"episode": "0-add two/ü-1"}, env={"A": "1"})
    wanted = await asked(service, backend, spec)
    assert (wanted["templateID"], wanted["timeout"]) == ("mine", 60)
    assert wanted["envVars"]["A"] == "1"
    found = wanted["metadata"]
    assert (found["team"], found["job"], found["problem"]) == ("rl", "r7", "add two/ü")


async def test_tags_are_read_back(make: Make) -> None:
    tags = {"run": "a.b_c", "ü": "1 & 2=3"}
    backend = make(tags=tags)
    async with backend.open(SandboxSpec()) as sandbox:
        (info,) = await backend.list()
        assert (info.id, info.tags, info.owner_alive) == (sandbox.id, tags, True)


@pytest.mark.parametrize(
    ("option", "task", "hosts", "sent"),
    [
        (None, None, (), {"allow_internet_access": False}),
        (None, True, (), {"allow_internet_access": True}),
        (True, None, (), {"allow_internet_access": True}),
        (True, False, (), {"allow_internet_access": False}),
        (False, True, (), {"allow_internet_access": False}),
        (False, False, ("a.org",), {"allow_internet_access": False}),
        (None, False, ("a.org",), {"network": {"allowOut": ["a.org"], "denyOut": ["0.0.0.0/0"]}}),
    ],
)
async def test_the_network_is_off_unless_task_or_option_says_on(
    service: FakeService,
    make: Make,
    option: bool | None,
    task: bool | None,
    hosts: tuple[str, ...],
    sent: dict[str, Any],
) -> None:
    wanted = await asked(
        service, make(network=option), SandboxSpec(network=task, allowed_hosts=hosts)
    )
    assert sent.items() <= wanted.items()


async def test_an_image_without_a_template_is_refused(backend: SandboxBackend) -> None:
    for spec, named in (
        (SandboxSpec(image="debian:12"), "the image 'debian:12'"),
        (SandboxSpec(build="a/folder"), "what is built of 'a/folder'"),
    ):
        with pytest.raises(UnsupportedError, match=f"made from templates, not from {named}"):
            async with backend.open(spec):
                pass


async def test_the_user_is_the_tasks_or_the_options(service: FakeService, make: Make) -> None:
    async with make(user="root").open(SandboxSpec()):
        pass
    async with make(user="root").open(SandboxSpec(user="agent")):
        pass
    users = {call["user"] for call in service.calls("exec")}
    assert users == {"Basic cm9vdDo=", "Basic YWdlbnQ6"}


async def test_what_a_profile_prints_is_no_answer(box: Any) -> None:
    await box.exec("echo 'echo noise; echo noise >&2' > $HOME/.bash_profile; chmod +x $HOME")
    result = await box.exec("echo said")
    assert (result.stdout, result.stderr) == (b"said\n", b"")


async def test_end_processes_spares_what_ran_before_the_first_command(box: Any) -> None:
    await box.exec("env -i setsid sleep 987 & env -i setsid sleep 988 &")
    # With the command's own shell, if that is still ending.
    assert await box.end_processes() in (2, 3)
    left = await box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo alive")
    assert b"sleep 98" not in left.stdout
    assert left.stdout.endswith(b"alive\n")


# ---- keys


def test_a_missing_key_is_said_in_one_line() -> None:
    with pytest.raises(NotUsableError, match=r"^e2b: E2B_API_KEY is not set$"):
        plugin.build(E2bOptions(), BuildContext())
    with pytest.raises(NotUsableError, match=r"^e2b: MY_KEY is not set$"):
        plugin.build(E2bOptions(api_key_env="MY_KEY"), BuildContext(environ={"E2B_API_KEY": "k"}))


async def test_a_wrong_key_is_refused_at_once_and_shown_nowhere(
    service: FakeService, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = make({"E2B_API_KEY": "a-wrong-and-secret-key"})
    with pytest.raises(SandboxError, match="create a sandbox: 401: Unauthorized") as raised:
        async with backend.open(SandboxSpec()):
            pass
    assert len(service.calls("wrong key")) == 1
    with pytest.raises(SandboxError, match="list sandboxes: 401: Unauthorized"):
        await backend.check(SandboxSpec())
    assert "secret-key" not in f"{raised.value!r}{raised.value.__cause__!r}{backend!r}{caplog.text}"


async def test_a_check_before_a_run_creates_nothing(service: FakeService, make: Make) -> None:
    backend = make(templates={"known": "base"})
    await backend.check(SandboxSpec(image="known"))
    with pytest.raises(UnsupportedError, match="unknown"):
        await backend.check(SandboxSpec(image="unknown"))
    assert service.calls("create") == []


async def test_the_key_is_not_in_the_sandbox(box: Any) -> None:
    seen = await box.exec("env; cat /proc/*/environ")
    assert b"fake-key" not in seen.stdout
    assert b"ALE_KEEP" not in (await box.exec("env")).stdout


# ---- probe


def test_the_probe_asks_nobody_and_auto_never_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    missing = plugin.probe()
    assert (missing.usable, missing.reason) == (False, "E2B_API_KEY is not set")
    monkeypatch.setenv("E2B_API_KEY", "k")
    monkeypatch.setenv("E2B_API_URL", "http://127.0.0.1:1")
    assert plugin.probe().usable
    (component,) = plugin.ale_sandboxes()
    assert component.priority == 0


def test_looking_at_the_plugin_imports_no_sdk() -> None:
    code = (
        "import sys; from ale_sandbox_e2b import plugin;"
        "plugin.ale_sandboxes()[0].options; plugin.probe();"
        "print([name for name in ('e2b', 'httpx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
