"""Batches, windows, the gate, hand-over and restoring, with a policy that is one number."""

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ale
from ale.errors import AleError, InputError, StoreError
from ale.runs import Registry, RunReader
from ale.testing.fakes import ManualClock
from ale.testing.waiting import wait_for
from ale.types import Episode
from ale_loop.options import read_config
from ale_loop.record import answered, ask
from ale_loop.running import restore, run

from .conftest import Place

BETTER, WORSE = (0.8, 0.8, 0.8, 0.8), (0.1, 0.1, 0.1, 0.1)


def at(text: str) -> float:
    return datetime.fromisoformat(f"2026-11-{text}").replace(tzinfo=UTC).timestamp()


def test_a_batch_is_learned_from_and_a_better_policy_is_deployed(place: Place) -> None:
    place.write()
    place.give(*BETTER, 0.8)
    place.run(lambda: (1, 0.8) in place.served)
    assert place.verdicts == [(1, "deployed")]
    assert place.served == [(0, 0.5), (1, 0.8)]
    made = {each["temperature"]: each for each in place.decisions[0].compared}
    assert made.keys() == {0.0, None}
    greedy = made[0.0]
    assert (greedy["deployed"], greedy["new"], greedy["n"]) == (0.5, 1.0, 4)
    assert greedy["difference"] == 0.5
    assert "version 1 deployed" in place.said


def test_each_full_group_of_the_next_batch_is_said_once(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        for reward in BETTER[:3]:
            giver.give(reward)
        place.run(lambda: "1 of 2 groups for version 1" in place.said)
        giver.give(BETTER[3])
        place.run(lambda: place.decisions)
    said = [each for each in place.said if "groups for" in each]
    assert said == ["1 of 2 groups for version 1", "2 of 2 groups for version 1"]


def test_a_loop_says_that_it_can_only_be_ended(place: Place) -> None:
    found: list[Any] = []

    def told() -> bool:
        with suppress(AleError):
            found.append(ale.steer(place.directory))
        return bool(found)

    place.write()
    place.run(told)
    assert found[0]["takes"] == ["stop"]


def test_a_loop_does_not_say_how_many_episodes_it_will_have(place: Place) -> None:
    place.write(sections={"observers": [{"type": "started"}]})
    place.run(lambda: place.served)
    assert (place.directory / "n_episodes").read_text() == "None"


def test_a_worse_policy_is_refused_and_the_next_starts_from_the_deployed_one(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        for reward in (*BETTER, *WORSE, *BETTER):
            giver.give(reward)
        place.run(lambda: len(place.decisions) == 3)
    assert place.verdicts == [(1, "deployed"), (2, "refused"), (3, "deployed")]
    assert "greedy: mean -0.500 is below" in place.decisions[1].reason
    assert place.served == [(0, 0.5), (1, 0.8), (3, 1.1)]
    learned = place.state(3)["learned"]
    assert learned == [f"0-task-{task}-{n}" for task in (0, 1, 4, 5) for n in (0, 1)]


def test_a_loop_whose_budget_is_spent_continues_with_a_larger_one(place: Place) -> None:
    place.write(budget={"episodes": 3})
    with place.recording() as giver:
        for reward in (*BETTER, *BETTER):
            giver.give(reward)
    assert place.ends() == 4
    assert "Finishing the running episodes; the budget is spent: " in " ".join(place.said)
    before = len(place.decisions)
    assert before < 2
    place.write(budget={"episodes": 100}, seed=7)
    place.ends()
    assert "  not used: run.seed: 7 (saved: 0)" in "\n".join(place.said)
    assert len(place.decisions) == before
    place.write(budget={"episodes": 100})
    assert place.run(lambda: len(place.decisions) == 2) == 0
    assert "changed: run.budget.episodes: 100 (saved: 3)" in place.said
    (place.folder / "train.yaml").write_text("tasks: {type: none}")
    (place.folder / "served").unlink()
    place.run(lambda: place.served)
    assert "is not used, and is not valid" in "".join(place.said)


def test_a_loop_that_a_rule_ends_has_the_exit_status_of_such_a_run(place: Place) -> None:
    place.write(stop_if=["mean_reward > 0.1"])
    with place.recording() as giver:
        for reward in BETTER:
            giver.give(reward)
    assert place.ends() == 5
    assert RunReader(place.directory).state == "halted"


def test_the_threshold_says_what_is_deployed(place: Place) -> None:
    place.write({"gate": {"threshold": -0.6}})
    place.give(*WORSE)
    place.run(lambda: place.decisions)
    assert place.verdicts == [(1, "deployed")]


def test_with_low_a_difference_that_may_be_chance_is_refused(place: Place) -> None:
    place.write({"gate": {"measure": "low"}})
    place.give(*BETTER)
    place.run(lambda: place.decisions)
    assert place.verdicts == [(1, "refused")]
    assert "low -" in place.decisions[0].reason


def test_a_version_that_breaks_its_tasks_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(retries=0)
    place.give(0.8)
    place.run(lambda: (0, 0.5) in place.served)
    monkeypatch.setenv("BREAK_FROM", "0.65")
    place.give(*BETTER)
    place.run(lambda: place.decisions)
    assert place.verdicts == [(1, "refused")]
    assert "only 0 of 4 held-out tasks have a reward" in place.decisions[0].reason
    assert place.served[-1] == (0, 0.5)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("BREAK_FROM", "0", "4 held-out tasks broke, under version 0, which is deployed, too"),
        ("UNREACHABLE", "for requests", "4 held-out tasks broke, under version 0"),
        ("UNREACHABLE", "for weights", "the model server can't be reached"),
    ],
)
def test_an_outage_while_a_new_version_is_evaluated_decides_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    place.write({"gate": {"retry_s": 0.05}}, retries=0)
    during: list[Any] = []

    def breaks_and_is_mended() -> bool:
        if place.served and variable not in os.environ and not during:
            monkeypatch.setenv(variable, value)
            place.give(*BETTER)
        said = [each for each in place.said if "is neither deployed nor refused" in each]
        if len(said) >= 2 and not during:
            during.extend([said[-1], list(place.verdicts), list(place.served)])
            monkeypatch.delenv(variable)
        return bool(place.decisions)

    place.run(breaks_and_is_mended)
    said, verdicts, served = during
    assert reason in said
    assert (verdicts, set(served)) == ([], {(0, 0.5)})
    assert place.verdicts == [(1, "deployed")]
    assert place.served[-1] == (1, 0.8)


def test_an_outage_while_the_deployed_version_was_evaluated_uses_no_groups_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(retries=0)
    place.give(*BETTER)
    monkeypatch.setenv("BREAK_FROM", "0")
    with pytest.raises(AleError, match="only 0 of 4 held-out tasks have a reward under version 0"):
        place.run(lambda: place.decisions)
    assert place.decisions == []
    assert not (place.directory / "credits").exists()
    monkeypatch.delenv("BREAK_FROM")
    place.run(lambda: place.decisions)
    assert place.verdicts == [(1, "deployed")]
    made = {each["temperature"]: each for each in place.decisions[0].compared}
    assert (made[0.0]["deployed"], made[0.0]["new"], made[0.0]["n"]) == (0.5, 1.0, 4)


def test_equal_policies_are_not_deployed(place: Place) -> None:
    place.write()
    place.give(0.5, 0.5, 0.5, 0.5)
    place.run(lambda: place.decisions)
    assert [(each.what, each.reason) for each in place.decisions] == [
        ("unchanged", "no update was made of its batch")
    ]


def test_a_group_waits_until_it_is_full_and_broken_episodes_are_left_out(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        given = [giver.give(reward) for reward in (0.8, None, 0.8, 0.8)]
        place.run(lambda: place.directory.exists() and len(taken(place)) == 3)
        assert place.verdicts == []
        more = [giver.give(reward) for reward in (0.8, 0.8)]
        place.run(lambda: place.decisions)
    assert taken(place) == [given[0], *given[2:], *more]
    assert place.state(1)["learned"] == [*given[2:], *more]


def taken(place: Place) -> list[str]:
    return [each.metadata["from"]["episode"] for each in learned_from(place)]


def test_tasks_of_one_name_and_different_goals_are_different_groups(place: Place) -> None:
    """A baseline over both would compare what can't be compared."""
    place.write(None, rollouts=4)
    place.give(*BETTER)
    with place.recording("another") as giver:
        giver.n[0] = 100
        giver.give(0.8)
    path = place.folder / "seen" / "another"
    for name in ("tasks.jsonl", "episodes.jsonl"):
        text = (path / name).read_text()
        (path / name).write_text(text.replace("task-50", "task-0"))
    place.run(lambda: place.directory.exists() and len(taken(place)) == 5)
    tasks = {each.id for each in RunReader(place.directory).episodes if each.split == "train"}
    assert tasks == {"0-task-0-0", "0-task-0-1", "0-task-1-0", "0-task-1-1", "0-task-0~another-0"}


def test_a_folder_of_episodes_that_is_not_there_is_named_once(place: Place) -> None:
    place.write({"episodes": ["seen", "misspelt"]})
    place.give(0.8)
    place.run(lambda: any("misspelt" in each for each in place.said) and (0, 0.5) in place.served)
    absent = [each for each in place.said if "there is no folder" in each]
    folder = place.folder / "misspelt"
    assert absent == [f"there is no folder {folder}: its episodes are taken once it is there"]


def test_what_another_loop_has_taken_is_not_taken_from_it(place: Place) -> None:
    place.write({"directory": "seen/first"})
    place.give(0.8)
    place.run(lambda: (0, 0.5) in place.served)
    place.write()
    place.give(0.8, 0.8, name="later")
    place.said.clear()
    place.run(
        lambda: (
            any("another loop has taken it" in each for each in place.said)
            and len(taken(place)) >= 3
        )
    )
    origins = [each.metadata["from"] for each in learned_from(place)]
    assert sorted(each["run"] for each in origins) == ["agent", "later", "later"]


def test_runs_of_one_name_are_different_runs(place: Place) -> None:
    """In different places, and at the same place one after the other."""
    place.write({"episodes": ["seen", "elsewhere"]}, rollouts=8)
    made = [place.folder / name for name in ("elsewhere", "first", "anew")]
    for path, reward in zip(made, (0.8, 0.7, 0.6), strict=True):
        place.give(reward)
        (place.folder / "seen").rename(path)
    seen = place.folder / "seen" / "agent"
    seen.parent.mkdir()
    seen.symlink_to("../first/agent")
    place.run(lambda: place.directory.exists() and (0, 0.5) in place.served)

    link, anew = place.folder / "link", Path("../anew/agent")

    def begun_anew() -> bool:
        if len(place.served) == 2 and seen.readlink() != anew:
            link.symlink_to(anew)
            link.replace(seen)
        return len(taken(place)) == 3

    place.run(begun_anew)
    assert sorted(each.reward or 0 for each in learned_from(place)) == [0.6, 0.7, 0.8]


def test_a_run_of_an_earlier_version_is_known_by_its_name_and_time(place: Place) -> None:
    place.write()
    place.give(0.8)
    path = place.folder / "seen" / "agent" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["uid"]
    path.write_text(json.dumps(manifest))
    place.run(lambda: place.directory.exists() and len(taken(place)) == 1)
    [found] = learned_from(place)
    assert found.metadata["from"]["uid"] == manifest["created"]


def test_outside_the_window_the_backlog_waits_also_over_a_restart(place: Place) -> None:
    place.write({"train_window": "22:30-06:00", "time_zone": "Europe/Berlin"})
    clock = ManualClock(at("23T20:00:00"))  # 21:00 in Berlin
    clocks: dict[str, Any] = {"clock": clock}
    place.give(*BETTER)
    for _ in range(2):
        place.run(lambda: any("wait for" in each for each in place.said), clocks=clocks)
        assert place.verdicts == []
        assert "2 groups wait for 22:30-06:00 Europe/Berlin to be learned from" in place.said
        place.said.clear()
    clock.now = at("24T04:59:59")  # 05:59:59
    place.run(lambda: place.decisions, clocks=clocks)
    assert place.verdicts == [(1, "deployed")]


def test_an_earlier_version_is_restored_and_training_continues_from_it(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        for reward in (*BETTER, *BETTER):
            giver.give(reward)
        place.run(lambda: len(place.decisions) == 2)
        said: list[str] = []
        restore(place.config, 1, Registry.installed(), said.append, 1.0)
        assert place.served[-1] == (1, 0.8)
        for _ in range(4):
            giver.give(0.6)
        place.run(lambda: len(place.decisions) == 4)
    assert place.verdicts == [(1, "deployed"), (2, "deployed"), (1, "restored"), (3, "deployed")]
    assert place.served[-1] == (3, 0.9)
    with pytest.raises(AleError, match="7 can't be restored; expected one of 0, 1, 2, 3"):
        restore(place.config, 7, Registry.installed(), said.append, 1.0)


def test_a_running_loop_restores_when_it_is_asked(place: Place) -> None:
    place.write()
    place.give(*BETTER)
    asked: list[Any] = []

    def restored() -> bool:
        if (1, 0.8) in place.served and not asked:
            asked.append(ask(place.directory, 0))
        found = answered(place.directory)
        return bool(asked) and found is not None and found.id == asked[0].id

    place.run(restored)
    assert place.verdicts == [(1, "deployed"), (0, "restored")]
    assert place.served == [(0, 0.5), (1, 0.8), (0, 0.5)]


def test_a_version_that_was_not_decided_on_is_refused_when_an_earlier_one_is_restored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write()
    place.give(*BETTER)
    place.run(lambda: place.decisions)
    hold = place.folder / "HOLD"
    hold.touch()
    monkeypatch.setenv("HOLD", str(hold))
    place.give(*BETTER)
    process = place.start("loop.yaml")
    wait_for((place.directory / "checkpoints" / "00001").exists)
    process.kill()
    process.wait()
    hold.unlink()
    restore(place.config, 0, Registry.installed(), place.said.append, 1.0)
    assert place.decisions[1].reason == "an earlier version was restored"
    place.give(*BETTER)
    place.run(lambda: len(place.decisions) == 4)
    decided = [(1, "deployed"), (2, "refused"), (0, "restored"), (3, "deployed")]
    assert place.verdicts == decided
    assert place.served[-1] == (3, 0.8)


def test_a_version_that_is_damaged_is_not_restored_and_the_loop_continues(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        for reward in (*BETTER, *BETTER):
            giver.give(reward)
        place.run(lambda: len(place.decisions) == 2)
        (place.directory / "checkpoints" / "00000" / "state.json").write_text("{")
        request = ask(place.directory, 1)
        for _ in range(4):
            giver.give(0.6)
        place.run(lambda: len(place.decisions) == 3)
    found = answered(place.directory)
    assert found is not None
    assert found.id == request.id
    assert "00000 is damaged" in found.error
    assert place.verdicts == [(1, "deployed"), (2, "deployed"), (3, "deployed")]
    assert place.served[-1] == (3, 1.2)


def test_a_damaged_request_to_restore_is_named(place: Place) -> None:
    place.write()
    place.run(lambda: place.served)
    for damaged in (b"x", b'"\xff"'):
        (place.directory / "restore.json").write_bytes(damaged)
        with pytest.raises(StoreError, match=r"restore\.json is damaged: .*; remove it"):
            run(place.config, Registry.installed(), place.said.append)


def test_what_was_asked_first_does_not_undo_what_was_restored_later(place: Place) -> None:
    place.write()
    with place.recording() as giver:
        for reward in (*BETTER, *BETTER):
            giver.give(reward)
        place.run(lambda: len(place.decisions) == 2)
    ask(place.directory, 1)
    restore(place.config, 0, Registry.installed(), place.said.append, 1.0)
    n = len(place.served)
    place.give(*BETTER)
    place.run(lambda: len(place.decisions) == 4)
    assert place.verdicts[2:] == [(0, "restored"), (3, "deployed")]
    assert (1, 0.8) not in place.served[n:]


def test_old_versions_and_refused_ones_are_removed(place: Place) -> None:
    place.write({"keep": 2})
    with place.recording() as giver:
        for reward in (*BETTER, *WORSE, *BETTER, *BETTER):
            giver.give(reward)
        place.run(lambda: len(place.decisions) == 4)
    assert [each for each, what in place.verdicts if what == "deployed"] == [1, 3, 4]
    left = sorted(path.name for path in (place.directory / "checkpoints").iterdir())
    assert left == ["00002", "00003", "initial"]


def test_servers_that_are_down_get_the_version_when_they_answer(place: Place) -> None:
    place.write()
    down = place.folder / "DOWN"
    down.touch()
    place.give(*BETTER)
    place.run(lambda: place.decisions)
    assert place.served == []
    assert sum("do not have version 0 yet" in each for each in place.said) == 1
    down.unlink()
    place.run(lambda: place.served)
    assert place.served == [(1, 0.8)]


def test_a_run_that_samples_for_ever_is_a_source(place: Place) -> None:
    place.write({"gate": {"threshold": -9.0}})
    train = json.loads((place.folder / "train.yaml").read_text())
    run = {"steps": 1000000, "rollouts": 2, "schedule": "stream", "stop_after_broken": None}
    sample = {**train, "trainer": None, "evaluation": None, "run": run}
    (place.folder / "sample.yaml").write_text(json.dumps(sample))
    sampling = place.start_run("sample.yaml", "--directory", "seen/sampled")
    try:
        place.run(lambda: len(place.decisions) >= 2)
    finally:
        sampling.kill()
        sampling.wait()
    found = {each.metadata["from"]["run"] for each in learned_from(place)}
    assert found == {"sampled"}


def learned_from(place: Place) -> list[Episode]:
    return [each for each in RunReader(place.directory).episodes if each.split == "train"]


def test_mistakes_are_named_and_nothing_is_started(place: Place) -> None:
    for options, message in (
        ({"train_window": "2-6"}, "expected hours such as 22:30-06:00"),
        ({"train_window": "02:00-02:00"}, "has no length"),
        ({"time_zone": "Mars"}, "expected a time zone"),
        ({"train": "trian.yaml"}, r"yaml:1: train: no such file: .*\n.*did you mean 'train.yaml'?"),
        ({"episode": []}, "did you mean 'episodes'?"),
        ({"sreve": {}}, "did you mean 'serve'?"),
        ({"serve": {"type": "fiel", "path": "."}}, ":1: serve.type: .*\n.*did you mean 'file'?"),
        ({"serve": {"type": "file", "pth": "."}}, "yaml:1: serve.pth: unknown option"),
    ):
        place.write(options)
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            place.run(lambda: False)
        assert not place.directory.exists()
    config_of_a_run = place.folder / "run.yaml"
    config_of_a_run.write_text("tasks: {type: tbp, path: tasks}\nllm: {type: toy}\n")
    with pytest.raises(InputError, match="this is a config of `ale run`") as refused:
        read_config(config_of_a_run)
    assert len(refused.value.problems) == 1
    place.write(tasks_per_step=None)
    with pytest.raises(InputError, match="how many groups a step learns from"):
        place.run(lambda: False)
    assert not place.directory.exists()


def test_a_directory_that_is_no_loops_is_named_on_its_line_of_the_config(place: Place) -> None:
    place.write()
    with pytest.raises(InputError, match=r"loop\.yaml:1: directory: the loop was never started"):
        read_config(place.config, started=True)
    place.directory.mkdir()
    (place.directory / "notes.txt").write_text("of another kind")
    with pytest.raises(InputError, match=r"loop\.yaml:1: directory: .*loop exists, and is not"):
        place.run(lambda: False)
    assert [each.name for each in place.directory.iterdir()] == ["notes.txt"]


def test_a_mistake_in_serve_of_a_loop_that_exists_is_named_before_it_continues(
    place: Place,
) -> None:
    place.write()
    place.run(lambda: place.served)
    events = len(list(RunReader(place.directory).events()))
    place.write({"serve": {"type": "file", "pth": "."}})
    with pytest.raises(InputError, match=r"serve\.pth: unknown option"):
        run(place.config, Registry.installed(), place.said.append)
    assert len(list(RunReader(place.directory).events())) == events


def test_a_model_that_can_not_be_built_is_reported_on_its_line_of_the_config(place: Place) -> None:
    place.write({"serve": {"type": "file", "path": "unusable"}})
    with pytest.raises(InputError, match=r"loop\.yaml:1: serve\.path: can't be used"):
        run(place.config, Registry.installed(), place.said.append)


def test_workers_elsewhere_which_follow_newer_versions_only_are_refused(place: Place) -> None:
    place.write(None, {"executor": {"type": "elsewhere"}})
    with pytest.raises(InputError, match="the loop goes back to an earlier version"):
        place.run(lambda: False)
    assert not place.directory.exists()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"registry": "servers"}, "registry"),
        ({"urls": ["http://a/v1", "http://b/v1/"]}, "urls"),
    ],
)
def test_servers_of_the_agents_are_not_those_of_the_evaluation(
    place: Place, given: dict[str, Any], key: str
) -> None:
    """They would get every version before it is decided on."""

    def write(of_training: dict[str, Any], of_agents: dict[str, Any]) -> None:
        path = str(place.folder / "served")
        llm = {"type": "file", "path": path, **of_training}
        place.write({"serve": {"type": "file", "path": path, **of_agents}}, {"llm": llm})

    more = {"urls": ["http://b/v1"]} if key == "urls" else given
    write(given, more)
    with pytest.raises(InputError, match=f"serve.{key}: .*names these servers too"):
        place.run(lambda: False)
    assert not place.directory.exists()
    write({**given, "adapter": "trial"}, {**more, "adapter": "mine"})
    place.run(lambda: place.served)
    write(given, more)
    with pytest.raises(InputError, match=f"serve.{key}: "):
        place.run(lambda: False)
