"""`ale show` and `ale show credit` on stored runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import Result

from ale._store.codec import encode
from ale.errors import InputError
from ale.runs import RunReader, add_note, lock
from ale.testing.builders import episode, turn
from ale.types import Chunk, Failure, Note, Score, ScoredEpisode, StepScore, Task, whole_turn
from ale_look.inspect.transcript import transcript

Ale = Callable[..., Result]
Write = Callable[..., Path]


@pytest.fixture
def run(write: Write, tmp_path: Path) -> str:
    """Two tasks, two rollouts each; one episode failed, one broke."""
    done = turn("I touch it.", calls=[("shell", '{"command": "touch done"}')])
    held = Score(criterion="done", passed=True, value=1.0, detail="file")
    first = evolve(episode(1.0, done, turn("Done."), task_id="a"), scores=(held,))
    second = episode(0.0, done, task_id="a", rollout=1)
    failure = Failure(stage="sandbox", kind="SandboxError", message="no space on port :40001")
    broken = evolve(episode(None, task_id="b"), failure=failure)
    same = Failure(stage="sandbox", kind="SandboxError", message="no space on port :40002")
    again = evolve(episode(None, task_id="b", rollout=1), failure=same)
    outcome = {"outcome": {"outcome": "completed", "seconds": 3.0}}
    return str(write(tmp_path / "demo", [first, second, broken, again], manifest=outcome))


def test_a_run_is_shown_by_task_with_causes_of_broken_episodes(ale: Ale, run: str) -> None:
    shown = ale("show", run)
    assert shown.exit_code == 0, shown.output
    assert "demo: completed after 3.0 s" in shown.output
    assert "chunker turns, credit scaled" in shown.output
    assert "success      1 of 2  50.0%" in shown.output
    assert "a          2        1    0.50    1.5       0" in shown.output
    assert "2 x sandbox: SandboxError: no space on port :40001" in shown.output


def test_gradings_that_ran_out_of_time_are_counted_beside_the_broken(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    rows = [episode(0.0, turn("Done."), rollout=i) for i in range(3)]
    late = Score(criterion="python_tests", passed=False, value=0.0, timed_out=True)
    rows[1:] = [evolve(each, scores=(late,)) for each in rows[1:]]
    run = str(write(tmp_path / "run", rows))
    shown = ale("show", run).output
    assert "broken       0\ntimed out    2  (a time limit of the grading; graded)" in shown
    assert ale("report", run).exit_code == 0
    assert "2 ran out of time in grading" in (Path(run) / "report.html").read_text()


def test_contested_passes_and_other_scores_are_told_of(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    rows = [episode(1.0, turn("Done."), rollout=i) for i in range(3)]
    forged = Score(criterion="shell", passed=True, value=1.0, contested=0.0)
    failed = Score(criterion="shell", passed=False, value=0.0, contested=0.0)
    rows[1:] = [evolve(rows[1], scores=(forged,)), evolve(rows[2], scores=(failed,), reward=0.0)]
    run = write(tmp_path / "run", rows)
    assert "regraded" not in ale("show", str(run)).output
    for name in ("1", "2"):
        (run / "regraded" / name).mkdir(parents=True)
        line = {"episode": rows[0].id, "old": 1, "new": 0.25, "problem": None}
        (run / "regraded" / name / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    shown = ale("show", str(run)).output
    said = "a pass that used files the agent changed; what it counts as: run.contested"
    assert f"contested    2  ({said})\n" in shown
    newest = run / "regraded/2/episodes.jsonl"
    newer = f"by newer scores, which are in {newest}\n"
    without = "             2 episodes without a newer score in it\n"
    assert f"regraded     0 of 1 succeed {newer}{without}" in shown
    assert f"  regraded  reward 0.250 {newer}" in ale("show", str(run), rows[0].id).output
    assert "regraded" not in ale("show", str(run), rows[1].id).output
    (run / "regraded/2/episodes.jsonl").write_text("{")
    assert f"{newest}: " in str(ale("show", str(run)).exception)


def test_damaged_sandboxes_are_counted_beside_the_broken(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    rows = [episode(0.0, turn("Done."), rollout=i) for i in range(3)]
    rows[1:] = [evolve(each, metadata={"damaged": "no shell"}) for each in rows[1:]]
    run = str(write(tmp_path / "run", rows))
    shown = ale("show", run).output
    assert "broken       0\ndamaged      2  (the agent damaged its sandbox; graded)" in shown
    assert ale("report", run).exit_code == 0
    assert "in 2 the agent damaged its sandbox" in (Path(run) / "report.html").read_text()


def test_an_episode_on_several_lines_is_counted_once(ale: Ale, run: str) -> None:
    assert "repeated" not in ale("show", run).output
    file = Path(run) / "episodes.jsonl"
    first = file.read_bytes().splitlines(keepends=True)[0]
    file.write_bytes(file.read_bytes() + first)
    shown = ale("show", run).output
    assert "success      1 of 2  50.0%" in shown
    assert "repeated     1 line of episodes.jsonl has an episode that a later line has" in shown
    assert "the first of 2 episodes" in ale("show", run, "a").output


def test_episodes_that_a_truncated_file_lacks_are_counted(ale: Ale, run: str) -> None:
    manifest, file = Path(run) / "manifest.json", Path(run) / "episodes.jsonl"
    ended = {"outcome": "completed", "seconds": 1.0, "n_graded": 2, "n_broken": 0}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "outcome": ended}))
    assert "missing" not in ale("show", run).output
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    assert "missing      1 episode that the run had when it ended" in ale("show", run).output
    assert ale("report", run).exit_code == 0
    page = (Path(run) / "report.html").read_text()
    assert "Missing: 1 episode that the run had when it ended" in page
    listed = ale("runs", "list", str(Path(run).parent), "--store", f"{run}.sqlite").output
    assert "missing: episodes that episodes.jsonl lacks" in listed
    compared = ale("runs", "compare", run, run).output
    assert compared.count("1 (episodes.jsonl lacks them)") == 2


def test_the_model_is_named(ale: Ale, run: str) -> None:
    manifest = json.loads((Path(run) / "manifest.json").read_text())
    manifest["config"]["llm"] = {"type": "ale-llm-openai/openai", "model": "qwen3"}
    (Path(run) / "manifest.json").write_text(json.dumps(manifest))
    assert "llm openai qwen3" in ale("show", run).output
    assert ale("report", run).exit_code == 0
    assert "openai qwen3" in (Path(run) / "report.html").read_text()
    assert "qwen3" in ale("runs", "compare", run, run).output
    listed = ale("runs", "list", str(Path(run).parent), "--store", f"{run}.sqlite").output
    header, row = listed.splitlines()[:2]
    assert header.split().index("model") == 3
    assert " qwen3 " in row


def test_the_newest_run_has_a_name_for_every_command_that_takes_runs(
    ale: Ale, run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs" / "nested").mkdir(parents=True)
    Path(run).rename(tmp_path / "runs" / "nested" / "demo")
    monkeypatch.chdir(tmp_path)
    for command in (
        ("show",),
        ("report",),
        ("runs", "tag"),
        ("runs", "list"),
        ("runs", "episodes"),
    ):
        store = ("--store", "s.sqlite") if command[-1] in ("list", "episodes") else ()
        done = ale(*command, "latest", *store)
        assert done.exit_code == 0, (command, done.output)


def test_a_run_that_trains_is_shown_by_step_and_evaluation(
    ale: Ale, write_trained: Write, tmp_path: Path
) -> None:
    path = write_trained(tmp_path / "run", steps=12)
    reader = RunReader(path)
    steps = [each for each in reader.events() if each["event"] == "step_finished"]
    lines = ale("show", str(path)).output.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.split()[:2] == ["step", "reward"])
    assert lines[begin].split()[:6] == ["step", "reward", "success", "loss", "tokens", "broken"]
    rows = [line.split() for line in lines[begin + 1 : begin + 13]]
    assert [row[0] for row in rows] == [str(number) for number in range(12)]
    assert rows[3][3] == f"{steps[3]['metrics']['loss']:.3f}"
    evaluated = reader.index().steps("evaluation")
    assert len([line for line in lines if line.startswith("held out     ")]) == len(evaluated)
    after = {step - 1 for step in evaluated if step} & {*range(12)}
    assert after
    assert {number for number, row in enumerate(rows) if row[-1].endswith("%")} >= after
    assert not any(line.startswith("task ") for line in lines)
    assert any(
        line.startswith("task ") for line in ale("show", str(path), "--all").output.split("\n")
    )


def test_a_row_of_a_step_has_the_return_and_the_kl_that_its_trainer_reports(
    ale: Ale, write_trained: Write, tmp_path: Path
) -> None:
    path = write_trained(tmp_path / "run", steps=12)
    assert "return" not in ale("show", str(path)).output
    step = [each for each in RunReader(path).events() if each["event"] == "step_finished"][3]
    for kl in ("kl_rollout", "kl_sampler", "kl"):
        metrics = {**step["metrics"], "mean_return": 0.3125, kl: 0.0021}
        with (path / "events.jsonl").open("a") as file:
            file.write(json.dumps({**step, "metrics": metrics}) + "\n")
        lines = [line.split() for line in ale("show", str(path)).output.splitlines()]
        titles = ["step", "reward", "success", "return", "loss", "kl", "tokens", "broken"]
        begin = next(i for i, line in enumerate(lines) if line[:8] == titles)
        assert (lines[begin + 4][3], lines[begin + 4][5]) == ("0.312", "0.0021")
        assert (lines[begin + 5][3], lines[begin + 5][5]) == ("-", "-")


def test_groups_that_lack_an_episode_are_counted_once_for_each_step(
    ale: Ale, write_trained: Write, tmp_path: Path
) -> None:
    path = write_trained(tmp_path / "run", steps=12)
    assert "short groups" not in ale("show", str(path)).output
    steps = [each for each in RunReader(path).events() if each["event"] == "step_finished"]
    with (path / "events.jsonl").open("a") as file:
        for step, n in ((3, 9), (3, 2), (5, 1)):
            metrics = {**steps[step]["metrics"], "groups_short": n}
            file.write(json.dumps({**steps[step], "metrics": metrics}) + "\n")
    shown = ale("show", str(path)).output
    assert "short groups 3  (learned from with fewer episodes, in 2 steps" in shown


def test_of_many_steps_the_last_are_shown(ale: Ale, write_trained: Write, tmp_path: Path) -> None:
    path = write_trained(tmp_path / "run", steps=70)
    lines = ale("show", str(path)).output.splitlines()
    assert "10 earlier steps; --all lists every step and task" in lines
    assert len(lines) < 100
    assert any(line.split()[:1] == ["69"] for line in lines)


def test_turns_are_of_graded_episodes_as_in_the_report(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    done, four = episode(1.0, turn("Done.")), [turn("tried")] * 4
    failure = Failure(stage="sandbox", kind="SandboxError", message="gone")
    broken = [episode(None, *four, rollout=1), episode(None, *four, task_id="never")]
    rows = [done, *(evolve(each, failure=failure) for each in broken)]
    lines = ale("show", str(write(tmp_path / "run", rows))).output.splitlines()
    assert ["demo", "1", "1", "1.00", "1.0", "1"] in map(str.split, lines)
    assert ["never", "0", "0", "-", "-", "1"] in map(str.split, lines)


def test_thousands_of_tasks_do_not_hide_the_summary(ale: Ale, write: Write, tmp_path: Path) -> None:
    tasks = [f"t{number:04}" for number in range(1200)]
    run = str(write(tmp_path / "run", [episode(1.0, turn("Done."), task_id=t) for t in tasks]))
    shown = ale("show", run).output
    assert len(shown.splitlines()) < 80
    assert "success      1200 of 1200" in shown
    assert "\nand 1,140 more; --all lists every task\n" in shown
    assert all(f"\n{task} " in ale("show", run, "--all").output for task in tasks[::100])
    assert "more; --all" not in ale("show", run, "--all").output
    assert ale("show", run, "t0000", "--all").exit_code == 2


def test_a_huge_reward_has_few_digits(ale: Ale, write: Write, tmp_path: Path) -> None:
    score = Score(criterion="size", passed=False, value=1e308, unbounded=True)
    run = str(write(tmp_path / "run", [evolve(episode(1e308, turn("big")), scores=(score,))]))
    lines = ale("show", run).output.splitlines()
    assert ["demo", "1", "0", "1e+308", "1.0", "0"] in map(str.split, lines)
    shown = ale("show", run, "demo").output
    assert ": reward 1e+308; agent ended" in shown
    assert "failed  size  1e+308 x 1" in shown
    assert "0" * 10 not in shown + ale("show", "credit", run, "--scheme", "scaled").output


def test_why_a_criterion_failed_is_not_cut_off(ale: Ale, write: Write, tmp_path: Path) -> None:
    command = "\n".join(f"test -f file-{number} || exit 1" for number in range(40))
    detail = f"'{command}': exit code 1: file-7 is missing"
    score = Score(criterion="checks", passed=False, value=0.0, detail=detail)
    run = str(write(tmp_path / "run", [evolve(episode(0.0, turn("Done.")), scores=(score,))]))
    (line,) = [each for each in ale("show", run, "demo").output.splitlines() if "failed" in each]
    assert line.startswith("  failed  checks  0.00 x 1  'test -f file-0")
    assert line.endswith("exit code 1: file-7 is missing")
    assert len(line) < 440
    shown = ale("show", run, "demo", "--full").output
    assert all(f"test -f file-{number} " in shown for number in range(40))


@pytest.mark.parametrize("full", [False, True])
def test_control_characters_do_not_reach_the_terminal(full: bool) -> None:
    """A model's text could clear the screen, or write to the clipboard."""
    hostile = "\x1b[2J\x1b]52;c;Zm9v\x07\x9b1m\u202e"
    said = turn(hostile, calls=[(hostile, hostile)])
    failure = Failure(stage="agent", kind="LLMError", message=hostile, traceback=hostile)
    score = Score(criterion="size", passed=False, value=0.0, detail=hostile)
    broken = evolve(episode(None, said), failure=failure, scores=(score,))
    shown = transcript(broken, None, full=full)
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []
    assert shown.count("\u241b]52;c;Zm9v\u2407") == 5 + full


def test_a_run_shows_its_evaluations_by_temperature(ale: Ale, write: Write, tmp_path: Path) -> None:
    one = evolve(episode(0.0, turn("tried")), split="evaluation")
    rows = [one, evolve(one, id="other", reward=1.0, temperature=0.0)]
    shown = ale("show", str(write(tmp_path / "run", rows)))
    assert "held out     0 of 1" in shown.output
    assert "held out, greedy  1 of 1" in shown.output
    assert "(held out, greedy)" in shown.output


@pytest.mark.parametrize(
    ("goals", "label", "more", "curve"),
    [
        (["new"], "held out", "", "held-out tasks"),
        (["old"], "evaluation", ", trained on", "tasks it trains on"),
        (["old", "new"], "evaluation", "", "evaluation tasks"),
    ],
)
def test_an_evaluation_on_tasks_that_are_trained_on_is_not_called_held_out(
    goals: list[str],
    label: str,
    more: str,
    curve: str,
    ale: Ale,
    write_trained: Write,
    tmp_path: Path,
) -> None:
    path = write_trained(tmp_path / "run", steps=6)
    for file, named in (("tasks", ["old"]), ("evaluation_tasks", goals)):
        tasks = [Task(id=f"{file}-{goal}", goal=goal) for goal in named]
        (path / f"{file}.jsonl").write_bytes(b"".join(encode(task) + b"\n" for task in tasks))
    shown = ale("show", str(path), "--all").output
    (line,) = [each for each in shown.splitlines() if "after 5 steps" in each]
    assert line.startswith(f"{label:<13}")
    assert line.endswith(f"after 5 steps, sampled{more}")
    assert f"{label}{more} after it" in shown
    assert ("held out" in shown) is (label == "held out")
    assert ale("report", str(path)).exit_code == 0
    report = (path / "report.html").read_text()
    assert f'"{curve}"' in report
    assert f"success {label}{more}, step 5" in report
    assert ("held out" in report or "held-out" in report) is (label == "held out")


def test_of_several_evaluations_the_last_is_shown(ale: Ale, write: Write, tmp_path: Path) -> None:
    one = evolve(episode(0.0, turn("tried")), split="evaluation", id="first")
    rows = [one, evolve(one, id="later", reward=1.0, step=5)]
    shown = ale("show", str(write(tmp_path / "run", rows)))
    assert "held out, step 5  1 of 1" in shown.output
    assert "(held out, step 5)" in shown.output
    assert "step 0" not in shown.output


def test_rollouts_of_one_task_are_not_as_many_trials(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    rows = [
        evolve(
            episode(float(task < 2), turn("tried"), task_id=f"t{task}"), id=f"{task}{i}", rollout=i
        )
        for task in range(3)
        for i in range(8)
    ]
    shown = ale("show", str(write(tmp_path / "run", rows)))
    assert "success      16 of 24  66.7%  (95% interval 20.8 to 93.9)" in shown.output


def test_what_an_expert_did_is_not_the_success_of_the_policy(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    forced = turn("given")
    forced = evolve(forced, completion=evolve(forced.completion, forced=True))
    rows = [
        evolve(episode(0.0, turn("tried")), id="own"),
        evolve(episode(1.0, forced), id="shown", start="a demonstration"),
        evolve(episode(1.0, forced, turn("tried")), id="started", start="later"),
    ]
    shown = ale("show", str(write(tmp_path / "run", rows)))
    assert "success      0 of 1" in shown.output
    assert "demonstration  1 of 1" in shown.output
    assert "expert start  1 of 1" in shown.output


def test_an_episode_is_shown_turn_by_turn_with_its_credit(ale: Ale, run: str) -> None:
    shown = ale("show", run, "a")
    assert "0-a-0: reward 1.000; agent ended: finished" in shown.output
    assert "passed  done  1.00 x 1  file" in shown.output
    assert "chunk 0  turn  reward +0.000  return +1.000  scaled weight +1.000" in shown.output
    assert '> shell {"command": "touch done"}' in shown.output
    assert "sandbox: SandboxError: no space" in ale("show", run, "0-b-0").output


def test_an_episode_is_shown_with_its_notes(ale: Ale, run: str) -> None:
    first = next(iter(RunReader(Path(run)).episodes))
    for note in (
        Note(id="a", at=9e9, episode=first.id, verdict="bad", label="odd", comment="It\nstops."),
        Note(id="b", at=9e9, episode=first.id, turn=0, comment="Why\x1b[2J?", by="Ada"),
        Note(id="c", at=1.0, episode="0-gone-0", label="elsewhere"),
    ):
        add_note(Path(run), note)
    shown = ale("show", run, first.id).output
    assert "\n  note  bad, odd: It stops.\n" in shown
    assert "  turn 0" in shown.split("  note  Why\\x1b[2J? (Ada)\n")[0]
    assert "elsewhere" not in shown
    with (Path(run) / "notes.jsonl").open("a") as file:
        file.write("{")
    assert "notes.jsonl:4" in ale("show", run, first.id).output


def test_of_several_rollouts_the_others_are_named(ale: Ale, run: str) -> None:
    first = ale("show", run, "a").output.splitlines()[0]
    assert first == (
        f"0-a-0, the first of 2 episodes that match 'a'; ale show {run} ID shows another: 0-a-1"
    )
    assert "the first of" not in ale("show", run, "0-a-1").output


def test_an_episode_shows_how_its_start_was_restored() -> None:
    plain = evolve(episode(1.0, turn("Done."), task_id="a"), start="p1of2")
    assert "start" not in transcript(plain, None, full=False)
    forked = evolve(plain, metadata={"restored": "fork"})
    assert "\n  start p1of2 by fork\n" in transcript(forked, None, full=False)
    metadata = {"restored": "replay", "not_forked": "processes are still running: sleep"}
    shown = transcript(evolve(plain, metadata=metadata), None, full=False)
    assert "  start p1of2 by replay, not forked: processes are still running: sleep" in shown


def test_an_unknown_episode_suggests_the_nearest_id(ale: Ale, run: str) -> None:
    compared = ("show", "credit", run, "--scheme", "scaled", "--episode", "0-c-0")
    for arguments in (("show", run, "0-c-0"), compared):
        error = ale(*arguments).exception
        assert isinstance(error, InputError)
        assert "no episode '0-c-0' among 4" in str(error)
        assert "did you mean '0-" in str(error)


def test_two_schemes_are_compared_chunk_by_chunk(ale: Ale, run: str) -> None:
    done = ale("show", "credit", run, "--scheme", "scaled", "--scheme", "scaled:scale=0.5")
    assert done.exit_code == 0, done.output
    assert "chunk  kind   scaled  scaled:scale=0.5  what it did" in done.output
    assert "    0  turn  +1.0000           +0.5000  I touch it. shell" in done.output
    one, half = done.output.splitlines()[-2:]
    assert one.split() == ["scaled", "2", "3", "0.6667", "33.3%", "0"]
    assert half.split() == ["scaled:scale=0.5", "2", "3", "0.3333", "33.3%", "0"]


def test_without_a_scheme_the_credit_is_the_runs_own_with_its_options(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    config = {"chunker": {"type": "turns"}, "credit": {"type": "scaled", "scale": 0.5}}
    rows = [episode(1.0 - n, turn("tried"), rollout=n) for n in (0, 1)]
    path = str(write(tmp_path / "run", rows, manifest={"config": config}))
    done = ale("show", "credit", path)
    assert done.exit_code == 0, done.output
    assert "0  turn  +0.5000  tried" in done.output
    del config["credit"]
    bare = ale("show", "credit", str(write(tmp_path / "bare", rows, manifest={"config": config})))
    assert "this run trained nothing, and had no credit" in str(bare.exception)
    assert "--scheme NAME" in str(bare.exception)


def test_one_episode_can_be_compared_and_a_broken_one_has_no_credit(ale: Ale, run: str) -> None:
    one = ale(
        "show", "credit", run, "--scheme", "scaled", "--episode", "0-a-1", "--chunker", "turns"
    )
    assert one.output.startswith("0-a-1: reward 0.000, 1 chunk\n")
    broken = ale("show", "credit", run, "--scheme", "scaled", "--episode", "b")
    assert broken.output == "0-b-0 is broken: it has no reward and so no credit\n"


def test_an_evaluation_has_no_credit_though_it_is_graded(
    ale: Ale, write: Write, tmp_path: Path
) -> None:
    held = evolve(episode(1.0, turn("Done."), task_id="e"), split="evaluation")
    run = str(write(tmp_path / "run", [held], credited=False))
    one = ale("show", "credit", run, "--scheme", "scaled", "--episode", "e").output
    assert one == f"{held.id} is of an evaluation: nothing learns from it, so it has no credit\n"
    row = ale("show", "credit", run, "--scheme", "scaled").output.splitlines()[-1]
    assert row.split() == ["scaled", "0", "0", "-", "-", "0"]


def test_a_missing_run_is_an_input_error(ale: Ale, tmp_path: Path) -> None:
    error = ale("show", str(tmp_path / "absent")).exception
    assert isinstance(error, InputError)
    assert "no such directory" in str(error)


def test_a_run_that_is_running_is_shown_as_such(ale: Ale, run: str) -> None:
    manifest = Path(run) / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**facts, "outcome": None}))
    assert ": interrupted: its process is gone" in ale("show", run).output
    descriptor = lock(Path(run))
    try:
        assert f": running, in process {os.getpid()}\n" in ale("show", run).output
    finally:
        os.close(descriptor)


def test_the_help_of_ale_imports_only_the_command_line() -> None:
    code = (
        "import sys, click\nbefore = {*sys.modules}\n"
        "from ale_look.plugin import ale_commands\n"
        "for commands in ale_commands().values():\n"
        "    [command.get_short_help_str() for command in commands]\n"
        "new = {*sys.modules} - before\n"
        "print([m for m in new if m.startswith(('ale.types', 'ale.runs', 'ale.strict', 'msgspec',"
        " 'yaml', 'cattrs', 'ale_look.inspect')) and m not in "
        "('ale_look.inspect', 'ale_look.inspect.options', 'ale_look.inspect.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_traceback_of_a_broken_episode_is_shown_in_full_only() -> None:
    trace = 'Traceback (most recent call last):\n  File "mine.py", line 7, in grade\nKeyError: 1\n'
    failure = Failure(stage="grading", kind="KeyError", message="1", traceback=trace)
    broken = evolve(episode(None), failure=failure)
    short, full = (transcript(broken, None, full=each) for each in (False, True))
    assert "  broke in grading: KeyError: 1\n  egress" in short
    assert "KeyError: 1\n    Traceback" in full
    assert '\n      File "mine.py", line 7, in grade\n    KeyError: 1\n  egress' in full


def test_an_episode_shows_the_scores_of_its_chunks() -> None:
    one = episode(1.0, turn("First."), turn("Second."))
    chunks = tuple(
        Chunk(index=i, kind="turn", spans=(whole_turn(i, each),))
        for i, each in enumerate(one.turns)
    )
    judge = ScoredEpisode(
        episode_id=one.id,
        scorer="judge",
        chunks=chunks,
        scores=(StepScore(value=0.25, text="It is\nwrong."), StepScore(abstained="HTTP 500")),
    )
    said = ScoredEpisode(
        episode_id=one.id, scorer="feedback", chunks=chunks[1:], scores=(StepScore(value=1.0),)
    )
    shown = transcript(one, None, full=False, scored=[judge, said]).splitlines()
    assert [line for line in shown if line.startswith("  score")] == [
        "  score  judge  0.25  It is wrong.",
        "  score  feedback  abstains  not scored",
        "  score  judge  abstains  HTTP 500",
        "  score  feedback  1.00",
    ]


def test_a_misspelt_view_is_named(ale: Ale) -> None:
    refused = ale("show", "credt", "latest")
    assert refused.exit_code == 2
    assert "no view or run 'credt'; did you mean 'credit'?" in refused.output
