"""From options and a task's wishes to the SDK's arguments."""

import math
import re
from typing import Any

import cwsandbox

from ale.errors import UnsupportedError
from ale.types import SandboxSpec
from ale_sandbox_cwsandbox.options import CwSandboxOptions

_KEEP_ALIVE = 'trap "exit 0" TERM INT; sleep infinity & wait'
_USER = re.compile(r"(\d+)(?::(\d+))?")


def wanted(options: CwSandboxOptions, spec: SandboxSpec) -> dict[str, Any]:
    """Arguments for `cwsandbox.Sandbox`, without environment and tags.

    Raises:
        UnsupportedError: the service can't give this.
    """
    if spec.build is not None:
        raise UnsupportedError(
            "cwsandbox: no images are built; push the task's image to a registry and name it in "
            "the task's `image`"
        )
    return {
        "command": "/bin/sh",
        "args": ["-c", _KEEP_ALIVE],
        "container_image": spec.image or options.image,
        "network": _network(options, spec),
        "resources": _resources(options, spec),
        "security_context": _user(spec.user or options.user),
    }


def _network(options: CwSandboxOptions, spec: SandboxSpec) -> cwsandbox.NetworkOptions:
    choices = (options.network, spec.network)
    if True in choices and False not in choices:
        return cwsandbox.NetworkOptions(egress=[cwsandbox.EgressRule(any=True)], deny_ingress=True)
    if spec.allowed_hosts and options.network is not False:
        try:
            rules = [cwsandbox.EgressRule(dns_name=host) for host in spec.allowed_hosts]
        except ValueError as error:
            raise UnsupportedError(f"cwsandbox: allowed_hosts takes names: {error}") from error
        return cwsandbox.NetworkOptions(egress=rules, deny_ingress=True)
    return cwsandbox.NetworkOptions(deny_egress=True, deny_ingress=True)


def _resources(options: CwSandboxOptions, spec: SandboxSpec) -> cwsandbox.ResourceOptions | None:
    cpus = options.cpus if spec.cpus is None else spec.cpus
    memory = options.memory_mb if spec.memory_mb is None else spec.memory_mb
    amounts = {}
    if cpus is not None:
        amounts["cpu"] = f"{math.ceil(cpus * 1000)}m"
    if memory is not None:
        amounts["memory"] = f"{memory}Mi"
    gpu = {"count": options.gpus, "type": options.gpu_type} if options.gpus else None
    if not amounts and gpu is None:
        return None
    return cwsandbox.ResourceOptions(requests=dict(amounts), limits=dict(amounts), gpu=gpu)


def _user(user: str | None) -> cwsandbox.SecurityContext | None:
    if user is None:
        return None
    found = _USER.fullmatch(user)
    if found is None:
        raise UnsupportedError(f"cwsandbox: a user is given as numbers, UID or UID:GID: {user!r}")
    group = found[2]
    return cwsandbox.SecurityContext(
        run_as_user=int(found[1]), run_as_group=None if group is None else int(group)
    )
