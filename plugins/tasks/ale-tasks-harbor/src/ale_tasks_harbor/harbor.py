"""A Harbor task folder: ``task.toml`` and the files next to it, read as a `Task`.

Source: the task format of Harbor, schema version 1.4 (harbor 0.24 and 0.25).
"""

from collections.abc import Mapping
from typing import Any

import tomli
from attrs import asdict as unstructure

from ale.errors import InputError
from ale.types import Constraints, CriterionSpec, Environment, Task, replace
from ale_tasks_harbor import (
    health,
    integrity,
    phases,
    solution,
    steps,
    task_environment,
    task_metadata,
    verifier_settings,
)
from ale_tasks_harbor.capabilities import required
from ale_tasks_harbor.checks import health_s, health_step
from ale_tasks_harbor.dockerfile import again, started
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.options import PhaseNetwork
from ale_tasks_harbor.steps import Part
from ale_tasks_harbor.values import Values, read_task, task_id
from ale_tasks_harbor.variables import from_host

FILE = "task.toml"
_SCRIPT = "test.sh"
_SEVERAL = "the network of a task with several containers can't be limited for its tests"
_TRAJECTORY = "trajectory.json"
_SOLUTION = "/solution"


def read(folder: Folder, environ: Mapping[str, str], key: str) -> Task:
    """Read one folder.

    Args:
        environ: the host's variables, for ``${NAME}``.
        key: signs what the task's setup step records.

    Raises:
        InputError: with every reason why it can't be run.
        OSError: a folder in it can't be listed.
    """
    return read_task(folder, FILE, _parsed, lambda root: _Reader(folder, root, environ, key).task())


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None


class _Reader:
    def __init__(self, folder: Folder, root: Values, environ: Mapping[str, str], key: str) -> None:
        self._folder = folder
        self._file = root.file
        self._root = root
        self._environ = environ
        self._key = key
        self._agent = root.table("agent")
        self._verifier = root.table("verifier")
        self._environment = root.table("environment")
        self._machine = task_environment.read(folder, self._environment, environ)
        self._baseline = phases.baseline(self._environment)
        self._steps = steps.parts(folder, root) if root.values.get("steps") else []
        self._whole = Part(folder=folder, values=root)
        self._parts = self._steps or [self._whole]

    def task(self) -> Task:
        """The whole task."""
        about, metadata = self._root.table("task"), self._root.table("metadata")
        first = self._parts[0]
        network = self._agent_net(first)
        environment = replace(self._machine.environment, agent_user=_user(first.agent, self._agent))
        task = Task(
            id=task_id(self._folder.name),
            goal="",
            description=about.text("description") or "",
            origin=self._file,
            tags=tuple(dict.fromkeys((*about.texts("keywords"), *task_metadata.tags(metadata)))),
            files=self._machine.files,
            setup_steps=(
                *started(self._machine.background),
                integrity.setup_step(self._key),
                health.step(self._machine.health),
                *health_step(self._environment.table("healthcheck")),
            ),
            constraints=Constraints(network=network.network, allowed_hosts=network.allowed_hosts),
            environment=environment,
            metadata={
                "environment": "terminal",  # unless its own metadata say something else
                "format": "harbor",
                "name": about.text("name") or self._folder.name,
                "difficulty": str(metadata.values.get("difficulty", "")),
                "build_timeout_s": self._environment.seconds("build_timeout_sec", 600.0),
                "ignored_keys": task_metadata.ignored(
                    self._root, [part.values for part in self._steps]
                ),
                **task_metadata.plain(metadata.values),
            },
        )
        if self._steps:
            return steps.joined(task, self._root, self._step, self._steps)
        commands, facts = self._solution(self._folder)
        criterion = self._criterion(self._whole)
        requires = required(criterion.options, several=self._machine.several)
        return replace(
            task,
            environment=replace(environment, requires=requires),
            metadata={**task.metadata, "agent_needs": self._needs(self._whole), **facts},
            goal=self._instruction(self._folder),
            criteria=(criterion,),
            constraints=replace(task.constraints, time_limit_s=self._time_limit(self._whole)),
            solution=commands,
        )

    def _step(self, part: Part) -> Task:
        """One step of several."""
        files, setup = steps.prepared(part)
        own = part.folder.has_folder("solution")
        criterion = self._criterion(part)
        commands, facts = self._solution(part.folder if own else self._folder)
        return Task(
            id=f"{task_id(self._folder.name)}.{part.id}",
            goal=self._instruction(part.folder),
            origin=self._file,
            files=files,
            setup_steps=(
                (*started(self._machine.background), health.step(self._machine.health))
                if part.number
                else ()
            ),
            agent_setup_steps=(*setup, *health_step(part.values.table("healthcheck"))),
            environment=Environment(
                agent_user=_user(part.agent, self._agent),
                requires=required(criterion.options, several=self._machine.several),
            ),
            criteria=(criterion,),
            constraints=Constraints(time_limit_s=self._time_limit(part)),
            solution=commands,
            metadata={
                "environment": "terminal",
                "agent_needs": self._needs(part),
                "step": part.name,
                **facts,
            },
        )

    def _agent_net(self, part: Part) -> PhaseNetwork:
        return phases.of(part.agent, phases.of(self._agent, self._baseline))

    def _tests_net(self, part: Part) -> PhaseNetwork:
        return phases.of(part.verifier, phases.of(self._verifier, self._baseline))

    def _needs(self, part: Part) -> list[str]:
        """Needs of the agent besides its instruction: MCP servers, an earlier trajectory."""
        own = [] if part.number else [_TRAJECTORY]
        found = [name for name in own if part.folder.has(name)]
        return [*found, *(["mcp_servers"] if self._environment.values.get("mcp_servers") else [])]

    def _time_limit(self, part: Part) -> float | None:
        return part.agent.seconds("timeout_sec", self._agent.seconds("timeout_sec", None))

    def _instruction(self, folder: Folder) -> str:
        try:
            text = folder.text("instruction.md")
        except OSError as error:
            self._root.note(folder.at("instruction.md"), f"can't be read: {error}")
            return ""
        except InputError as error:
            self._root.problems.extend(error.problems)
            return ""
        return task_metadata.without_canary(text)

    def _criterion(self, part: Part) -> CriterionSpec:
        having = [self._folder, *([part.folder] if part.name else [])]
        tests = [one.folder("tests") for one in having if one.has_folder("tests")]
        surroundings = self._surroundings(part)
        in_image = surroundings.get("separate_verifier", {}).get("tests_in_image", False)
        scripts = [folder for folder in tests if folder.has_file(_SCRIPT)]
        if scripts:
            self._check_script(scripts[-1])  # which replaces those before it
        elif not in_image:
            self._root.note(part.folder.folder("tests").at(_SCRIPT), "there is no such file")
        steps_own = {}
        if part.name:
            steps_own = {"min_rewards": steps.least(part.values), "remove_tests": True}
        return CriterionSpec(
            type="task_tests",
            options={
                "tests": [folder.path for folder in tests],
                "script": _SCRIPT,
                "timeout_s": part.verifier.seconds("timeout_sec", 600.0),
                "env": {**self._verifier.pairs("env"), **part.verifier.pairs("env")},
                "user": _user(part.verifier, self._verifier),
                "artifacts": self._artifacts(part),
                "collect": [h for at in self._tables(part) for h in verifier_settings.hooks(at)],
                "restart_command": self._again(),
                "restart_timeout_s": health_s(self._environment.table("healthcheck")),
                "agent_needs": self._needs(part),
                "record_key": self._key,
                **steps_own,
                **surroundings,
            },
            file=self._file,
        )

    def _check_script(self, tests: Folder) -> None:
        file = tests.at(_SCRIPT)
        try:
            if tests.starts_with_crlf(_SCRIPT):
                self._root.note(file, solution.CRLF, hint=f"dos2unix {file}")
        except OSError as error:
            self._root.note(file, f"can't be read: {error}")

    def _surroundings(self, part: Part) -> dict[str, Any]:
        """Options for tests in another container, or with another network than the agents."""
        verifiers = [part.verifier, self._verifier] if part.name else [self._verifier]
        separate = verifier_settings.is_separate(verifiers)
        own, tests = self._agent_net(part), self._tests_net(part)
        made: dict[str, Any] = {}
        if separate:
            folders = [one.folder("tests") for one in (part.folder, self._folder)]
            made["artifacts"] = verifier_settings.with_agent_artifacts(self._artifacts(part))
            made["separate_verifier"] = verifier_settings.separate_verifier(
                verifiers,
                folders[-len(verifiers) :],
                self._environment,
                self._folder,
                self._environ,
            )
        elif own != tests:
            if self._machine.several and own.network:
                part.verifier.refuse("network_mode", _SEVERAL)
            made["tests_network"] = unstructure(tests)
        if part is not self._parts[-1]:
            after = self._parts[part.number + 1]
            wanted = self._agent_net(after)
            if wanted != own or "tests_network" in made:
                made["next_agent_network"] = unstructure(wanted)
        return made

    def _artifacts(self, part: Part) -> list[dict[str, Any]]:
        return [one for at in self._tables(part) for one in verifier_settings.artifacts(at)]

    def _again(self) -> str:
        """Starts the container's own processes again and waits until they are ready."""
        check = health_step(self._environment.table("healthcheck"))
        return again(self._machine.background, check, health.once_more(self._machine.health))

    def _tables(self, part: Part) -> tuple[Values, ...]:
        return (self._root, part.values) if part.name else (self._root,)

    def _solution(self, parent: Folder) -> tuple[tuple[str, ...] | None, Mapping[str, str]]:
        """The commands; and for the metadata the folder of their files, or why there are none."""
        folder = parent.folder("solution")
        if not folder.has_file("solve.sh"):
            return None, {}
        values = self._root.table("solution")
        env = from_host(values.pairs("env"), self._environ, values.table("env").refuse)
        env = {"DEBIAN_FRONTEND": "noninteractive", **env}
        try:
            made = solution.commands(folder, "solve.sh", _SOLUTION, env)
        except solution.TooLargeError:
            made = solution.from_folder("solve.sh", _SOLUTION, env)
            return made, {solution.FOLDER: _SOLUTION, solution.FILES: folder.path}
        except solution.UnusableError as error:
            return None, {solution.WITHOUT: str(error)}
        except (OSError, ValueError) as error:
            self._root.note(folder.path, f"the solution can't be read: {error}")
            return None, {}
        return made, {solution.FOLDER: _SOLUTION}


def _user(*tables: Values) -> str | None:
    """The user that the first table with one names; None for the image's own, as in Harbor."""
    return next((table.user() for table in tables if table.has("user")), None)
