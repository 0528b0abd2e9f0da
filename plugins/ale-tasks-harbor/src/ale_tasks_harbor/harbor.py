"""A Harbor task folder: ``task.toml`` and what lies beside it, to a `Task`.

Source: the task format of Harbor, schema version 1.4 (harbor 0.24 and 0.25).
"""

import re
from collections.abc import Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Any

import tomli
import yaml
from attrs import asdict as unstructure

from ale.errors import InputError, Problem
from ale.types import Constraints, CriterionSpec, Environment, Task, replace
from ale_tasks_harbor import before, compose, declared, health, phases, solution, steps
from ale_tasks_harbor.checks import health_s, health_step, memory_mb
from ale_tasks_harbor.dockerfile import again, background, started
from ale_tasks_harbor.steps import Part
from ale_tasks_harbor.values import Values, line_of, task_id
from ale_tasks_harbor.variables import from_host

FILE = "task.toml"
_SCRIPT = "test.sh"
_COMPOSE = "docker-compose.yaml"
_SEVERAL = "networks that lead to several containers can't be taken from one of them"
_TRAJECTORY = "trajectory.json"
_SOLUTION = "/solution"
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
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
        self._several = False
        self._baseline = phases.Net()
        self._parts: list[Part] = []
        self._background = background()
        """What starts with the container."""
        self._health = health.OF_THE_IMAGE
        """The container's own check."""

    def task(self) -> Task:
        """All of it."""
        self._refuse_what_is_not_supported()
        about, metadata = self._root.table("task"), self._root.table("metadata")
        environment = self._machine()
        self._baseline = phases.baseline(self._environment)
        whole = Part(folder=self._folder, values=self._root)
        found = steps.parts(self._folder, self._root) if self._root.values.get("steps") else []
        self._parts = found or [whole]
        first = self._user(self._parts[0])
        if first is not None:
            environment = replace(environment, env={**environment.env, phases.AGENT_USER: first})
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
                health.step(self._health),
                *health_step(self._environment.table("healthcheck")),
                *(() if found else self._ready()),
            ),
            constraints=self._net(self._parts[0]).constraints,
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
        if found:
            return steps.joined(task, self._root, self._step, found)
        commands, facts = self._solution(self._folder)
        return replace(
            task,
            metadata={**task.metadata, "agent_needs": self._needs(whole), **facts},
            goal=self._instruction(self._folder),
            criteria=(self._criterion(whole),),
            constraints=replace(task.constraints, time_limit_s=self._time_limit(whole)),
            solution=commands,
        )

    def _step(self, part: Part) -> Task:
        """One step of several."""
        files, setup = steps.prepared(part)
        own = (part.folder / "solution").is_dir()
        commands, facts = self._solution(part.folder if own else self._folder)
        return Task(
            id=f"{task_id(self._folder.name)}.{part.id}",
            goal=self._instruction(part.folder),
            origin=self._file,
            files=files,
            setup_steps=(
                *((*started(self._background), health.step(self._health)) if part.number else ()),
                *self._ready(),
                *setup,
                *health_step(part.values.table("healthcheck")),
            ),
            criteria=(self._criterion(part),),
            constraints=Constraints(time_limit_s=self._time_limit(part)),
            solution=commands,
            metadata={"agent_needs": self._needs(part), "step": part.name, **facts},
        )

    def _user(self, part: Part) -> str | None:
        """Of the agent."""
        for agent in (part.agent, self._agent):
            if agent.has("user"):
                return str(agent.values["user"])
        return None

    def _ready(self) -> tuple[str, ...]:
        """Where the agent's user begins: what starts with the container has the container's own."""
        return (phases.READY,) if any(map(self._user, self._parts)) else ()

    def _net(self, part: Part) -> phases.Net:
        """Of the agent."""
        return phases.of(part.agent, phases.of(self._agent, self._baseline))

    def _tests_net(self, part: Part) -> phases.Net:
        return phases.of(part.verifier, phases.of(self._verifier, self._baseline))

    def _needs(self, part: Part) -> list[str]:
        """What the agent is given besides its instruction; a first step has what comes before."""
        own = [] if part.number else [_TRAJECTORY]
        found = [name for name in own if (part.folder / name).exists()]
        return [*found, *(["mcp_servers"] if self._environment.values.get("mcp_servers") else [])]

    def _time_limit(self, part: Part) -> float | None:
        return part.agent.seconds("timeout_sec", self._agent.seconds("timeout_sec", None))

    def _instruction(self, folder: Path) -> str:
        file = folder / "instruction.md"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._note(file, f"can't be read: {error}")
            return ""
        return without_canary(text)

    def _note(self, file: Path, message: str) -> None:
        self._root.problems.append(Problem(message=message, file=str(file)))

    def _machine(self) -> Environment:
        values = self._environment
        build = self._folder / "environment"
        own = self._env(values)
        client = self._client(build, own)
        image = values.text("docker_image") or client.image
        if image is None and not (client.several and not (build / "Dockerfile").exists()):
            self._check_build(build)
        self._background = background(client.entrypoint, client.command)
        self._health = client.health
        self._several = client.several
        if client.several:
            build = build / _COMPOSE
        return Environment(
            image=image,
            build=str(build) if image is None or client.several else None,
            workdir=values.text("workdir") or client.workdir or ".",
            env={**client.env, **own},
            # Docker takes 0 as no limit.
            cpus=client.cpus or values.amount("cpus", 0.0) or None,
            memory_mb=client.memory_mb or memory_mb(values, "memory_mb", "memory"),
            storage_mb=memory_mb(values, "storage_mb", "storage"),
            user=client.user,
        )

    def _files(self) -> str | None:
        """As in Harbor, what lies in environment/ goes to the workspace of a prebuilt image."""
        folder = self._folder / "environment"
        built = any((folder / name).exists() for name in ("Dockerfile", _COMPOSE))
        if built or not self._environment.text("docker_image") or not folder.is_dir():
            return None
        return str(folder) if any(folder.iterdir()) else None

    def _env(self, environment: Values) -> dict[str, str]:
        return from_host(environment.pairs("env"), self._environ, environment.table("env").refuse)

    def _client(self, build: Path, own: Mapping[str, str]) -> compose.Client:
        """What a compose file says of the agent's container.

        Args:
            own: the task's variables.
        """
        file = build / _COMPOSE
        try:
            given = {**own, **self._sizes()}
            client = compose.read(file, self._environ, given, implied=True)
        except FileNotFoundError:
            return compose.Client()
        except (OSError, ValueError, yaml.YAMLError) as error:
            self._note(file, f"can't be read: {' '.join(str(error).split())}")
            return compose.Client()
        for path, why in client.refusals(file.parent):
            self._root.problems.append(Problem(message=why, file=str(file), path=path))
        return client

    def _sizes(self) -> dict[str, str]:
        """As Harbor gives them to compose files."""
        values = self._environment
        cpus, memory = values.values.get("cpus"), memory_mb(values, "memory_mb", "memory")
        given = {"CPUS": cpus, "MEMORY": None if memory is None else f"{memory}M"}
        return {name: str(value) for name, value in given.items() if value is not None}

    def _check_build(self, build: Path) -> None:
        if not (build / "Dockerfile").is_file():
            message = "there is no environment/Dockerfile, and no environment.docker_image"
            self._note(self._folder / FILE, message)

    def _criterion(self, part: Part) -> CriterionSpec:
        folders = dict.fromkeys((self._folder / "tests", part.folder / "tests"))
        tests = [folder for folder in folders if folder.is_dir()]
        surroundings = self._surroundings(part)
        in_image = surroundings.get("apart", {}).get("bundled", False)
        if not in_image and not any((folder / _SCRIPT).is_file() for folder in tests):
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
                "artifacts": self._artifacts(part),
                "collect": [hook for at in self._tables(part) for hook in declared.hooks(at)],
                "background": self._again(),
                "background_s": health_s(self._environment.table("healthcheck")),
                "agent_needs": self._needs(part),
                "key": self._key,
                **steps_own,
                **surroundings,
            },
            file=self._file,
        )

    def _surroundings(self, part: Part) -> dict[str, Any]:
        """What differs between agent and tests, and between them and the agent of the next step."""
        verifiers = [part.verifier, self._verifier] if part.name else [self._verifier]
        apart = declared.is_apart(verifiers)
        own, tests = self._net(part), self._tests_net(part)
        made: dict[str, Any] = {}
        if apart:
            folders = [part.folder / "tests", self._folder / "tests"][-len(verifiers) :]
            made["artifacts"] = declared.carried(self._artifacts(part))
            made["apart"] = declared.apart(
                verifiers, folders, self._environment, self._folder, self._env
            )
        elif own != tests:
            if self._several and own.mode == "public":
                part.verifier.refuse("network_mode", _SEVERAL)
            made["during"] = unstructure(phases.phase(tests))
        if part is not self._parts[-1]:
            after = self._parts[part.number + 1]
            wanted = phases.phase(self._net(after), self._user(after))
            if wanted != phases.phase(own, self._user(part)) or "during" in made:
                made["after"] = unstructure(wanted)
        return made

    def _artifacts(self, part: Part) -> list[dict[str, Any]]:
        return [one for at in self._tables(part) for one in declared.artifacts(at)]

    def _again(self) -> str:
        """Starts what started with the container, and waits until it is ready."""
        check = health_step(self._environment.table("healthcheck"))
        return again(self._background, check, health.once_more(self._health))

    def _tables(self, part: Part) -> tuple[Values, ...]:
        return (self._root, part.values) if part.name else (self._root,)

    def _tests_user(self, part: Part) -> str | None:
        """As Harbor: the image's own, where nobody is named."""
        for verifier in (part.verifier, self._verifier):
            if verifier.has("user"):
                return str(verifier.values["user"])
        return None

    def _solution(self, parent: Path) -> tuple[tuple[str, ...] | None, Mapping[str, str]]:
        """Commands, and for the metadata where their files go to or why there are none."""
        folder = parent / "solution"
        if not (folder / "solve.sh").is_file():
            return None, {}
        values = self._root.table("solution")
        env = from_host(values.pairs("env"), self._environ, values.table("env").refuse)
        env = {"DEBIAN_FRONTEND": "noninteractive", **env}
        try:
            made = solution.commands(folder, _SOLUTION, "solve.sh", env)
        except solution.TooLargeError as error:
            return None, {solution.WITHOUT: str(error)}
        except (OSError, ValueError) as error:
            self._note(folder, f"the solution can't be read: {error}")
            return None, {}
        return made, {solution.FOLDER: _SOLUTION}

    def _refuse_what_is_not_supported(self) -> None:
        self._refuse_machines()

    def _refuse_machines(self) -> None:
        values = self._environment
        if str(values.values.get("os", "linux")).lower() != "linux":
            values.refuse("os", "only linux is supported")
        if values.whole("gpus"):
            values.refuse("gpus", "GPUs are not supported yet")
        if values.has("tpu"):
            values.refuse("tpu", "TPUs are not supported")

    def _ignored(self) -> list[str]:
        """Keys that mean nothing here, for the record of the run."""
        tables = {name: self._root.table(name) if name else self._root for name in _KNOWN}
        unknown = [key for name, known in _KNOWN.items() for key in tables[name].unknown(known)]
        sizes = self._environment.values
        odd = [key for key in ("memory", "storage") if not isinstance(sizes.get(key, ""), str)]
        return [*unknown, *(f"environment.{key}" for key in odd)]


def without_canary(text: str) -> str:
    """An instruction without the lines at its head that only mark it for filters of corpora.

    As in Harbor: comments that say ``canary``, and whatever blank lines follow.
    """
    lines = text.split("\n")
    shown = dropwhile(lambda line: _CANARY.fullmatch(line.strip()), lines)
    return "\n".join(dropwhile(lambda line: not line.strip(), shown))


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


_TAKEN = ("format", "name", "difficulty", "build_timeout_s", "ignored_keys", "tags", "agent_needs")
