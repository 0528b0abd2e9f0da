"""What the service is asked for, and which key it is given."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.errors import NotUsableError, SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_cwsandbox import credentials, plugin
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.tags import owner_of, spec_tags, tags_of
from ale_sandbox_cwsandbox.wishes import wanted
from ale_sandboxing.remote.service import Request

Make = Callable[..., SandboxBackend]
pytestmark = pytest.mark.filterwarnings("ignore:Sandbox .* was not stopped:ResourceWarning")


async def test_image_lifetime_tags_and_resources_reach_the_service(
    service: Any, make: Make
) -> None:
    backend = make(
        tags={"run": "r7"}, gpus=1, gpu_type="H100", arguments={"placement_mode": "serverless"}
    )
    spec = SandboxSpec(image="debian:12", memory_mb=512, cpus=1.5, tags={"episode": "0-add-two-1"})
    async with backend.open(spec):
        pass
    (asked,) = service.calls("create")
    assert asked["image"] == "debian:12"
    for line in (
        'tags: "art-rollout"',
        'tags: "job-r7"',
        'tags: "problem-add-two"',
        "max_lifetime_seconds: 7200",
        "deny_egress: true",
        "deny_ingress: true",
        'cpu: "1500m"',
        'memory: "512Mi"',
        "SANDBOX_MODE_SERVERLESS",
        'H100"',
    ):
        assert line in asked["spec"], asked["spec"]


def test_the_network_is_off_unless_task_or_option_says_on() -> None:
    def network(option: bool | None, task: bool | None, *hosts: str) -> Any:
        spec = SandboxSpec(network=task, allowed_hosts=hosts)
        return wanted(CwSandboxOptions(network=option), spec)["network"]

    for off in (network(None, None), network(True, False), network(False, True)):
        assert off.deny_egress
    for on in (network(None, True), network(True, None)):
        assert [rule.any for rule in on.egress] == [True]
    assert [rule.dns_name for rule in network(None, False, "example.com").egress] == ["example.com"]
    assert network(False, False, "example.com").deny_egress
    with pytest.raises(UnsupportedError, match="allowed_hosts takes names"):
        network(None, False, "10.0.0.0/8")


def test_what_the_service_can_not_do_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="push the task's image"):
        wanted(CwSandboxOptions(), SandboxSpec(build="."))
    with pytest.raises(UnsupportedError, match="as numbers"):
        wanted(CwSandboxOptions(), SandboxSpec(user="agent"))
    context = wanted(CwSandboxOptions(user="1000:50"), SandboxSpec())["security_context"]
    assert (context.run_as_user, context.run_as_group) == (1000, 50)


async def test_the_workspace_is_the_options_or_the_tasks(make: Make) -> None:
    async with make(workdir="/srv/own").open(SandboxSpec()) as sandbox:
        assert sandbox.workdir == "/srv/own"
    async with make().open(SandboxSpec(workdir="below/it")) as sandbox:
        assert sandbox.workdir == "/below/it"


# ---- tags


def test_tags_are_read_back_and_name_job_and_problem() -> None:
    given = {"run": "a.b_c", "episode": "evaluation-3-fix it/2@crucial-4-0", "ü": "1.5"}
    request = Request(id="id1", spec=SandboxSpec(), env={}, tags=given, owner="m.b.1.2.3")
    made = tags_of(["mine"], request)
    assert spec_tags(made) == given
    assert owner_of(made) == "m.b.1.2.3"
    assert {"mine", "job-a.b_c", "problem-fix it/2"} <= set(made)


# ---- keys


def use(environ: Mapping[str, str], **options: Any) -> credentials.Found:
    return credentials.find(CwSandboxOptions(**options), environ)


def test_a_missing_key_is_said_in_one_line() -> None:
    with pytest.raises(NotUsableError) as raised:
        plugin.build(CwSandboxOptions(), BuildContext())
    assert str(raised.value) == ("cwsandbox: neither CWSANDBOX_API_KEY nor WANDB_API_KEY is set")
    with pytest.raises(NotUsableError, match=r"^cwsandbox: MY_KEY is not set$"):
        use({"WANDB_API_KEY": "w"}, auth="api-key", api_key_env="MY_KEY")


def test_the_old_name_of_the_key_is_taken_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    old = {"AVIATO_API_KEY": "the-old-key"}
    assert use(old).variable == "AVIATO_API_KEY"
    backend = plugin.build(CwSandboxOptions(), BuildContext(environ=old))
    note = "key: AVIATO_API_KEY is the old name of CWSANDBOX_API_KEY"
    assert note in backend.capabilities.notes
    assert caplog.messages == [f"cwsandbox: {note}"]
    both = use({**old, "CWSANDBOX_API_KEY": "the-new-key"})
    assert (both.variable, both.notes) == ("CWSANDBOX_API_KEY", ())


def test_weights_and_biases_has_variables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"WANDB_API_KEY": "w", "WANDB_ENTITY_NAME": "team"}
    monkeypatch.setattr(credentials, "find_spec", lambda _: None)
    with pytest.raises(NotUsableError, match=r'pip install "cwsandbox\[wandb\]>=1.22,<2"$'):
        use(environ)
    monkeypatch.setattr(credentials, "find_spec", lambda _: object())
    found = use(environ)
    assert found.notes == ("key: WANDB_ENTITY_NAME is the old name of WANDB_ENTITY",)
    auth: Any = credentials.auth_of(found, CwSandboxOptions(), {**environ, "WANDB_PROJECT": "p"})
    assert (auth.entity, auth.project) == ("team", "p")
    newer = environ | {"WANDB_ENTITY": "new"}
    assert use(newer).notes == ()
    assert credentials.auth_of(found, CwSandboxOptions(), newer).entity == "new"  # type: ignore[union-attr]
    assert use({"CWSANDBOX_API_KEY": "k", **environ}).kind == "api-key"
    assert use({"CWSANDBOX_API_KEY": "k", **environ}, auth="wandb").kind == "wandb"


async def test_a_wrong_key_is_refused_and_shown_nowhere(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = make({"CWSANDBOX_API_KEY": "a-wrong-and-secret-key"})
    with pytest.raises(SandboxError, match="Authentication failed") as raised:
        async with backend.open(SandboxSpec()):
            pass
    await backend.aclose()
    assert "secret-key" not in f"{raised.value!r}{raised.value.__cause__!r}{backend!r}"
    assert caplog.messages
    assert "secret-key" not in caplog.text


async def test_the_key_is_not_in_the_sandbox_or_in_what_it_was_made_from(
    service: Any, backend: SandboxBackend
) -> None:
    async with backend.open(SandboxSpec()) as sandbox:
        seen = await sandbox.exec("env; cat /proc/*/environ")
        assert b"fake-key" not in seen.stdout
        assert b"ALE_KEEP" not in (await sandbox.exec("env")).stdout
    assert "fake-key" not in (service.folder / "calls").read_text()


# ---- probe


def test_the_probe_asks_nobody_and_auto_never_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CWSANDBOX_API_KEY", "AVIATO_API_KEY", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    missing = plugin.probe()
    assert not missing.usable
    assert missing.reason == "neither CWSANDBOX_API_KEY nor WANDB_API_KEY is set"
    monkeypatch.setenv("CWSANDBOX_API_KEY", "k")
    monkeypatch.setenv("CWSANDBOX_BASE_URL", "http://127.0.0.1:1")
    assert plugin.probe().usable
    (component,) = plugin.ale_sandboxes()
    assert component.priority == 0


def test_looking_at_the_plugin_imports_no_sdk() -> None:
    code = (
        "import sys; from ale_sandbox_cwsandbox import plugin;"
        "plugin.ale_sandboxes()[0].options; plugin.probe();"
        "print([name for name in ('cwsandbox', 'grpc', 'wandb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- a crash


async def test_what_a_killed_process_has_left_is_found_and_removed(
    service: Any, backend: SandboxBackend, tmp_path: Path
) -> None:
    program = tmp_path / "holder.py"
    program.write_text(
        "import asyncio, os\n"
        "from ale.plugin import BuildContext\n"
        "from ale.types import SandboxSpec\n"
        "from ale_sandbox_cwsandbox.options import CwSandboxOptions\n"
        "from ale_sandbox_cwsandbox.plugin import build\n"
        "async def main():\n"
        f"    options = CwSandboxOptions(base_url={service.url!r})\n"
        "    backend = build(options, BuildContext(environ=dict(os.environ)))\n"
        "    async with backend.open(SandboxSpec(tags={'run': 'dead'})) as sandbox:\n"
        "        print(sandbox.id, flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    environ = {**os.environ, "CWSANDBOX_API_KEY": "the-fake-key"}
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environ
    ) as holder:
        assert holder.stdout is not None
        id = holder.stdout.readline().strip()
        async with backend.open(SandboxSpec()) as mine:
            alive = {info.id: info.owner_alive for info in await backend.list()}
            assert alive == {id: True, mine.id: True}
            assert list(await backend.prune()) == []
            holder.kill()
            holder.wait()
            (found,) = [info for info in await backend.list() if not info.owner_alive]
            assert (found.id, found.tags) == (id, {"run": "dead"})
            assert [info.id for info in await backend.prune()] == [id]
            assert [info.id for info in await backend.list()] == [mine.id]
