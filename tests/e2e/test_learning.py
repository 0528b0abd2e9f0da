"""A policy learns: sampled, graded in real sandboxes, credited, trained, and sampled again."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ale_servers.program import free_port

pytestmark = pytest.mark.needs("torch")

KINDS = ["write", "copy", "delete"]


@pytest.fixture
def config(workshop: Any) -> str:
    from ale_tasks_shell import corpus

    text = "".join(dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS))))
    workshop.write("corpus.txt", text)
    tasks = {"type": "shell", "length": 1, "kinds": KINDS}
    held_out = {**tasks, "seed": 2, "count": 4, "split": "held_out_parameters"}
    workshop.config(
        tasks={**tasks, "seed": 1, "count": 64},
        llm={
            "type": "policy",
            "tiny": {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128},
            "max_tokens": 24,
        },
        agent={"type": "iflow", "system_prompt": "", "max_turns": 2},
        credit={"type": "ipa", "failure_reward": -0.2},
        starts={"type": "initial", "demonstrations": 3, "until": 1.0, "probes": 2},
        trainer={
            "type": "policy",
            "objective": "ipa",
            "lr": 3e-3,
            "imitation": {"when": "always", "weight": 1.0},
        },
        evaluation={"tasks": held_out, "every": 10},
        run={"steps": 5, "tasks_per_step": 4, "rollouts": 2, "concurrency": 4},
    )
    return "run.yaml"


def steps(workshop: Any, run: Path, event: str = "step_finished") -> list[dict[str, Any]]:
    return [line for line in workshop.lines("events.jsonl", run) if line["event"] == event]


def test_a_policy_imitates_and_then_samples_by_itself(workshop: Any, config: str) -> None:
    done = workshop.succeeds("run", config)
    events = steps(workshop, workshop.run)
    assert [line["step"] for line in events] == [0, 1, 2, 3, 4]
    # A step in which no episode has a signal makes no update and reports no loss.
    imitated = [line["metrics"].get("loss_imitation", 0.0) for line in events]
    assert imitated[2] < 0.95 * imitated[0], "two updates on whole solutions teach something"
    assert imitated[3] == imitated[4] == 0.0, "nothing is forced after the demonstrations"
    episodes = workshop.episodes()
    forced = {
        name: {turn["completion"]["forced"] for turn in episode["trajectory"]["turns"]}
        for name, episode in episodes.items()
    }
    assert all(answered == {True} for name, answered in forced.items() if "@demo" in name)
    assert all(answered == {False} for name, answered in forced.items() if "@demo" not in name)
    assert all(e["reward"] == 1.0 for name, e in episodes.items() if "@demo" in name)
    for name, turns in workshop.sampled(workshop.run).items():
        step = int(name.removeprefix("evaluation-").split("-")[0])
        version = min(step, 3)  # own turns without a call earn no credit: no update after step 2
        assert {v for turn in turns for v in turn["policy_versions"]} == {version}
        assert all(len(turn["output_ids"]) == len(turn["logprobs"]) for turn in turns)
    measured = steps(workshop, workshop.run, "evaluation_finished")
    assert [(line["step"], line["temperature"], line["n_graded"]) for line in measured] == [
        (step, temperature, 4) for step in (0, 3, 5) for temperature in (0.0, None)
    ]
    assert done.out.count("on held-out tasks, greedy") == 3
    assert done.out.count("on held-out tasks, sampled") == 3
    assert workshop.left_behind() == []


def test_solutions_are_imitated_and_their_episodes_are_the_experts_of_another_run(
    workshop: Any, config: str
) -> None:
    supervised = ("--set", "trainer={type: sft, lr: 3.0e-3}", "--set", "run.steps=3")
    workshop.succeeds("run", config, *supervised)
    before = workshop.run
    losses = [line["metrics"]["loss_imitation"] for line in steps(workshop, before)]
    assert losses[2] < 0.95 * losses[0], "two updates on whole solutions teach something"

    # The same seed draws the same tasks: each of them has an episode in the run before.
    starts = f"{{type: parallel, anchors: 1, expert: episodes, expert_run: {before}}}"
    stored = ("--set", f"starts={starts}", "--set", "starts.demonstrations=2")
    fallback = ("--set", "trainer.imitation.when=fallback", "--set", "run.steps=3")
    workshop.succeeds("run", config, *stored, *fallback)
    after = workshop.runs[-1]
    events = [line["metrics"] for line in steps(workshop, after)]
    assert events[1]["loss_imitation"] < events[0]["loss_imitation"]
    shown, own = {}, []
    for name, episode in workshop.episodes(after).items():
        if "@demo" in name:
            shown[name] = answered(episode)
        elif not name.startswith("evaluation-"):
            own.append(episode)
    assert len(shown) == 2 * 4
    demonstrated = {name: answered(each) for name, each in workshop.episodes(before).items()}
    assert shown == {name: demonstrated[name] for name in shown}, "to the last turn"
    # Nothing is forced from the beginning: what is imitated is what the expert would have answered.
    assert len(own) == 4 * 2
    assert all(episode["metadata"]["expert_next"]["turn"] == 0 for episode in own)
    solved = {episode["task_id"] for episode in own if episode["reward"] == 1.0}
    assert len(solved) < 4, "the policy knows next to nothing"
    assert events[2]["next_turns_imitated"] == 2 * (4 - len(solved))
    assert events[2]["loss_imitation"] > 0


def answered(episode: dict[str, Any]) -> list[tuple[bool, list[int]]]:
    completions = [turn["completion"] for turn in episode["trajectory"]["turns"]]
    return [(each["forced"], each["tokens"]["output_ids"]) for each in completions]


def test_a_run_that_was_killed_resumes_to_the_same_policy(workshop: Any, config: str) -> None:
    learning = ("--set", "starts.demonstrations=5")  # so that every step makes an update
    workshop.succeeds("run", config, *learning)
    whole = workshop.run
    running = workshop.start("run", config, *learning)
    workshop.wait_for(lambda: len(workshop.runs) == 2)
    killed = workshop.runs[-1]
    workshop.wait_for(lambda: (killed / "checkpoints" / "00003").exists())
    running.signal(signal.SIGKILL)
    running.process.wait(30)
    workshop.succeeds("run", "--resume", str(killed))
    assert workshop.sampled(killed) == workshop.sampled(whole), "to the bit"
    losses = [
        {line["step"]: line["metrics"]["loss"] for line in steps(workshop, run)}
        for run in (whole, killed)
    ]
    assert losses[0] == losses[1]


def test_a_model_without_token_ids_is_refused_before_anything_starts(workshop: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": []}, trainer={"type": "policy"})
    done = workshop.ale("check", "run.yaml")
    assert done.code == 2
    assert "token ids" in done.text
    assert workshop.runs == []


def test_with_staleness_tokens_are_sampled_from_older_weights_and_record_the_version(
    workshop: Any, config: str
) -> None:
    refused = workshop.ale("check", config, "--set", "run.staleness=1")
    assert refused.code == 2
    assert "trainer.sync: copy" in refused.text
    stale = ("--set", "run.staleness=1", "--set", "trainer.sync=copy")
    refused = workshop.ale("check", config, *stale)
    assert refused.code == 2
    assert "trainer.correction: run.staleness is 1" in refused.text
    explicit = workshop.succeeds("check", config, *stale, "--set", "trainer.correction=none")
    assert explicit.text.count("no objective's importance ratio corrects for staleness") == 1
    corrected = (*stale, "--set", "trainer.old_policy=rollout_version")
    done = workshop.succeeds("run", config, *corrected)
    assert "corrects for staleness" not in done.text
    behind = set()
    for name, turns in workshop.sampled(workshop.run).items():
        if not name.startswith("evaluation-"):
            step = int(name.split("-")[0])
            behind |= {step - version for turn in turns for version in turn["policy_versions"]}
    assert behind == {0, 1}, "never more than one step"
    metrics = [line["metrics"] for line in steps(workshop, workshop.run)]
    assert len(metrics) == 5


def test_without_staleness_a_copy_is_trained_to_the_same_weights(
    workshop: Any, config: str
) -> None:
    few = ("--set", "run.steps=2", "--set", "starts.demonstrations=2", "--set", "run.staleness=0")
    made = []
    for sync in ("same", "copy"):
        workshop.succeeds("run", config, *few, "--set", f"trainer.sync={sync}")
        run = workshop.runs[-1]
        rewards = {name: e["reward"] for name, e in workshop.episodes(run).items()}
        learned = [
            {k: line["metrics"][k] for k in ("loss", "grad_norm", "entropy", "tokens_trained")}
            for line in steps(workshop, run)
        ]
        made.append((workshop.sampled(run), rewards, learned))
    assert made[0] == made[1], "to the bit"
    ids, _, learned = made[0]
    assert len(learned) == 2
    versions = {v for turns in ids.values() for turn in turns for v in turn["policy_versions"]}
    assert versions == {0, 1, 2}, "what was learned is sampled from"


def torchrun(workshop: Any, *arguments: str) -> Any:
    ranks = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = [sys.executable, "-m", *ranks, "-m", "ale_trainer_policy.ranks", *arguments]
    return subprocess.run(
        command,
        cwd=workshop.folder,
        env=workshop.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_torchrun_trains_as_one_process_does(workshop: Any, config: str) -> None:
    few = ("--set", "run.steps=2", "--set", "evaluation.every=2", "--set", "trainer.sync=copy")
    workshop.succeeds("run", config, *few)
    one = steps(workshop, workshop.run)
    few += ("--set", "trainer.processes=2", "--set", "trainer.saving=background")
    few += ("--on", "torchrun")
    workshop.succeeds("launch", config, *few)
    two = steps(workshop, workshop.runs[-1])
    assert [line["step"] for line in two] == [0, 1]
    for mine, theirs in zip(one, two, strict=True):
        for name in ("loss_imitation", "tokens_trained"):
            assert theirs["metrics"][name] == pytest.approx(mine["metrics"][name], rel=1e-3)
    # Either run is resumed with the other's number of processes, and both end as the other does.
    more = ("--set", "run.steps=3", "--set", "run.keep_checkpoints=1", "--set")
    thirds = []
    for run, processes in zip(workshop.runs, (2, 1), strict=True):
        workshop.succeeds("run", "--resume", str(run), *more, f"trainer.processes={processes}")
        (noted,) = steps(workshop, run, "config_changed")
        assert {*noted["changes"]} == {"run.steps", "run.keep_checkpoints", "trainer.processes"}
        thirds.append(steps(workshop, run)[2:])
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["00002"]
    (mine,), (theirs,) = thirds
    for name in ("loss_imitation", "tokens_trained"):
        assert theirs["metrics"][name] == pytest.approx(mine["metrics"][name], rel=1e-3)
    assert workshop.left_behind() == []


@pytest.mark.long
def test_torchrun_over_two_hosts_trains_as_one_process_does(workshop: Any, config: str) -> None:
    """The hosts are emulated: two launchers on this machine, which meet at a port."""
    few = ("--set", "run.steps=2", "--set", "evaluation.every=2", "--set", "trainer.sync=copy")
    workshop.succeeds("run", config, *few)
    one = steps(workshop, workshop.run)
    meeting = f"launch.rendezvous=127.0.0.1:{free_port()}"
    few += ("--set", "trainer.processes=2", "--on", "torchrun", "--nodes", "2", "--set", meeting)
    few += ("--set", "launch.address=127.0.0.1", "--directory", "runs/two")
    hosts = [
        workshop.start("launch", config, *few, "--set", f"launch.node={i}", GLOO_SOCKET_IFNAME="lo")
        for i in range(2)
    ]
    done = [host.ended() for host in hosts]
    assert [each.code for each in done] == [0, 0], done
    two = steps(workshop, workshop.folder / "runs" / "two")
    assert [line["step"] for line in two] == [0, 1]
    for mine, theirs in zip(one, two, strict=True):
        for name in ("loss_imitation", "tokens_trained"):
            assert theirs["metrics"][name] == pytest.approx(mine["metrics"][name], rel=1e-3)
    logs = workshop.folder / "runs" / "two" / "logs"
    assert {path.name for path in logs.glob("*.log")} == {"run.log", "run-1.log"}


def test_torchrun_ends_with_a_run_that_can_not_start(workshop: Any, config: str) -> None:
    done = torchrun(workshop, "run", config, "--set", "trainer.sync=copy")
    assert "trainer.processes is 1, but torchrun started 2 ranks" in done.stderr
    assert done.returncode == 1
    done = torchrun(workshop, "run", config, "--set", "trainer.procesess=2")
    assert "did you mean 'processes'" in done.stdout + done.stderr
    assert done.returncode == 1
