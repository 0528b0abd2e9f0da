"""Docker compose, as a program: its version is the user's."""

import json
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from ale.errors import SandboxError, UnsupportedError
from ale_sandbox_docker.stack import SERVICES, SIZES, VARIABLES, Document, Stack
from ale_sandboxing.container.engine import Build

LONGEST_S = 3600.0
CLIENTS = (("docker", "compose"), ("docker-compose",))
_TOLD = 1500


class ComposeClient:
    """Uses the first of ``docker compose`` and ``docker-compose`` that works. Its methods block.

    Args:
        address: of the engine.
        environ: of the program, and what it fills in.
    """

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._address = address
        self._environ = environ
        self._client: Sequence[str] | None = None

    def build(self, build: Build) -> str:
        """Build one image with BuildKit, which the engine's interface does not offer.

        Returns:
            What the build printed.

        Raises:
            SandboxError: it can't be built.
            UnsupportedError: there is no docker compose.
        """
        how = {"context": ".", "dockerfile": build.dockerfile, "labels": dict(build.labels)}
        network = {} if build.network_mode is None else {"network": build.network_mode}
        about = {"image": build.tag, "build": {**how, **network}}
        document: Document = {"services": {SERVICES[0]: about}}
        file = build.folder / build.dockerfile
        stack = Stack(file=file, service=SERVICES[0], document=document)
        wanted = {"DOCKER_BUILDKIT": "1"}
        arguments = ["build"] if build.cached else ["build", "--no-cache"]
        return self.run(stack, document, build.tag.replace(":", "-"), arguments, build.tag, wanted)

    def run(
        self,
        stack: Stack,
        document: Document,
        project: str,
        arguments: Sequence[str],
        image: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Run it on a file; what it printed.

        Args:
            image: of the agent's service.
            variables: the task's own, for what is to be filled in.

        Raises:
            SandboxError: it failed, with the end of what it printed.
            UnsupportedError: there is none.
        """
        client = self.found()
        options = ["--project-name", project, "--project-directory", str(stack.folder)]
        names = ("MAIN_IMAGE_NAME", "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME")
        environ = {
            **self._environ,
            **SIZES,
            **variables,
            **VARIABLES,
            **dict.fromkeys(names, image),
            "T_BENCH_TASK_DOCKER_NAME_PREFIX": project,
        }
        try:
            done = subprocess.run(
                [*client, *options, "--file", "-", *arguments],
                input=json.dumps(document).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._with_host(environ),
                cwd=stack.folder,
                timeout=LONGEST_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"{' '.join(client)} {arguments[0]}: {error}") from error
        said = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            end = said.strip()[-_TOLD:]
            command = f"{' '.join(client)} {arguments[0]}"
            raise SandboxError(f"{command} of {stack.file} ended with {done.returncode}:\n{end}")
        return said

    def values_of(self, names: Collection[str], variables: Mapping[str, str]) -> Mapping[str, str]:
        """What is filled in for these names and may differ from one run to the next."""
        known = {**self._environ, **variables}
        return {name: known[name] for name in sorted(names) if name in known.keys() - VARIABLES}

    def _with_host(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": os.defpath, **environ, "DOCKER_HOST": self._address}

    def found(self) -> Sequence[str]:
        """Its command line.

        Raises:
            UnsupportedError: there is none.
        """
        if self._client is None:
            self._client = next(filter(self._answers, CLIENTS), None)
        if self._client is None:
            raise UnsupportedError(
                "the task needs several containers, and there is no docker compose: "
                "install docker-compose, or the plugin of that name for docker"
            )
        return self._client

    def _answers(self, client: Sequence[str]) -> bool:
        try:
            done = subprocess.run(
                [*client, "version", "--short"],
                capture_output=True,
                env=self._with_host(self._environ),
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0
