"""The container that an agent works in, as ``task.toml`` and a compose file have it."""

from collections.abc import Mapping

from attrs import frozen

from ale.types import Environment
from ale_tasks_harbor import compose
from ale_tasks_harbor.checks import memory_mb
from ale_tasks_harbor.dockerfile import background
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.values import Values
from ale_tasks_harbor.variables import from_host


@frozen(kw_only=True)
class TaskEnvironment:
    """The environment of an agent, and the parts of it that only setup steps can make."""

    environment: Environment
    files: str | None
    """Folder whose content goes to the workspace."""
    background: str
    """Programs that start with the container; see `ale_tasks_harbor.dockerfile`."""
    health: str
    """The container's own check; see `ale_tasks_harbor.health`."""
    several: bool
    """The task has service containers."""


def read(task: Folder, values: Values, environ: Mapping[str, str]) -> TaskEnvironment:
    """Read a task's environment.

    Args:
        values: its table ``environment``.
        environ: the host's variables.
    """
    folder = task.folder("environment")
    _refuse_what_is_not_here(values)
    own = variables(values, environ)
    client = compose.read(folder, environ, {**own, **_sizes(values)}, values, implied=True)
    image = values.text("docker_image")
    used = image or client.image
    built = used is None and not (client.several and not folder.has("Dockerfile"))
    # Nothing more is said of what is not a table: it may have named an image.
    is_table = all(problem.path != values.path for problem in values.problems)
    if built and is_table and not folder.has_file("Dockerfile"):
        message = "there is no environment/Dockerfile, and no environment.docker_image"
        values.note(values.file, message)
    build = folder.at(compose.FILE) if client.several else folder.path
    return TaskEnvironment(
        environment=Environment(
            image=used,
            build=build if used is None or client.several else None,
            workdir=values.text("workdir") or client.workdir or ".",
            env={**client.env, **own},
            # Docker takes 0 as no limit.
            cpus=client.cpus or values.amount("cpus", 0.0) or None,
            memory_mb=client.memory_mb or memory_mb(values, "memory_mb", "memory"),
            storage_mb=memory_mb(values, "storage_mb", "storage"),
            user=client.user,
            own_files=True,
        ),
        files=None if image is None else _files(folder),
        background=background(client.entrypoint, client.command),
        health=client.health,
        several=client.several,
    )


def variables(values: Values, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of an environment."""
    return from_host(values.pairs("env"), environ, values.table("env").refuse)


def _refuse_what_is_not_here(values: Values) -> None:
    if str(values.values.get("os", "linux")).lower() != "linux":
        values.refuse("os", "only linux is supported")
    if values.whole("gpus"):
        values.refuse("gpus", "GPUs are not supported yet")
    if values.has("tpu"):
        values.refuse("tpu", "TPUs are not supported")


def _sizes(values: Values) -> dict[str, str]:
    """As Harbor gives them to compose files."""
    cpus, memory = values.values.get("cpus"), memory_mb(values, "memory_mb", "memory")
    given = {"CPUS": cpus, "MEMORY": None if memory is None else f"{memory}M"}
    return {name: str(value) for name, value in given.items() if value is not None}


def _files(folder: Folder) -> str | None:
    """As in Harbor, what lies in environment/ goes to the workspace of a prebuilt image."""
    built = any(folder.has_file(name) for name in ("Dockerfile", compose.FILE))
    return folder.path if folder.names and not built else None
