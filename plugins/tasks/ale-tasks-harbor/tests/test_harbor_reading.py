"""What is taken from a folder, and why one is refused."""

import errno
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.types import Task
from ale_tasks_harbor.source import HarborSource

from .conftest import BENCH, HARBOR, Write

Source = Callable[..., HarborSource]


def only(source: HarborSource) -> Task:
    (task,) = source.load()
    assert source.refused == []
    return task


def test_a_task_toml_is_taken_with_all_that_it_says(write: Write, source: Source) -> None:
    folder = write(
        "one",
        {
            **HARBOR,
            "task.toml": """
                artifacts = [
                    "/app/out",
                    { source = "/app/log", exclude = ["*.tmp"], destination = "logs" },
                ]
                [task]
                name = "org/one"
                keywords = ["a"]
                [metadata]
                difficulty = "hard"
                category = "b"
                [agent]
                timeout_sec = 12.5
                [verifier]
                timeout_sec = 7
                user = 1000
                env = { KEY = "${HOST_KEY}", PLAIN = "x" }
                [environment]
                cpus = 1.5
                memory = "2G"
                storage_mb = 100
                allow_internet = false
                workdir = "/srv"
                surprise = 1
                [environment.env]
                WHO = "${USER_NAME:-nobody}"
                """,
        },
    )
    task = only(source({"USER_NAME": "me"}))
    assert (task.id, task.goal, task.tags) == ("one", "Do it.\n", ("a", "b"))
    wants = task.environment
    assert (wants.cpus, wants.memory_mb, wants.storage_mb) == (1.5, 2048, 100)
    assert (wants.build, wants.image) == (str(folder / "environment"), None)
    assert (wants.env, wants.workdir) == ({"WHO": "me"}, "/srv")
    assert (task.constraints.network, task.constraints.time_limit_s) == (False, 12.5)
    assert task.metadata["difficulty"] == "hard"
    assert task.metadata["ignored_keys"] == ["environment.surprise"]
    (criterion,) = task.criteria
    assert criterion.options["timeout_s"] == 7.0
    # A secret of the host is filled in while grading, and never stored.
    assert criterion.options["env"] == {"KEY": "${HOST_KEY}", "PLAIN": "x"}
    assert criterion.options["user"] == "1000"
    assert criterion.options["artifacts"] == [
        {"source": "/app/out", "destination": None, "service": None, "exclude": []},
        {"source": "/app/log", "destination": "logs", "service": None, "exclude": ["*.tmp"]},
    ]


def test_what_a_task_toml_does_not_say_is_as_in_harbor(write: Write, source: Source) -> None:
    write("one", HARBOR)
    task = only(source())
    assert (task.constraints.network, task.constraints.time_limit_s) == (True, None)
    assert (task.environment.workdir, task.environment.memory_mb) == (".", None)
    assert task.criteria[0].options["timeout_s"] == 600.0
    assert task.environment_kind == "terminal"


def test_keys_that_may_be_misspelt_are_reported_for_tasks_that_are_run(
    write: Write, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    toml = (
        "[agent]\ntimout_sec = 5\n\n[verifier]\nsurprise = 1\n\n"
        "[environment.healthcheck]\ncomand = 'true'\ncommand = 'true'\n\n"
        "[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n[steps.agent]\ntimeout_secs = 5\n"
    )
    for name in ("one", "other"):
        files = {path: HARBOR[path] for path in HARBOR if path != "task.toml"}
        steps = {f"steps/{step}/instruction.md": "Do it." for step in ("a", "b")}
        folder = write(name, {**files, **steps, "task.toml": toml})
    bench = write("yaml", {**BENCH, "task.yaml": BENCH["task.yaml"] + "max_agent_timeout: 9\n"})
    reader = source(exclude=["one"])
    harbor, terminal = reader.load()
    assert reader.refused == []
    assert harbor.constraints.time_limit_s is None
    assert harbor.metadata["ignored_keys"] == [
        "agent.timout_sec",
        "verifier.surprise",
        "environment.healthcheck.comand",
        "steps[1].agent.timeout_secs",
    ]
    ignored = "there is no such key, so it is ignored\n    hint      did you mean"
    of_harbor = [
        f"{folder}/task.toml:2: agent.timout_sec: {ignored} 'timeout_sec'?",
        f"{folder}/task.toml:8: environment.healthcheck.comand: {ignored} 'command'?",
        f"{folder}/task.toml:16: steps[1].agent.timeout_secs: {ignored} 'timeout_sec'?",
    ]
    assert harbor.metadata["misspelt_keys"] == of_harbor
    (of_terminal,) = terminal.metadata["misspelt_keys"]
    assert of_terminal.startswith(f"{bench}/task.yaml:")
    assert "did you mean 'max_agent_timeout_sec'?" in of_terminal
    assert caplog.messages == [*of_harbor, of_terminal]


def test_variables_of_this_machine_that_a_task_reads_are_named_without_their_values(
    write: Write, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    toml = (
        '[verifier.env]\nLEAK = "${MY_SECRET}"\nOWN = "x"\nNONE = "${ABSENT:-no}"\n'
        '[environment.env]\nPLACE = "${HOME_TOWN}"\n[solution.env]\nWHO = "${ME}"\n'
    )
    write("one", {**HARBOR, "task.toml": toml, "solution/solve.sh": "true\n"})
    write("other", HARBOR)
    compose = "services:\n  client:\n    build: .\n    environment:\n      A: ${OF_COMPOSE}\n"
    write("yaml", {**BENCH, "docker-compose.yaml": compose})
    environ = {
        "MY_SECRET": "s3cret",
        "HOME_TOWN": "Oslo",
        "ME": "me",
        "OF_COMPOSE": "a",
        "PATH": "/",
    }
    tasks = [*source(environ).load()]
    assert len(tasks) == 3
    assert caplog.messages == [
        "one reads variables of this machine: HOME_TOWN, ME, MY_SECRET",
        "yaml reads variables of this machine: OF_COMPOSE",
    ]
    some = source(environ, host_env=("OF_COMPOSE", "ME"))
    assert [task.id for task in some.load()] == ["other", "yaml"]
    (refused,) = some.refused
    assert "one would read variables of this machine: HOME_TOWN, MY_SECRET" in str(refused)
    assert "tasks.host_env=[HOME_TOWN, ME, MY_SECRET]" in str(refused)
    assert "s3cret" not in caplog.text


def test_its_metadata_can_name_another_kind_of_environment(write: Write, source: Source) -> None:
    write("one", {**HARBOR, "task.toml": '[metadata]\nenvironment = "swe"\n'})
    assert only(source()).environment_kind == "swe"


def test_a_task_yaml_is_taken_with_its_compose_file(write: Write, source: Source) -> None:
    compose = """
        services:
          client:
            build: {dockerfile: Dockerfile}
            image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
            command: ["sh", "-c", "sleep infinity"]
            environment: {WHERE: "${T_BENCH_TEST_DIR}", WHO: "${NO_SUCH:-me}"}
            mem_limit: 1.5g
            volumes: ["${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}"]
        """
    more = "tags: [x]\nmax_agent_timeout_sec: 9\nmax_test_timeout_sec: 8.5\n"
    yaml = BENCH["task.yaml"] + more
    folder = write("one", {**BENCH, "docker-compose.yaml": compose, "task.yaml": yaml})
    task = only(source())
    assert task.environment.build == str(folder)
    assert task.environment.env == {"TEST_DIR": "/tests", "WHERE": "/tests", "WHO": "me"}
    assert task.environment.memory_mb == 1536
    assert task.environment_kind == "terminal"
    assert (task.constraints.time_limit_s, task.constraints.network) == (9.0, True)
    options = task.criteria[0].options
    assert (options["result"], options["timeout_s"]) == ("pytest", 8.5)
    assert options["tests"] == [str(folder / "run-tests.sh")]


def test_a_compose_file_of_harbors_may_add_to_the_one_container(
    write: Write, source: Source
) -> None:
    compose = """
        services:
          main:
            build: {context: "${CONTEXT_DIR}"}
            image: ${MAIN_IMAGE_NAME}
            command: ["sh", "-c", "sleep infinity"]
            environment: ["WHERE=${TEST_DIR}", "WHO=them"]
            volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
            deploy: {resources: {limits: {cpus: "${CPUS}", memory: 64M}}}
        """
    toml = "[environment]\ncpus = 2\nmemory_mb = 32\n[environment.env]\nWHO = 'us'\n"
    write("one", {**HARBOR, "task.toml": toml, "environment/docker-compose.yaml": compose})
    wants = only(source()).environment
    assert wants.env == {"WHERE": "/tests", "WHO": "us"}
    assert (wants.cpus, wants.memory_mb, wants.requires) == (2.0, 64, ())


@pytest.mark.parametrize("file", ["one/docker-compose.yaml", "two/environment/docker-compose.yaml"])
def test_limits_of_zero_in_a_compose_file_are_none(write: Write, source: Source, file: str) -> None:
    folder, _, name = file.partition("/")
    compose = "services: {main: {build: ., mem_limit: 0, cpus: 0}}\n"
    write(folder, {**(BENCH if folder == "one" else HARBOR), name: compose})
    wants = only(source()).environment
    assert (wants.cpus, wants.memory_mb) == (None, None)


def test_a_limit_in_a_compose_file_that_is_no_size_is_refused(write: Write, source: Source) -> None:
    compose = "services: {main: {build: ., mem_limit: 2 giga}}\n"
    write("one", {**BENCH, "docker-compose.yaml": compose})
    with pytest.raises(InputError, match="expected a size such as 2G or 512M, found '2 giga'"):
        list(source().load())


_TWO = "services: {NAME: {build: .}, store: {image: a}}\n"


def test_several_containers_and_other_users_are_required_of_the_sandbox(
    write: Write, source: Source
) -> None:
    several = {**HARBOR, "environment/docker-compose.yaml": _TWO.replace("NAME", "main")}
    write("harbor", {**several, "task.toml": "[verifier]\nuser = 'a'\n"})
    of_step = {f"steps/a/{name}": HARBOR[name] for name in ("instruction.md", "tests/test.sh")}
    write("steps", {**several, **of_step, "task.toml": "[[steps]]\nname = 'a'\n"})
    write("bench", {**BENCH, "docker-compose.yaml": _TWO.replace("NAME", "client")})
    read = {task.id: task for task in source(invalid="error").load()}
    assert read["harbor"].environment.requires == ("service-containers", "switch-user")
    assert read["steps"].steps[0].environment.requires == ("service-containers",)
    assert read["bench"].environment.requires == ("service-containers",)


_VARIABLES = """
        services:
          main:
            build: .
            environment:
              PGPASSWORD: ${PW}
              FOLDER: $$HOME
              PLAIN: $BAR-${BAR}
              HOSTVAR:
              ABSENT:
              EMPTY: "${NO_SUCH:-}${SET:+yes}${NO_SUCH:+no}${NO_SUCH-a${BAR}}"
              LAST: ${LAST}
              SURE: true
        """


def test_the_variables_of_a_compose_file_are_filled_in_as_by_docker_compose(
    write: Write, source: Source
) -> None:
    files = {
        **HARBOR,
        "task.toml": "[environment.env]\nPW = 'abc'\n",
        "environment/docker-compose.yaml": _VARIABLES,
        "environment/.env": "# one\nexport LAST='of the file' # it\nBAR=\"hidden\"\n",
    }
    write("one", files)
    host = {"BAR": "bar", "HOSTVAR": "host", "SET": "1", "PW": "the host's"}
    assert only(source(host)).environment.env == {
        "PGPASSWORD": "abc",
        "FOLDER": "$HOME",
        "PLAIN": "bar-bar",
        "HOSTVAR": "host",
        "EMPTY": "yesabar",
        "LAST": "of the file",
        "SURE": "true",
        "PW": "abc",
    }
    # A name that the host has too is not its value.
    same_name = "services: {main: {build: ., environment: {MY_API_KEY: $$MY_API_KEY}}}\n"
    write("one", {**HARBOR, "environment/docker-compose.yaml": same_name})
    own = only(source({"MY_API_KEY": "secret"})).environment.env
    assert own == {"MY_API_KEY": "$MY_API_KEY"}


def test_what_is_the_same_letter_by_letter_is_not_the_same_with_other_variables(
    write: Write, source: Source
) -> None:
    files = {**HARBOR, "environment/docker-compose.yaml": _VARIABLES}
    write("one", files)
    host = {"BAR": "bar"}
    assert only(source(host)).environment.env["PLAIN"] == "bar-bar"
    other = only(source({**host, "BAR": "b"})).environment.env
    assert other["PLAIN"] == "b-b"


def test_a_health_check_of_the_one_service_is_waited_for(write: Write, source: Source) -> None:
    check = "{test: [CMD, test, -e, /a b], interval: 1m1.5s, timeout: 500ms, retries: 2}"
    text = f"services: {{main: {{build: ., healthcheck: {check}}}}}\n"
    folder = write("one", {**HARBOR, "environment/docker-compose.yaml": text})
    task = only(source())
    assert task.environment.build == str(folder / "environment"), "it needs no docker compose"
    (step,) = (step for step in task.setup_steps if "healthy" in step)
    assert "set -- 124 1 test -e '/a b'" in step
    assert "set -- 124 1 test -e '/a b'" in task.criteria[0].options["restart_command"]
    text = "services: {main: {build: ., healthcheck: {disable: true}}}\n"
    write("one", {**HARBOR, "environment/docker-compose.yaml": text})
    assert "ALE_IMAGE_HEALTHCHECK" not in "".join(only(source()).setup_steps)


def test_a_task_of_steps_is_taken_with_what_each_says(write: Write, source: Source) -> None:
    folder = write(
        "one",
        {
            "task.toml": """
                artifacts = ["/app/a"]
                multi_step_reward_strategy = "final"
                [agent]
                timeout_sec = 100
                user = "me"
                [verifier]
                timeout_sec = 5
                env = { A = "1", B = "2" }
                [[steps]]
                name = "a"
                min_reward = 0.5
                [[steps]]
                name = "b"
                artifacts = ["/app/b"]
                min_reward = { style = 1 }
                agent = { timeout_sec = 10 }
                verifier = { timeout_sec = 7, env = { B = "3" }, user = "judge" }
                """,
            "environment/Dockerfile": "FROM x\nUSER other:group\n",
            "tests/test.sh": "true\n",
            "steps/a/instruction.md": "First.\n",
            "steps/a/workdir/setup.sh": "true\n",
            "steps/b/instruction.md": "Second.\n",
            "steps/b/tests/test.sh": "true\n",
        },
    )
    task = only(source(keep_processes=("one",)))
    assert (task.goal, task.criteria, task.solution) == ("a: First.\n\nb: Second.", (), None)
    assert (task.steps_reward, task.environment.user) == ("last", None)
    first, second = task.steps
    assert {each.environment_kind for each in (task, first, second)} == {"terminal"}
    assert [(step.id, step.goal) for step in task.steps] == [
        ("one.a", "First.\n"),
        ("one.b", "Second.\n"),
    ]
    assert first.keep_processes
    assert [step.constraints.time_limit_s for step in task.steps] == [100, 10]
    assert (first.files, second.files) == (str(folder / "steps/a/workdir"), None)
    assert (first.setup_steps, first.agent_setup_steps) == ((), ("bash ./setup.sh",))
    assert second.agent_setup_steps == ()
    users = [part.environment.agent_user for part in (task, first, second)]
    assert users == ["me", "me", "me"]
    (one,), (two,) = (step.criteria for step in task.steps)
    assert one.options["tests"] == [str(folder / "tests")]
    assert two.options["tests"] == [str(folder / "tests"), str(folder / "steps/b/tests")]
    # Harbor does not take a step's time limit for tests from the task.
    assert (one.options["timeout_s"], two.options["timeout_s"]) == (600.0, 7.0)
    assert (one.options["env"], two.options["env"]) == ({"A": "1", "B": "2"}, {"A": "1", "B": "3"})
    assert (one.options["user"], two.options["user"]) == (None, "judge")
    assert (one.options["min_rewards"], two.options["min_rewards"]) == (
        {"reward": 0.5},
        {"style": 1.0},
    )
    assert [one["source"] for one in two.options["artifacts"]] == ["/app/a", "/app/b"]


@pytest.mark.parametrize(
    "service",
    [
        "ports: ['80:80']",
        "volumes: ['./data:/data']",
        "build: {context: ./sub}",
        "shm_size: 64m",
        "depends_on: [db]\n  db: {image: a}",
    ],
)
def test_whatever_else_a_compose_file_asks_for_is_left_to_docker_compose(
    write: Write, source: Source, service: str
) -> None:
    text = f"services:\n  client:\n    working_dir: /w\n    environment: [A=b]\n    {service}\n"
    folder = write("one", {**BENCH, "docker-compose.yaml": text})
    wants = only(source()).environment
    assert (wants.build, wants.image) == (str(folder / "docker-compose.yaml"), None)
    assert (wants.workdir, wants.env) == ("/w", {"TEST_DIR": "/tests"})


def test_a_prebuilt_image_may_have_other_containers_beside_it(write: Write, source: Source) -> None:
    files = {
        **HARBOR,
        "task.toml": '[environment]\ndocker_image = "own:1"\n',
        "environment/Dockerfile": "",
        "environment/docker-compose.yaml": "services: {main: {user: me}, db: {image: a}}\n",
    }
    folder = write("one", files)
    wants = only(source()).environment
    assert wants.build == str(folder / "environment" / "docker-compose.yaml")
    assert (wants.image, wants.user) == ("own:1", "me")


@pytest.mark.parametrize(
    "image", ['schema_version = "1.4"\n', '[environment]\ndocker_image = "own:1"\n']
)
def test_a_compose_file_may_have_only_other_services(
    write: Write, source: Source, image: str
) -> None:
    compose = "services: {db: {image: a, command: serve, user: me}}\n"
    files = {**HARBOR, "task.toml": image, "environment/docker-compose.yaml": compose}
    folder = write("one", files)
    task = only(source())
    assert task.environment.build == str(folder / "environment" / "docker-compose.yaml")
    assert (task.environment.image, task.environment.user) == (
        "own:1" if "own" in image else None,
        None,
    )
    assert not any("serve" in step for step in task.setup_steps)


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ({"environment/Dockerfile": "", "environment/data.txt": "x"}, True),
        ({"environment/Dockerfile": ""}, False),
        ({"environment/data.txt": "x"}, False),
    ],
)
def test_files_beside_a_prebuilt_image_go_to_the_workspace(
    write: Write, source: Source, files: Mapping[str, str], taken: bool
) -> None:
    toml = '[environment]\ndocker_image = "own:1"\n'
    folder = write("one", {**HARBOR, "task.toml": toml, **files})
    assert only(source()).files == (str(folder / "environment") if taken else None)


def _toml(text: str) -> Mapping[str, str]:
    return {**HARBOR, "task.toml": text}


def test_folders_are_found_at_any_depth_and_an_id_stands_once(write: Write, source: Source) -> None:
    write("easy/one", HARBOR)
    write("hard/deep/two", BENCH)
    write("hard/one", BENCH)
    write(".hidden/three", HARBOR)
    made = source()
    assert [task.id for task in made.load()] == ["one", "two"]
    (problem,) = made.refused
    assert "'one' is already the id of the task in" in problem.message


def test_tasks_are_chosen_by_id_tag_difficulty_and_number(write: Write, source: Source) -> None:
    for name, level in (("a", "easy"), ("b", "hard"), ("c", "easy"), ("d", "easy")):
        text = f'[metadata]\ndifficulty = "{level}"\ntags = ["t-{name}"]\n'
        write(name, _toml(text))

    def ids(**options: object) -> list[str]:
        return [task.id for task in source(**options).load()]

    assert ids(difficulty=("easy",)) == ["a", "c", "d"]
    assert ids(difficulty=("easy",), exclude=("a",), limit=1) == ["c"]
    assert ids(tags=("t-b", "t-d")) == ["b", "d"]
    assert ids(include=("[ab]",)) == ["a", "b"]
    with pytest.raises(InputError, match="no task has an id that matches 'x'"):
        ids(include=("x",))
    with pytest.raises(InputError, match="difficulty: no task has the difficulty 'extreme'"):
        ids(difficulty=("extreme",))
    with pytest.raises(InputError, match=r"tags: no task has the tag 't_b'\s+hint\s+did you mean"):
        ids(tags=("t_b",))
    with pytest.raises(InputError, match="none of 4 tasks is left"):
        ids(tags=("t-b",), difficulty=("easy",))


def test_an_empty_folder_says_what_a_task_is(tmp_path: Path, source: Source) -> None:
    (tmp_path / "tasks").mkdir()
    with pytest.raises(InputError, match="no tasks in here"):
        list(source().load())


def test_a_misspelt_path_is_named(tmp_path: Path, source: Source) -> None:
    (tmp_path / "tasks").mkdir()
    with pytest.raises(InputError, match=r"no such folder\s+hint\s+did you mean 'tasks'"):
        list(source(path=tmp_path / "taskz").load())


def test_a_folder_that_can_not_be_listed_is_left_out_with_a_warning(
    write: Write, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def locked(path: str) -> Any:
        if path.endswith("/locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    write("locked", HARBOR)
    write("one", HARBOR)
    monkeypatch.setattr(os, "scandir", locked)
    made = source()
    assert [task.id for task in made.load()] == ["one"]
    (problem,) = made.refused
    assert problem.message == "can't be listed: Permission denied"
    with pytest.raises(InputError, match="can't be listed"):
        list(source(include=("locked",)).load())


@pytest.mark.parametrize("files", [1, 2])
def test_a_solution_arrives_as_it_is(
    write: Write, source: Source, tmp_path: Path, files: int
) -> None:
    """Run here, with another folder for /solution."""
    script = (
        "#!/bin/sh\ncat <<'EOF' >said\n  $HOME \\n 'x'\nEOF\nsh \"$(dirname \"$0\")/more.sh\"\n"
    )
    more = {"solution/more.sh": 'echo "$WHO" >more\n'} if files == 2 else {}
    toml = '[solution.env]\nWHO = "me and you"\n'
    write("one", {**HARBOR, "task.toml": toml, "solution/solve.sh": script, **more})
    task = only(source())
    assert task.solution is not None
    place = tmp_path / "place"
    text = "\n".join(task.solution).replace("place=/solution", f"place={place}")
    done = subprocess.run(["sh"], input=text, cwd=tmp_path, text=True, check=False)
    assert (tmp_path / "said").read_text() == "  $HOME \\n 'x'\n"
    if files == 2:
        assert done.returncode == 0
        assert (tmp_path / "more").read_text() == "me and you\n"


def test_a_solution_typed_line_by_line_is_taken_and_key_presses_are_not(
    write: Write, source: Source
) -> None:
    typed = "- command: cd /tmp\n  append_enter: true\n- command: ls\n"
    write("one", {**BENCH, "solution.sh": "", "solution.yaml": typed})
    keys = "- command: ':wq'\n  append_enter: false\n"
    write("two", {**BENCH, "solution.sh": "", "solution.yaml": keys})
    assert [task.solution for task in source().load()] == [("cd /tmp", "ls"), None]


def test_the_key_of_the_records_differs_from_run_to_run(write: Write, source: Source) -> None:
    write("one", HARBOR)
    keys = {only(source()).criteria[0].options["record_key"] for _ in range(3)}
    assert len(keys) == 3
    assert all(len(key) == 48 for key in keys)


def test_limits_are_multiplied_and_sizes_replaced(write: Write, source: Source) -> None:
    """In every step, and in both formats."""
    toml = "[agent]\ntimeout_sec = 100\n[verifier]\ntimeout_sec = 10\n[environment]\ncpus = 1\n"
    write("one", {**HARBOR, "task.toml": toml})
    write("bench", BENCH)
    found = {task.id: task for task in source(time_factor=2.5, cpus=3, memory_mb=512).load()}
    one, bench = found["one"], found["bench"]
    assert one.constraints.time_limit_s == 250
    assert one.criteria[0].options["timeout_s"] == 25
    assert bench.constraints.time_limit_s == 900
    assert bench.criteria[0].options["timeout_s"] == 150
    for task in (one, bench):
        assert task.environment is not None
        assert (task.environment.cpus, task.environment.memory_mb) == (3, 512)


def test_a_folder_that_is_excluded_is_not_said_to_be_left_out(write: Write, source: Source) -> None:
    write("one", HARBOR)
    write("torn", _toml("[agent"))
    for chosen in ({"exclude": ("torn",)}, {"include": ("one",)}):
        made = source(invalid="error", **chosen)
        assert [task.id for task in made.load()] == ["one"]
        assert made.refused == []
