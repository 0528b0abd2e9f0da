"""What a loop's directory says, for people and for programs."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ale.learning import origins
from ale.runs import RunReader, holder
from ale.text import counted, sampling_name, table
from ale_loop.options import LoopOptions
from ale_loop.record import Decision, decisions, deployed


def status(options: LoopOptions) -> dict[str, Any]:
    """How a loop is doing. Raises `InputError` where it was never started."""
    reader = RunReader(options.directory)
    index, section = reader.index(), reader.manifest["config"]["run"]
    groups = index.stream
    made = decisions(reader.events())
    sizes = Counter(
        (episode.step, episode.task_id, episode.start)
        for episode in reader.episodes
        if episode.split == "train"
    )
    used = {tuple(each) for batch in groups.batches.values() for each in batch} if groups else set()
    open_ = {key: n for key, n in sizes.items() if key not in used}
    full = sum(n >= section["rollouts"] for n in open_.values())
    process = holder(options.directory)
    return {
        "running": process is not None,
        "process": process,
        "deployed": deployed(made),
        "decided": len(made),
        "episodes": sum(1 for _ in origins(reader)),
        "learned_from": sum(n for key, n in sizes.items() if key in used),
        "groups_waiting": full,
        "groups_of_a_batch": section["tasks_per_step"],
        "groups_filling": len(open_) - full,
        "train_window": None if options.window is None else str(options.window),
    }


def status_text(found: dict[str, Any]) -> str:
    """It in words."""
    running = f"runs as process {found['process']}" if found["running"] else "does not run"
    waiting = counted(found["groups_waiting"], "full group")
    batch = f"{found['groups_of_a_batch']} make a batch"
    filling = counted(found["groups_filling"], "group")
    lines = [
        f"loop        {running}",
        f"deployed    version {found['deployed']}",
        f"taken       {counted(found['episodes'], 'episode')}",
        f"learned     from {counted(found['learned_from'], 'episode')}",
        f"waiting     {waiting} ({batch}), and {filling} not full",
    ]
    if found["train_window"]:
        lines.append(f"trains      {found['train_window']}")
    return "\n".join(lines)


def history(directory: Path) -> list[Decision]:
    """Every decision, oldest first."""
    return decisions(RunReader(directory).events())


def history_text(made: Sequence[Decision]) -> str:
    """A line for each."""
    if not made:
        return "Nothing was decided yet; version 0 is deployed."
    rows = [(str(d.version), _time(d.at), d.what, _differences(d), d.reason) for d in made]
    return table(("version", "at", "", "new minus deployed", ""), rows, right=(0,))


def _differences(made: Decision) -> str:
    return ", ".join(
        f"{sampling_name(each['temperature'])} {each['difference']:+z.3f}" for each in made.compared
    )


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"
