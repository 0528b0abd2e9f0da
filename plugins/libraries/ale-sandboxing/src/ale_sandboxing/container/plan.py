"""From options and a task's wishes to one container."""

import posixpath
import shlex
from collections.abc import Collection

from ale.types import SandboxSpec
from ale_sandboxing.container import health, script
from ale_sandboxing.container.egress import PROXIES
from ale_sandboxing.container.engine import Image, Plan, Volume
from ale_sandboxing.container.options import ContainerOptions, capabilities_added
from ale_sandboxing.container.records import LABEL, Record
from ale_sandboxing.container.sealed import SEALED

MIB = 1 << 20
ENTRYPOINT = "ALE_IMAGE_ENTRYPOINT"
"""Variable that tells what the image would have started, as words for a shell."""
HEALTH = "ALE_IMAGE_HEALTHCHECK"
"""Likewise its health check; see `ale_sandboxing.container.health.as_words`."""
_DEFAULT_WORKDIR = "/workspace"
_RESERVED_PROCESSES = 12
"""For the supervisor, so that a command can be killed where it has used up all others."""
_IN_MEMORY = ("/dev/shm", "/dev/mqueue")  # noqa: S108


def workdir_of(options: ContainerOptions, spec: SandboxSpec, image: Image) -> str:
    """Where the workspace is."""
    if spec.workdir is not None:
        return posixpath.normpath(posixpath.join("/", image.workdir, spec.workdir))
    if options.workdir is not None:
        return options.workdir
    return image.workdir if image.workdir.strip("/") else _DEFAULT_WORKDIR


def network_of(options: ContainerOptions, spec: SandboxSpec) -> bool:
    """Off unless the task or the option says on; a false of either wins."""
    wishes = (options.network, spec.network)
    return False not in wishes and True in wishes


def _is_offline(options: ContainerOptions, spec: SandboxSpec, image: Image) -> bool:
    may_change = options.network is not False and "change-network" in spec.requires
    # Only root can write /etc/hosts, which an engine else mounts.
    is_root = _user(options, spec, image).partition(":")[0] in ("", "0", "root")
    return is_root and not (network_of(options, spec) or may_change or options.read_only)


def _user(options: ContainerOptions, spec: SandboxSpec, image: Image) -> str:
    """Empty where nobody names one, which is root."""
    return (options.user if spec.user is None else spec.user) or image.user


def with_group(user: str, known: Collection[str]) -> str:
    """A user for an engine, which puts a number that it does not know into root's group.

    Args:
        known: the numbers of the container's users.
    """
    alone = user.isdigit() and int(user) != 0 and user not in known
    return f"{user}:{user}" if alone else user


def plan_of(
    options: ContainerOptions,
    spec: SandboxSpec,
    record: Record,
    image: Image,
    shell: Volume,
    users: Collection[str] = (),
) -> Plan:
    """The container of one sandbox.

    Args:
        users: the numbers of the image's users.
    """
    memory = options.memory_mb if spec.memory_mb is None else spec.memory_mb
    return Plan(
        name=container_name(record.id),
        image=image.id,
        entrypoint=(SEALED, "-c", script.PROCESS_1, SEALED),
        workdir=record.workdir,
        labels=record.labels,
        shell=shell,
        binds=options.allowlist_paths,
        env={
            **_environment(options, spec, record.workdir, image),
            **options.env,
            **spec.env,
            **_of_image(image),
        },
        user=with_group(_user(options, spec, image), users),
        network=network_of(options, spec),
        offline=_is_offline(options, spec, image),
        cpus=options.cpus if spec.cpus is None else spec.cpus,
        memory_bytes=None if memory is None else memory * MIB,
        processes=None if options.processes is None else options.processes + _RESERVED_PROCESSES,
        capabilities=capabilities_added(options),
        new_privileges=options.new_privileges,
        read_only=options.read_only,
        volumes=(record.workdir,) if options.read_only else (),
        closed=_IN_MEMORY if options.read_only else (),
        tmpfs=_tmpfs(options),
        runtime=options.runtime,
    )


def container_name(id: str) -> str:
    """Of the container of a sandbox."""
    return f"ale-{id}"


def _environment(
    options: ContainerOptions, spec: SandboxSpec, workdir: str, image: Image
) -> dict[str, str]:
    # Where the root is read-only, the user's home is too.
    home = {"HOME": workdir} if options.read_only else {}
    if spec.allowed_hosts:
        return {**home, **PROXIES}
    # The image of a sandbox that had a proxy names it; programs take an empty name for none.
    named = [name for name, value in PROXIES.items() if f"{name}={value}" in image.variables]
    return {**home, **dict.fromkeys(named, "")}


def _of_image(image: Image) -> dict[str, str]:
    # A snapshot's is our own supervisor; what its image began with is in its environment already.
    if LABEL in image.labels:
        return {}
    entrypoint = shlex.join(image.entrypoint) if image.entrypoint else None
    found = {ENTRYPOINT: entrypoint, HEALTH: health.as_words(image.health)}
    return {name: words for name, words in found.items() if words is not None}


def _tmpfs(options: ContainerOptions) -> dict[str, int]:
    size = options.tmp_mb
    if size is None and options.read_only:
        size = options.memory_mb or 1024
    return {} if size is None else {"/tmp": size * MIB}  # noqa: S108


def limits_of(options: ContainerOptions) -> str:
    """Shell script that sets the limits of each process; ``ulimit`` commands joined by ``&&``."""
    parts = ["ulimit -c 0"]
    if options.cpu_s is not None:
        # SIGXCPU first, SIGKILL two seconds later.
        parts += [f"ulimit -t {options.cpu_s + 2}", f"ulimit -St {options.cpu_s}"]
    if options.file_size_mb is not None:
        parts.append(f"ulimit -f {options.file_size_mb * MIB // 512}")
    if options.open_files is not None:
        parts.append(f"ulimit -n {options.open_files}")
    return "&&".join(parts)
