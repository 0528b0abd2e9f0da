"""Verifier settings of a Harbor task: artifacts, hooks, a separate container."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from attrs import asdict

from ale_tasks_harbor import compose, health
from ale_tasks_harbor.checks import health_s, health_step, memory_mb
from ale_tasks_harbor.dockerfile import background, started
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.phases import baseline, of
from ale_tasks_harbor.task_environment import variables
from ale_tasks_harbor.values import Values

_LOGS = "/logs/artifacts"
"""Everything in this folder is an artifact."""


def artifacts(values: Values) -> list[dict[str, Any]]:
    """Artifacts to store, with the service that has them."""
    made: list[dict[str, Any]] = []
    listed = values.values.get("artifacts") or []
    for entry in listed if isinstance(listed, list) else [listed]:
        table = entry if isinstance(entry, Mapping) else {"source": entry}
        source, service, exclude = table.get("source"), table.get("service"), table.get("exclude")
        # As in Harbor, an empty one means unset.
        destination = table.get("destination") or None
        if (
            not isinstance(source, str)
            or ".." in PurePosixPath(source).parts
            or source.strip("/") == ""
        ):
            values.refuse("artifacts", f"expected a path in the container, found {entry!r}")
        elif service not in (None, "main") and not source.startswith("/"):
            values.refuse("artifacts", f"expected an absolute path in {service}, found {source}")
        elif destination is not None and not _is_below(destination):
            expected = "expected a 'destination' below the artifacts"
            values.refuse("artifacts", f"{expected}, found {destination!r}")
        elif not _are_texts(exclude or []):
            values.refuse("artifacts", f"expected patterns in 'exclude', found {exclude!r}")
        else:
            artifact = {"source": source, "destination": destination, "service": service}
            made.append({**artifact, "exclude": list(exclude or [])})
    return made


def _is_below(destination: object) -> bool:
    if not isinstance(destination, str) or "\\" in destination:
        return False
    path = PurePosixPath(destination)
    inside = not path.is_absolute() and path.parts != () and ".." not in path.parts
    return inside and str(path) != "manifest.json"


def _are_texts(listed: object) -> bool:
    return isinstance(listed, list) and all(isinstance(each, str) for each in listed)


def hooks(values: Values) -> list[dict[str, Any]]:
    """Commands to run before the tests, in the agent's container or in another."""
    made = []
    for hook in values.table("verifier").tables("collect"):
        made.append(
            {
                "command": hook.text("command") or "",
                "timeout_s": hook.seconds("timeout_sec", 60.0),
                "user": hook.user(),
                "service": hook.text("service"),
            }
        )
        if not hook.has("command"):
            hook.refuse("command", "'command' is missing")
    return made


def with_agent_artifacts(listed: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All artifacts that are copied to a separate verifier."""
    if any(entry["source"].rstrip("/") == _LOGS for entry in listed):
        return list(listed)
    return [{"source": _LOGS, "service": None}, *listed]


def is_separate(verifiers: Sequence[Values]) -> bool:
    """Whether the tests run in a separate container; the first table with a setting decides."""
    for verifier in verifiers:
        if verifier.has("environment_mode"):
            return verifier.choice("environment_mode", ("shared", "separate"), "shared") != "shared"
        if verifier.has("environment"):
            return True
    return False


def separate_verifier(
    verifiers: Sequence[Values],
    tests: Sequence[Folder],
    environment: Values,
    folder: Folder,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Options of the separate container of the tests.

    Args:
        verifiers: the table of the step, if there is one, and that of the task.
        tests: their folders of tests.
        environment: the task's own, which applies unless a verifier has one.
        folder: of the task.
        environ: the host's variables.
    """
    table = next((v.table("environment") for v in verifiers if v.has("environment")), environment)
    image, build, in_image = _image(verifiers, tests, environment, folder)
    net = of(verifiers[-1], baseline(table))
    if len(verifiers) > 1:
        net = of(verifiers[0], net)
    return {
        "image": image,
        "build": build,
        "tests_in_image": in_image,
        "workdir": table.text("workdir") or ".",
        **asdict(net),
        "env": variables(table, environ),
        "cpus": table.amount("cpus", 0.0) or None,
        "memory_mb": memory_mb(table, "memory_mb", "memory"),
        "setup": _setup(table),
        "setup_timeout_s": health_s(table.table("healthcheck")),
    }


def _setup(environment: Values) -> list[str]:
    own = health.step(health.OF_THE_IMAGE)
    return [*started(background()), own, *health_step(environment.table("healthcheck"))]


def _image(
    verifiers: Sequence[Values], tests: Sequence[Folder], environment: Values, folder: Folder
) -> tuple[str | None, str | None, bool]:
    """An image, or a folder or file to build; and whether it contains the tests."""
    for verifier, place in zip(verifiers, tests, strict=True):
        image = verifier.table("environment").text("docker_image")
        if image is not None:
            return image, None, True
        found = _built(place)
        if found is not None:
            return None, found, True
    image = environment.text("docker_image")
    if image is not None:
        return image, None, False
    place = folder.folder("environment")
    return None, _built(place) or place.path, False


def _built(place: Folder) -> str | None:
    if place.has_file(compose.FILE):
        return place.at(compose.FILE)
    return place.path if place.has_file("Dockerfile") else None
