"""Rollouts from one start, by replay and by fork: a real agent in real namespaces, told apart."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

import ale_agent_iflow.plugin
import ale_chunkers.plugin
import ale_credit.plugin
import ale_sandbox_bubblewrap.plugin
import ale_sandbox_local.plugin
import ale_starts.plugin
from ale._config import structure_config
from ale._registry import Registry
from ale._run.start import Host, check_run, closing_parts, start
from ale.plugin import Component, hookimpl
from ale.protocols import Sandbox
from ale.strict import from_plain
from ale.testing.builders import task
from ale.testing.fakes import FakePolicy, FakeTrainer
from ale.types import (
    CompletionRequest,
    CriterionSpec,
    Episode,
    Message,
    Score,
    Task,
    ToolCall,
    Trajectory,
)

LOOK = 'echo "$PWD:$x:$y:${a[1]}:$#:$1:$(umask):$-:$?"; f; ls -A . ..; cat ../log; pwd -P'
"""What the policy runs from the start on: whatever a command could notice."""
SHELL = (
    "x=plain; export y='two  words'; a=(0 'b c'); f() { echo \"f of $x\"; }; echo 1 >> log",
    "mkdir -p sub; cd sub; set -- p 'q r'; umask 027; echo 2 >> ../log; false",
    "set -o noclobber; shopt -s extglob; echo 3 >> ../log; mkfifo pipe; (exit 5)",
)


def called(turn: int, tool: str, **arguments: str) -> Message:
    call = ToolCall(id=f"call_{turn}_0", name=tool, arguments=json.dumps(arguments))
    return Message(role="assistant", tool_calls=(call,))


def look_then_finish(request: CompletionRequest) -> Message:
    looked = "ls -A . .." in "".join(str(m) for m in request.messages)
    if looked:
        return called(request.turn, "finish", summary="Done.")
    return called(request.turn, "shell", command=LOOK)


class Always:
    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        return Score(criterion="always", passed=True, value=1.0)


def _part(name: str, make: Callable[[], Any]) -> Component[Any, Any]:
    return Component(name, None, lambda options, context: make(), summary="Of a test.", priority=1)


class Shop:
    def __init__(self) -> None:
        self.tasks: Sequence[Task] = []

    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        return [_part("list", lambda: type("S", (), {"load": lambda _: self.tasks})())]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        return [_part("looking", lambda: FakePolicy(look_then_finish))]

    @hookimpl
    def ale_criteria(self) -> Sequence[Component[Any, Any]]:
        return [_part("always", Always)]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [_part("none", FakeTrainer)]


@frozen
class Place:
    directory: Path
    shop: Shop = field(factory=Shop)

    async def run(
        self, solution: Sequence[str], restore: str, sandbox: str = "bubblewrap", **run: Any
    ) -> list[Episode]:
        """The episodes of a run from after the whole solution."""
        registry = Registry()
        registry.add(self.shop, "ale-shop", "1.0")
        for plugin in (
            ale_agent_iflow.plugin,
            ale_chunkers.plugin,
            ale_credit.plugin,
            ale_sandbox_bubblewrap.plugin,
            ale_sandbox_local.plugin,
            ale_starts.plugin,
        ):
            registry.add(plugin, plugin.__name__.partition(".")[0].replace("_", "-"), "1.0")
        self.shop.tasks = [
            task("t", solution=tuple(solution), criteria=(CriterionSpec(type="always"),))
        ]
        plain = {
            "tasks": {"type": "list"},
            "sandbox": {"type": sandbox},
            "llm": {"type": "looking"},
            "agent": {"type": "iflow"},
            "chunker": {"type": "interaction"},
            "credit": {"type": "reinforce"},
            "trainer": {"type": "none"},
            "observers": [],
            "starts": {"type": "rollback", "threshold": 1.0, "min_rollouts": 99}
            | ({"restore": restore} if restore != "replay" else {}),
            "run": {"directory": str(self.directory), "rollouts": 4, "steps": 1, **run},
        }
        outside = Host(registry=registry, report=lambda _: None)
        config = structure_config(from_plain(plain), registry)
        prepared = start(check_run(config, "test", outside), outside)
        async with closing_parts(prepared) as going:
            await going.execute()
        left = await prepared.parts.sandbox.list()
        assert [one for one in left if one.tags.get("run") == prepared.context.run_id] == []
        return sorted(prepared.store.reader.episodes, key=lambda episode: episode.id)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = ale_sandbox_bubblewrap.plugin.probe()
    if not found.usable:
        pytest.skip(found.reason)
    return Place(tmp_path)


def seen(episode: Episode) -> list[str]:
    assert episode.failure is None, episode.failure
    return [o.content for turn in episode.trajectory.turns for o in turn.observations]


def restored(episodes: Sequence[Episode]) -> list[str]:
    return sorted(episode.metadata["restored"] for episode in episodes)


async def test_a_fork_shows_a_shell_and_files_what_a_replay_shows(place: Place) -> None:
    forked = await place.run(SHELL, "fork")
    assert restored(forked) == ["fork", "fork", "fork", "replay"], forked[0].metadata
    replayed = await place.run(SHELL, "replay")
    assert len({tuple(seen(episode)) for episode in (*forked, *replayed)}) == 1
    shown = seen(forked[1])[len(SHELL)]
    assert "/workspace/sub:plain:two  words:b c:2:p:0027:" in shown
    assert "f of plain" in shown
    assert "1\n2\n3\n" in shown


async def test_a_snapshot_serves_the_next_step(place: Place) -> None:
    episodes = await place.run(SHELL, "fork", steps=2)
    second = [episode for episode in episodes if episode.step == 1]
    assert restored(second) == ["fork"] * 4
    assert len({tuple(seen(episode)) for episode in episodes}) == 1


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sleep 1000 &", "processes are still running: sleep|could not be restored: jobs"),
        ("(setsid sleep 1000 >/dev/null 2>&1 &)", "processes are still running: sleep"),
        ("trap 'echo bye' EXIT", "could not be restored: traps"),
        ("exec 7<.", "could not be restored: descriptors"),
        ("pushd / >/dev/null", "could not be restored: folders"),
        ("ulimit -n 100", "could not be restored: limits"),
        ("mkdir d; cd d; rmdir ../d", "could not be restored: folder"),
        ("echo x > /dev/shm/x", "in /dev/shm or on a volume"),
    ],
)
async def test_what_a_fork_would_lose_is_replayed(place: Place, command: str, why: str) -> None:
    episodes = await place.run([command], "fork", rollouts=2)
    assert restored(episodes) == ["replay", "replay"]
    for episode in episodes:
        assert episode.failure is None
        assert re.search(why, episode.metadata["not_forked"]), episode.metadata


async def test_a_sandbox_whose_forks_have_another_path_is_replayed(place: Place) -> None:
    episodes = await place.run(SHELL, "fork", "local", rollouts=2)
    assert restored(episodes) == ["replay", "replay"]
    assert "commands can write elsewhere" in episodes[0].metadata["not_forked"]
