"""A Harbor task folder: ``task.toml`` and what lies beside it, to a `Task`.

Source: the task format of Harbor, schema version 1.4 (harbor 0.24 and 0.25).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli
import yaml

from ale.errors import InputError, Problem
from ale.types import Constraints, CriterionSpec, Environment, Task
from ale_tasks_harbor import before, compose, solution
from ale_tasks_harbor.checks import health_step, memory_mb, unsupported_dockerfile
from ale_tasks_harbor.values import Values, line_of, task_id
from ale_tasks_harbor.variables import from_host

FILE = "task.toml"
_ROOT = {"0", "root"}
_KNOWN: Mapping[str, frozenset[str]] = {
    "": frozenset(
        [
            "schema_version",
            "version",
            "source",
            "multi_step_reward_strategy",
            "artifacts",
            "task",
            "metadata",
            "agent",
            "verifier",
            "environment",
            "solution",
            "steps",
        ]
    ),
    "task": frozenset(["name", "version", "description", "authors", "keywords"]),
    "agent": frozenset(["timeout_sec", "user", "network_mode", "allowed_hosts"]),
    "verifier": frozenset(
        [
            "timeout_sec",
            "env",
            "user",
            "environment_mode",
            "environment",
            "collect",
            "network_mode",
            "allowed_hosts",
        ]
    ),
    "environment": frozenset(
        [
            "docker_image",
            "build_timeout_sec",
            "os",
            "cpus",
            "memory_mb",
            "storage_mb",
            "gpus",
            "gpu_types",
            "tpu",
            "network_mode",
            "allowed_hosts",
            "env",
            "workdir",
            "healthcheck",
            "skills_dir",
            "mcp_servers",
            "memory",
            "storage",
            "allow_internet",
        ]
    ),
    "solution": frozenset(["env"]),
}


def read(folder: Path, environ: Mapping[str, str], key: str) -> Task:
    """Read one folder.

    Args:
        environ: the host's variables, for ``${NAME}``.
        key: signs what the task's setup step records.

    Raises:
        InputError: with every reason why it can't be run.
    """
    file = folder / FILE
    try:
        text = file.read_text(encoding="utf-8")
        document = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise _refused(file, f"not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(file, f"can't be read: {error}") from None
    problems: list[Problem] = []
    task = _Reader(folder, Values(document, file=str(file), problems=problems), environ).task(key)
    if problems:
        raise InputError([_placed(problem, text, str(file)) for problem in problems])
    return task


def _refused(file: Path, message: str) -> InputError:
    return InputError([Problem(message=message, file=str(file))])


def _placed(problem: Problem, text: str, file: str) -> Problem:
    if problem.file != file or problem.path is None:
        return problem
    line = line_of(text, problem.path)
    return Problem(
        message=problem.message, file=file, line=line, path=problem.path, hint=problem.hint
    )


class _Reader:
    def __init__(self, folder: Path, root: Values, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._file = root.file
        self._root = root
        self._environ = environ
        self._agent = root.table("agent")
        self._verifier = root.table("verifier")
        self._environment = root.table("environment")

    def task(self, key: str) -> Task:
        self._refuse_what_is_not_supported()
        about, metadata = self._root.table("task"), self._root.table("metadata")
        environment = self._machine()
        health = self._environment.table("healthcheck")
        return Task(
            id=task_id(self._folder.name),
            goal=self._instruction(),
            description=about.text("description") or "",
            origin=self._file,
            tags=tuple(dict.fromkeys((*about.texts("keywords"), *_tags(metadata)))),
            setup_steps=(before.setup_step(key), *health_step(health)),
            criteria=(self._criterion(key),),
            constraints=Constraints(
                network=self._network(),
                time_limit_s=self._agent.seconds("timeout_sec", None),
            ),
            environment=environment,
            solution=self._solution(),
            metadata={
                "format": "harbor",
                "name": about.text("name") or self._folder.name,
                "difficulty": str(metadata.values.get("difficulty", "")),
                "build_timeout_s": self._environment.seconds("build_timeout_sec", 600.0),
                "ignored_keys": self._ignored(),
                **_plain(metadata.values),
            },
        )

    def _instruction(self) -> str:
        file = self._folder / "instruction.md"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._note(file, f"can't be read: {error}")
            return ""
        if not text.strip():
            self._note(file, "is empty")
        return text

    def _note(self, file: Path, message: str) -> None:
        self._root.problems.append(Problem(message=message, file=str(file)))

    def _machine(self) -> Environment:
        values = self._environment
        image = values.text("docker_image")
        build = self._folder / "environment"
        client = self._client(build)
        if image is None:
            self._check_build(build)
        own = from_host(values.pairs("env"), self._environ, values.table("env").refuse)
        return Environment(
            image=image,
            build=str(build) if image is None else None,
            workdir=values.text("workdir") or ".",
            env={**client.env, **own},
            cpus=client.cpus or values.seconds("cpus", None),
            memory_mb=client.memory_mb or memory_mb(values, "memory_mb", "memory"),
            storage_mb=memory_mb(values, "storage_mb", "storage"),
        )

    def _client(self, build: Path) -> compose.Client:
        """What a compose file adds to the one container; others are refused."""
        file = build / "docker-compose.yaml"
        try:
            client = compose.client_of(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return compose.Client()
        except (OSError, ValueError, yaml.YAMLError) as error:
            self._note(file, f"can't be read: {' '.join(str(error).split())}")
            return compose.Client()
        if client.image is not None:
            self._note(file, "an image in it is not supported: name it in environment.docker_image")
        for path, why in client.refused:
            self._root.problems.append(Problem(message=why, file=str(file), path=path))
        return client

    def _check_build(self, build: Path) -> None:
        file = build / "Dockerfile"
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            message = "there is no environment/Dockerfile, and no environment.docker_image"
            self._note(self._folder / FILE, message)
            return
        user = self._agent.values.get("user")
        for message in unsupported_dockerfile(text, user=user is not None):
            self._note(file, message)

    def _network(self) -> bool:
        values = self._environment
        mode = values.choice("network_mode", ("public", "no-network", "allowlist"), "public")
        if not values.has("network_mode") and values.flag("allow_internet") is False:
            mode = "no-network"
        if mode == "allowlist":
            values.refuse("network_mode", "an allow-list of hosts is not supported yet")
        for phase in (self._agent, self._verifier):
            own = phase.choice("network_mode", ("public", "no-network", "allowlist"), mode)
            if own != mode:
                phase.refuse("network_mode", "a network of its own for a phase is not supported")
        return mode == "public"

    def _criterion(self, key: str) -> CriterionSpec:
        tests = self._folder / "tests"
        if not (tests / "test.sh").is_file():
            self._note(tests / "test.sh", "there is no such file")
        user = self._verifier.values.get("user")
        return CriterionSpec(
            type="task_tests",
            options={
                "tests": [str(tests)],
                "script": "test.sh",
                "timeout_s": self._verifier.seconds("timeout_sec", 600.0),
                "env": self._verifier.pairs("env"),
                "user": None if user is None else str(user),
                "artifacts": self._artifacts(),
                "key": key,
            },
            file=self._file,
        )

    def _artifacts(self) -> list[str]:
        made = []
        listed = self._root.values.get("artifacts") or []
        for entry in listed if isinstance(listed, list) else [listed]:
            source = entry.get("source") if isinstance(entry, Mapping) else entry
            service = entry.get("service") if isinstance(entry, Mapping) else None
            if not isinstance(source, str) or ".." in Path(source).parts or source.strip("/") == "":
                self._root.refuse("artifacts", f"expected a path in the container, found {entry!r}")
            elif service not in (None, "main"):
                self._several("artifacts")
            else:
                made.append(source)
        return made

    def _solution(self) -> tuple[str, ...] | None:
        folder = self._folder / "solution"
        if not (folder / "solve.sh").is_file():
            return None
        values = self._root.table("solution")
        env = from_host(values.pairs("env"), self._environ, values.table("env").refuse)
        env = {"DEBIAN_FRONTEND": "noninteractive", **env}
        try:
            return solution.commands(folder, "/solution", "solve.sh", env)
        except (OSError, ValueError) as error:
            self._note(folder, f"the solution can't be read: {error}")
            return None

    def _several(self, key: str) -> None:
        self._root.refuse(key, "it needs several containers: not supported yet")

    def _refuse_what_is_not_supported(self) -> None:
        if (self._folder / "trajectory.json").exists():
            self._note(self._folder / "trajectory.json", "a prior context is not supported yet")
        if self._root.has("steps"):
            self._root.refuse("steps", "a task of several steps is not supported yet")
        self._refuse_machines()
        self._refuse_verifiers()
        user = self._agent.values.get("user")
        if user is not None and str(user) not in _ROOT:
            self._agent.refuse("user", "a user of its own for the agent is not supported yet")

    def _refuse_machines(self) -> None:
        values = self._environment
        if str(values.values.get("os", "linux")).lower() != "linux":
            values.refuse("os", "only linux is supported")
        if values.whole("gpus"):
            values.refuse("gpus", "GPUs are not supported yet")
        if values.has("tpu"):
            values.refuse("tpu", "TPUs are not supported")
        if values.values.get("mcp_servers"):
            values.refuse("mcp_servers", "MCP servers are not supported yet")

    def _refuse_verifiers(self) -> None:
        values = self._verifier
        separate = values.values.get("environment_mode") == "separate" or values.has("environment")
        if separate:
            key = "environment_mode" if values.has("environment_mode") else "environment"
            values.refuse(key, "a container of its own for the tests is not supported yet")
        if values.values.get("collect"):
            values.refuse("collect", "hooks before the tests are not supported yet")

    def _ignored(self) -> list[str]:
        """Keys that this reader knows nothing of, for the record of the run."""
        tables = {name: self._root.table(name) if name else self._root for name in _KNOWN}
        return [key for name, known in _KNOWN.items() for key in tables[name].unknown(known)]


def _tags(metadata: Values) -> tuple[str, ...]:
    found = metadata.values.get("tags", [])
    category = metadata.values.get("category")
    tags = [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
    return (*tags, *([category] if isinstance(category, str) else []))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What may be stored: TOML has dates, JSON has not."""
    kept = {}
    for name, value in values.items():
        simple = isinstance(value, str | int | float | bool | list)
        kept[name] = value if simple and not isinstance(value, list) else str(value)
    return {name: value for name, value in kept.items() if name not in _TAKEN}


_TAKEN = ("format", "name", "difficulty", "build_timeout_s", "ignored_keys", "tags")
