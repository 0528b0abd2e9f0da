"""Several containers by docker compose, with each of its major versions."""

import os
from pathlib import Path
from typing import Any

import pytest

from ale.errors import SandboxError
from ale.types import SandboxSpec
from ale_sandboxing.container.sealed import SealedShells
from ale_sandboxing.container_testing.compose import COMPOSE, why_no_compose
from ale_sandboxing.container_testing.images import BUSYBOX
from ale_sandboxing.container_testing.tools import Make

pytestmark = [pytest.mark.engine, pytest.mark.asyncio]


class TestCompose:
    container_image = BUSYBOX

    @pytest.fixture(params=list(COMPOSE))
    def environ(self, request: pytest.FixtureRequest) -> dict[str, str]:
        reason = why_no_compose(request.param)
        if reason is not None:
            pytest.skip(reason)
        return {"PATH": os.environ["PATH"], **COMPOSE[request.param]}

    @staticmethod
    def spec(folder: Path, services: str) -> SandboxSpec:
        file = folder / "docker-compose.yaml"
        file.write_text(f"services:\n  main: {{image: {BUSYBOX}}}\n{services}")
        return SandboxSpec(build=str(file))

    async def test_it_opens_when_a_service_that_depends_on_the_agents_is_healthy(
        self, make: Make, environ: dict[str, str], tmp_path: Path
    ) -> None:
        check = "{test: 'test -e /tmp/ready', interval: 200ms, retries: 100}"
        late = "[sh, -c, 'sleep 1; touch /tmp/ready; sleep infinity']"
        services = f"""\
  late:
    image: {BUSYBOX}
    command: {late}
    healthcheck: {check}
    depends_on: [main]
"""
        backend = make(context={"environ": environ})
        async with backend.open(self.spec(tmp_path, services)) as sandbox:
            late_service = await sandbox.service("late")
            assert await late_service.exec("test -e /tmp/ready", timeout_s=10) == 0
        await backend.aclose()

    async def test_a_service_may_end_if_another_waits_for_its_completion(
        self, make: Make, environ: dict[str, str], tmp_path: Path
    ) -> None:
        services = f"""\
  first: {{image: {BUSYBOX}, command: "true"}}
  second:
    image: {BUSYBOX}
    command: sleep infinity
    depends_on: {{first: {{condition: service_completed_successfully}}}}
"""
        backend = make(context={"environ": environ})
        async with backend.open(self.spec(tmp_path, services)) as sandbox:
            assert (await sandbox.exec("true")).exit_code == 0
        await backend.aclose()

    @pytest.mark.parametrize(
        ("about", "why"),
        [
            ('command: "false"', "'broken' of .* has ended with exit code 1"),
            (
                "command: sleep 99, healthcheck: {test: 'false', interval: 200ms, retries: 1}",
                "'broken' of .* is unhealthy",
            ),
        ],
    )
    async def test_a_service_that_ends_or_is_unhealthy_is_named_in_the_error(
        self, make: Make, environ: dict[str, str], tmp_path: Path, about: str, why: str
    ) -> None:
        services = f"  broken: {{image: {BUSYBOX}, {about}}}\n"
        backend = make(context={"environ": environ})
        with pytest.raises(SandboxError, match=why):
            async with backend.open(self.spec(tmp_path, services)):
                pass
        await backend.aclose()

    async def test_nothing_is_left_of_a_sandbox_that_is_closed(
        self, make: Make, shells: SealedShells, environ: dict[str, str], tmp_path: Path
    ) -> None:
        services = f"""\
  data:
    image: {BUSYBOX}
    command: sleep infinity
    volumes: [kept:/kept, /unnamed]
volumes: {{kept: {{}}}}
"""
        backend = make(context={"environ": environ})
        engine: Any = shells._engine
        async with backend.open(self.spec(tmp_path, services)) as sandbox:
            mine = f"com.docker.compose.project=ale-{sandbox.id}"
            kind = "com.docker.compose.service"
            (data,) = [box.id for box in engine.containers(mine) if box.labels[kind] == "data"]
            about = engine._inspect(data)
            volumes = {one["Name"] for one in about["Mounts"] if one["Type"] == "volume"}
            networks = set(about["NetworkSettings"]["Networks"])
            assert (len(volumes), len(networks)) == (2, 1)
        await backend.aclose()
        assert engine.containers(mine) == []
        assert not volumes & {one["Name"] for one in engine._api.volumes()["Volumes"] or ()}
        assert not networks & {one["Name"] for one in engine._api.networks()}
