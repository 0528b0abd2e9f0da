"""Compare what a config and its tasks ask of the sandbox with what it has."""

from ale._config import RunConfig
from ale._config.auto import listed, not_isolated, refusal
from ale._run.parts import Tasks, missing_features
from ale._run.places import can_mislead
from ale.errors import InputError
from ale.protocols import SandboxBackend
from ale.text import counted
from ale.types import Task


def isolation_notes(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> list[str]:
    """Notes for the user about the chosen sandbox before the run, one line each.

    Raises:
        InputError: the sandbox does not provide the isolation that ``sandbox.require`` names.
    """
    lacking = not_isolated(backend.capabilities)
    if refused := refusal(lacking, config.require):
        message = f"sandbox '{config.sandbox.name}' {refused}"
        raise InputError.of(message, path="sandbox.require")
    notes = _auto_notes(config, lacking)
    if "network" in lacking:
        notes += _network_notes(config, tasks)
    return notes + _grading_notes(config, backend, tasks)


def check_tasks(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> None:
    """Check that the sandboxes have the images and the features that tasks need.

    Raises:
        InputError: they do not start from images, and no option ``ignore_image`` of theirs permits
            it; or with every task that requires a feature they lack.
    """
    _check_images(config, backend, tasks)
    problems = [each for task in _all(tasks) for each in missing_features(task, backend)]
    if problems:
        raise InputError(problems)


def _all(tasks: Tasks) -> list[Task]:
    return [ready.task for split in tasks.values() for ready in split]


def _check_images(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> None:
    options = config.sandbox.options
    if backend.capabilities.images or getattr(options, "ignore_image", False):
        return
    found = [
        task
        for task in _all(tasks)
        if task.environment.image is not None or task.environment.build is not None
    ]
    if not found:
        return
    image = found[0].environment.image or found[0].environment.build
    message = (
        f"{_summary([task.id for task in found])} {'need' if found[1:] else 'needs'} an image "
        f"({image}), and sandbox '{config.sandbox.name}' does not start from images"
    )
    own = [note for note in backend.capabilities.notes if note.startswith("images: ")]
    hint = "; ".join(["use docker or podman", *(note.partition(": ")[2] for note in own)])
    if hasattr(options, "ignore_image") and not any(missing_features(t, backend) for t in found):
        hint += "; or set sandbox.ignore_image: true to run with this machine's programs"
    raise InputError.of(message, path="sandbox.type", hint=hint)


def _auto_notes(config: RunConfig, lacking: list[str]) -> list[str]:
    chosen, name = config.sandbox.auto, config.sandbox.name
    if chosen is None:
        return []
    if not lacking:
        return [f"auto: using {name} ({chosen.reason})"]
    skipped = "; ".join(chosen.skipped) or "no other sandbox is installed"
    return [
        f"auto: using {name}, which does not isolate {listed(lacking)} from this machine: {skipped}"
    ]


def _network_notes(config: RunConfig, tasks: Tasks) -> list[str]:
    asking = [
        whole.id
        for whole in _all(tasks)
        if any(task.constraints.network is False for task in (whole, *whole.steps))
    ]
    sources = ["the config"] if getattr(config.sandbox.options, "network", None) is False else []
    if asking:
        sources.append(_summary(asking))
    if not sources:
        return []
    return [
        f"network: false, set by {' and '.join(sources)}, is not enforced: sandbox "
        f"'{config.sandbox.name}' does not isolate the network"
    ]


def _grading_notes(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> list[str]:
    """The tasks that are graded by programs which the agent can replace."""
    found = [
        (ready.task.id, spec.type)
        for split in tasks.values()
        for whole in split
        for ready in whole.steps or (whole,)
        for spec, criterion in ready.criteria
        if can_mislead(criterion, ready.task, backend.capabilities)
    ]
    if not found:
        return []
    ids = list(dict.fromkeys(id for id, _ in found))
    kinds = ", ".join(sorted({repr(kind) for _, kind in found}))
    are = "are" if len(ids) > 1 else "is"
    return [
        f"{_summary(ids)} {are} graded by {kinds} in the sandbox in which the agent works, "
        f"and its commands can replace the programs of '{config.sandbox.name}': a wrong result can "
        "pass"
    ]


def _summary(ids: list[str]) -> str:
    return f"{counted(len(ids), 'task')} ({ids[0]}{', ...' * (len(ids) > 1)})"
