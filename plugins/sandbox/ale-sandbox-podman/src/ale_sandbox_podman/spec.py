"""A container as Podman's API takes it."""

from typing import Any

from ale_sandboxing.container.engine import Plan
from ale_sandboxing.process import seccomp

_CPU_PERIOD_US = 100_000


def spec_of(plan: Plan) -> dict[str, Any]:
    """The container as the engine's API takes it."""
    mounts = [
        {
            "type": "bind",
            "source": str(path),
            "destination": str(path),
            "options": ["ro", "rbind", "nosuid", "nodev"],
        }
        for path in plan.binds
    ]
    mounts += [
        {
            "type": "tmpfs",
            "source": "tmpfs",
            "destination": path,
            "options": ["nosuid", "nodev", "mode=1777", f"size={size}"],
        }
        for path, size in plan.tmpfs.items()
    ]
    mounts += [
        {"type": "tmpfs", "source": "tmpfs", "destination": path, "options": ["ro"]}
        for path in plan.closed
    ]
    mounts += [
        {
            "type": "bind",
            "source": one.source,
            "destination": one.target,
            "options": ["rbind", "ro" if one.read_only else "rw"],
        }
        for one in plan.shared
        if one.kind == "bind"
    ]
    mounts += [
        {
            "type": "tmpfs",
            "source": "tmpfs",
            "destination": one.target,
            "options": [option for option in one.source.split(",") if option],
        }
        for one in plan.shared
        if one.kind == "tmpfs" and one.target not in (*plan.tmpfs, *plan.closed)
    ]
    return {
        "name": plan.name,
        "image": plan.image,
        "entrypoint": list(plan.entrypoint),
        "command": [],
        "work_dir": plan.workdir,
        "create_working_dir": True,
        "env": dict(plan.env),
        "httpproxy": False,
        "user": plan.user or "",
        "labels": dict(plan.labels),
        **({} if plan.joins else {"hostname": "sandbox"}),
        "healthconfig": {"Test": ["NONE"]},
        "systemd": "false",
        "netns": _network(plan),
        **({"networks": {plan.name: {}}} if plan.network and not plan.joins else {}),
        "cap_drop": ["all"],
        "cap_add": [f"CAP_{name}" for name in plan.capabilities],
        "no_new_privileges": not plan.new_privileges,
        "privileged": False,
        "seccomp_profile_path": str(seccomp.PROFILE) if plan.filtered else "",
        "read_only_filesystem": plan.read_only,
        "mounts": mounts,
        "volumes": [
            *({"Dest": path} for path in plan.volumes),
            *(
                {
                    "Name": one.source,
                    "Dest": one.target,
                    "Options": ["ro" if one.read_only else "rw"],
                }
                for one in plan.shared
                if one.kind == "volume"
            ),
            {
                "Name": plan.shell.name,
                "Dest": plan.shell.target,
                "Options": ["ro" if plan.shell.read_only else "rw"],
            },
        ],
        "stdin": True,
        "resource_limits": _limits(plan),
        "oci_runtime": plan.runtime or "",
        "sysctl": dict(plan.sysctls),
        "log_configuration": {"driver": "none"},
    }


def _network(plan: Plan) -> dict[str, str]:
    if plan.joins is not None:
        return {"nsmode": "container", "value": plan.joins}
    return {"nsmode": "bridge" if plan.network else "none"}


def _limits(plan: Plan) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if plan.memory_bytes is not None:
        limits["memory"] = {"limit": plan.memory_bytes, "swap": plan.memory_bytes}
    # Without a value the engine sets a limit of its own.
    limits["pids"] = {"limit": -1 if plan.processes is None else plan.processes}
    if plan.cpus is not None:
        limits["cpu"] = {"quota": round(plan.cpus * _CPU_PERIOD_US), "period": _CPU_PERIOD_US}
    return limits
