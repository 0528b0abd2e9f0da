"""A Terminal-Bench 1 task folder: ``task.yaml`` and the files next to it, read as a `Task`.

Source: terminal-bench 0.2.18.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from ale.errors import InputError
from ale.types import Constraints, CriterionSpec, Environment, Task, replace
from ale_tasks_harbor import compose, integrity, solution
from ale_tasks_harbor.capabilities import required
from ale_tasks_harbor.dockerfile import again, background, started
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.options import KEPT_PROCESSES
from ale_tasks_harbor.parsers import PARSERS
from ale_tasks_harbor.values import Values, read_task, task_id

FILE = "task.yaml"
_ORACLE = "/oracle"
_SCRIPT = "run-tests.sh"
_SOLUTION = "solution.sh"
_TYPED = "solution.yaml"
_KNOWN = {
    *("instruction", "author_name", "author_email", "difficulty", "category", "tags"),
    *("parser_name", "max_agent_timeout_sec", "max_test_timeout_sec"),
    *("run_tests_in_same_shell", "disable_asciinema", "estimated_duration_sec"),
    *("expert_time_estimate_min", "junior_time_estimate_min"),
}


def read(folder: Folder, environ: Mapping[str, str], key: str) -> Task:
    """Read one folder. Arguments and errors as those of `ale_tasks_harbor.harbor.read`."""
    return read_task(folder, FILE, _parsed, lambda root: _Reader(folder, root, environ).task(key))


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ValueError("expected a table with 'instruction'")  # noqa: TRY004 - about the text
    return document


class _Reader:
    def __init__(self, folder: Folder, root: Values, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._root = root
        self._environ = environ

    def task(self, key: str) -> Task:
        root = self._root
        instruction = root.text("instruction")
        if not root.has("instruction"):
            root.refuse("instruction", "'instruction' is missing")
        same_shell = root.flag("run_tests_in_same_shell") is True
        category = root.text("category")
        client = compose.read(self._folder, self._environ, {}, self._root)
        script = background(client.entrypoint, client.command)
        commands, facts = self._solution()
        criterion = self._criterion(key, script, same_shell=same_shell)
        requires = required(criterion.options, several=client.several)
        return Task(
            id=task_id(self._folder.name),
            goal=instruction or "",
            origin=self._root.file,
            tags=tuple(dict.fromkeys((*root.texts("tags"), *([category] if category else [])))),
            setup_steps=(*started(script), integrity.setup_step(key)),
            criteria=(criterion,),
            constraints=Constraints(
                network=True, time_limit_s=root.seconds("max_agent_timeout_sec", 360.0)
            ),
            environment=replace(self._environment(client), requires=requires),
            solution=commands,
            metadata={
                "environment": "terminal",
                "format": "terminal-bench",
                "difficulty": str(root.values.get("difficulty", "")),
                "ignored_keys": root.unknown(_KNOWN),
                **({KEPT_PROCESSES: "its tests run in the agent's shell"} if same_shell else {}),
                **facts,
            },
        )

    def _environment(self, client: compose.Client) -> Environment:
        folder = self._folder
        has_own = folder.has("Dockerfile") or not client.several
        if client.image is None and has_own and not folder.has_file("Dockerfile"):
            self._root.note(folder.at("Dockerfile"), "there is no such file")
        build = folder.at(compose.FILE) if client.several else folder.path
        return Environment(
            image=client.image,
            build=build if client.image is None else None,
            workdir=client.workdir or ".",
            user=client.user,
            env={"TEST_DIR": "/tests", **client.env},
            cpus=client.cpus,
            memory_mb=client.memory_mb,
            own_files=True,
        )

    def _criterion(self, key: str, script: str, *, same_shell: bool) -> CriterionSpec:
        """The tests; `script` lists what starts with the container."""
        folder = self._folder
        if not folder.has_file(_SCRIPT):
            self._root.note(folder.at(_SCRIPT), "there is no such file")
        tests = [folder.at("tests")] if folder.has_folder("tests") else []
        return CriterionSpec(
            type="task_tests",
            options={
                "tests": [*tests, folder.at(_SCRIPT)],
                "script": _SCRIPT,
                "result": self._root.choice("parser_name", tuple(PARSERS), "pytest"),
                "timeout_s": self._root.seconds("max_test_timeout_sec", 60.0),
                "env": {"TEST_DIR": "/tests"},
                "restart_command": again(script),
                "same_shell": same_shell,
                "record_key": key,
            },
            file=self._root.file,
        )

    def _solution(self) -> tuple[tuple[str, ...] | None, Mapping[str, str]]:
        """The commands; and for the metadata the folder of their files, or why there are none."""
        folder = self._folder
        try:
            if folder.has_file(_SOLUTION):
                made = solution.commands(folder, _SOLUTION, _ORACLE, {}, alone=True, for_bash=True)
                return made, {solution.FOLDER: _ORACLE}
            return self._typed(), {}
        except solution.UnusableError as error:
            return None, {solution.WITHOUT: str(error)}
        except InputError as error:
            self._root.problems.extend(error.problems)
            return None, {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            message = f"the solution can't be read: {' '.join(str(error).split())}"
            self._root.note(folder.at(_SOLUTION), message)
            return None, {}

    def _typed(self) -> tuple[str, ...] | None:
        """The commands of a solution.yaml; None if it types into a running program."""
        if not self._folder.has_file(_TYPED):
            return None
        entries: Any = yaml.load(self._folder.text(_TYPED), yaml.CSafeLoader)
        made = []
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict) or entry.get("append_enter") is False:
                return None
            made.append(str(entry.get("command", "")))
        return tuple(made) or None
