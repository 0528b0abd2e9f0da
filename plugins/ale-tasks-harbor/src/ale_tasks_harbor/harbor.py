"""A Harbor task folder: ``task.toml`` and what lies beside it, to a `Task`.

Source: the task format of Harbor, schema version 1.4 (harbor 0.24 and 0.25).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli
import yaml

from ale.errors import InputError, Problem
from ale.types import Constraints, CriterionSpec, Environment, Task, replace
from ale_tasks_harbor import before, compose, solution, steps
from ale_tasks_harbor.checks import health_step, memory_mb
from ale_tasks_harbor.dockerfile import again, background, started, user_of
from ale_tasks_harbor.steps import Part
from ale_tasks_harbor.values import Values, line_of, task_id
from ale_tasks_harbor.variables import from_host

FILE = "task.toml"
_SCRIPT = "test.sh"
_COMPOSE = "docker-compose.yaml"
_MODES = ("public", "no-network", "allowlist")
_SEVERAL = "only the agent's own container is looked into"
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
    root = Values(document, file=str(file), problems=problems)
    task = _Reader(folder, root, environ, key).task()
    if problems:
        raise InputError([_placed(p, text, str(file)) for p in dict.fromkeys(problems)])
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
    def __init__(self, folder: Path, root: Values, environ: Mapping[str, str], key: str) -> None:
        self._folder = folder
        self._file = root.file
        self._root = root
        self._environ = environ
        self._key = key
        self._agent = root.table("agent")
        self._verifier = root.table("verifier")
        self._environment = root.table("environment")
        self._images_user = "root"
        self._background = background()
        """What starts with the container."""

    def task(self) -> Task:
        """All of it."""
        self._refuse_what_is_not_supported()
        about, metadata = self._root.table("task"), self._root.table("metadata")
        environment = self._machine()
        task = Task(
            id=task_id(self._folder.name),
            goal="",
            description=about.text("description") or "",
            origin=self._file,
            tags=tuple(dict.fromkeys((*about.texts("keywords"), *_tags(metadata)))),
            files=self._files(),
            setup_steps=(
                *started(self._background),
                before.setup_step(self._key),
                *health_step(self._environment.table("healthcheck")),
            ),
            constraints=Constraints(network=self._network()),
            environment=environment,
            metadata={
                "format": "harbor",
                "name": about.text("name") or self._folder.name,
                "difficulty": str(metadata.values.get("difficulty", "")),
                "build_timeout_s": self._environment.seconds("build_timeout_sec", 600.0),
                "ignored_keys": self._ignored(),
                **_plain(metadata.values),
            },
        )
        if self._root.values.get("steps"):
            found = steps.parts(self._folder, self._root)
            return steps.joined(task, self._root, self._step, found)
        whole = Part(folder=self._folder, values=self._root)
        return replace(
            task,
            goal=self._instruction(self._folder),
            criteria=(self._criterion(whole),),
            constraints=replace(task.constraints, time_limit_s=self._time_limit(whole)),
            solution=self._solution(self._folder),
        )

    def _step(self, part: Part) -> Task:
        """One step of several."""
        self._check_step(part)
        files, setup = steps.prepared(part)
        solution = part.folder / "solution"
        return Task(
            id=f"{task_id(self._folder.name)}.{part.name}",
            goal=self._instruction(part.folder),
            origin=self._file,
            files=files,
            setup_steps=(
                *(started(self._background) if part.number else ()),
                *setup,
                *health_step(part.values.table("healthcheck")),
            ),
            criteria=(self._criterion(part),),
            constraints=Constraints(time_limit_s=self._time_limit(part)),
            solution=self._solution(part.folder if solution.is_dir() else self._folder),
        )

    def _check_step(self, part: Part) -> None:
        user = part.agent.values.get("user")
        if user is not None and str(user) != str(self._agent.values.get("user")):
            part.agent.refuse("user", "another user for one step is not supported yet")
        mode = self._mode()
        for phase in (part.agent, part.verifier):
            self._check_phase(phase, mode)
        self._refuse_verifiers(part.verifier)
        if (part.folder / "trajectory.json").exists():
            self._note(part.folder / "trajectory.json", "a prior context is not supported yet")

    def _time_limit(self, part: Part) -> float | None:
        return part.agent.seconds("timeout_sec", self._agent.seconds("timeout_sec", None))

    def _instruction(self, folder: Path) -> str:
        file = folder / "instruction.md"
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
        build = self._folder / "environment"
        client = self._client(build)
        image = values.text("docker_image") or client.image
        if image is None and not (client.several and not (build / "Dockerfile").exists()):
            self._check_build(build)
        self._background = background(client.entrypoint, client.command)
        if client.several:
            build = build / _COMPOSE
        user = self._agent.values.get("user")
        own = from_host(values.pairs("env"), self._environ, values.table("env").refuse)
        return Environment(
            image=image,
            build=str(build) if image is None or client.several else None,
            workdir=values.text("workdir") or client.workdir or ".",
            env={**client.env, **own},
            cpus=client.cpus or values.seconds("cpus", None),
            memory_mb=client.memory_mb or memory_mb(values, "memory_mb", "memory"),
            storage_mb=memory_mb(values, "storage_mb", "storage"),
            user=client.user if user is None else str(user),
        )

    def _files(self) -> str | None:
        """As in Harbor, what lies in environment/ goes to the workspace of a prebuilt image."""
        folder = self._folder / "environment"
        built = any((folder / name).exists() for name in ("Dockerfile", _COMPOSE))
        if built or not self._environment.has("docker_image") or not folder.is_dir():
            return None
        return str(folder) if any(folder.iterdir()) else None

    def _client(self, build: Path) -> compose.Client:
        """What a compose file adds to the one container; others are refused."""
        file = build / _COMPOSE
        try:
            client = compose.client_of(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return compose.Client()
        except (OSError, ValueError, yaml.YAMLError) as error:
            self._note(file, f"can't be read: {' '.join(str(error).split())}")
            return compose.Client()
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
        self._images_user = user_of(text) or self._images_user

    def _mode(self) -> str:
        values = self._environment
        mode = values.choice("network_mode", _MODES, "public")
        if not values.has("network_mode") and values.flag("allow_internet") is False:
            mode = "no-network"
        return mode

    def _network(self) -> bool:
        mode = self._mode()
        if mode == "allowlist":
            message = "an allow-list of hosts is not supported yet"
            self._environment.refuse("network_mode", message)
        for phase in (self._agent, self._verifier):
            self._check_phase(phase, mode)
        return mode == "public"

    def _check_phase(self, phase: Values, mode: str) -> None:
        if phase.choice("network_mode", _MODES, mode) != mode:
            phase.refuse("network_mode", "a network of its own for a phase is not supported")

    def _criterion(self, part: Part) -> CriterionSpec:
        folders = dict.fromkeys((self._folder / "tests", part.folder / "tests"))
        tests = [folder for folder in folders if folder.is_dir()]
        if not any((folder / _SCRIPT).is_file() for folder in tests):
            self._note(part.folder / "tests" / _SCRIPT, "there is no such file")
        steps_own = {}
        if part.name:
            steps_own = {"least": steps.least(part.values), "clear": True}
        return CriterionSpec(
            type="task_tests",
            options={
                "tests": list(map(str, tests)),
                "script": _SCRIPT,
                "timeout_s": part.verifier.seconds("timeout_sec", 600.0),
                "env": {**self._verifier.pairs("env"), **part.verifier.pairs("env")},
                "user": self._tests_user(part),
                "artifacts": [path for at in self._tables(part) for path in self._artifacts(at)],
                "collect": [hook for at in self._tables(part) for hook in _hooks(at)],
                "background": self._again(),
                "key": self._key,
                **steps_own,
            },
            file=self._file,
        )

    def _again(self) -> str:
        """Starts what started with the container, and waits until it is ready."""
        health = health_step(self._environment.table("healthcheck"))
        return again(self._background, health)

    def _tables(self, part: Part) -> tuple[Values, ...]:
        return (self._root, part.values) if part.name else (self._root,)

    def _tests_user(self, part: Part) -> str | None:
        """As Harbor: the image's own, where nobody is named."""
        for verifier in (part.verifier, self._verifier):
            if verifier.has("user"):
                return str(verifier.values["user"])
        return self._images_user if self._agent.has("user") else None

    def _artifacts(self, values: Values) -> list[str]:
        made = []
        listed = values.values.get("artifacts") or []
        for entry in listed if isinstance(listed, list) else [listed]:
            source = entry.get("source") if isinstance(entry, Mapping) else entry
            service = entry.get("service") if isinstance(entry, Mapping) else None
            if not isinstance(source, str) or ".." in Path(source).parts or source.strip("/") == "":
                values.refuse("artifacts", f"expected a path in the container, found {entry!r}")
            elif service not in (None, "main"):
                values.refuse("artifacts", _SEVERAL)
            else:
                made.append(source)
        return made

    def _solution(self, parent: Path) -> tuple[str, ...] | None:
        folder = parent / "solution"
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

    def _refuse_what_is_not_supported(self) -> None:
        if (self._folder / "trajectory.json").exists():
            self._note(self._folder / "trajectory.json", "a prior context is not supported yet")
        self._refuse_machines()
        self._refuse_verifiers(self._verifier)

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

    def _refuse_verifiers(self, values: Values) -> None:
        separate = values.values.get("environment_mode") == "separate" or values.has("environment")
        if separate:
            key = "environment_mode" if values.has("environment_mode") else "environment"
            values.refuse(key, "a container of its own for the tests is not supported yet")

    def _ignored(self) -> list[str]:
        """Keys that this reader knows nothing of, for the record of the run."""
        tables = {name: self._root.table(name) if name else self._root for name in _KNOWN}
        return [key for name, known in _KNOWN.items() for key in tables[name].unknown(known)]


def _hooks(values: Values) -> list[dict[str, Any]]:
    """Commands that are run in the agent's container before the tests."""
    made = []
    for hook in values.table("verifier").tables("collect"):
        if hook.values.get("service", "main") != "main":
            hook.refuse("service", _SEVERAL)
        user = hook.values.get("user")
        made.append(
            {
                "command": hook.text("command") or "",
                "timeout_s": hook.seconds("timeout_sec", 60.0),
                "user": None if user is None else str(user),
            }
        )
        if not hook.has("command"):
            hook.refuse("command", "'command' is missing")
    return made


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
