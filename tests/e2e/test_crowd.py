"""Sixty-four episodes at once in the real sandbox: one that hangs or talks nonsense harms none."""

from typing import Any

N = 64


def test_64_at_once_with_one_that_hangs_and_one_that_answers_nonsense(
    workshop: Any, shell: Any
) -> None:
    for number in range(N):
        workshop.task(f"t{number:02}")
    workshop.task("t00", constraints={"time_limit_s": 4})
    nonsense = [
        {"calls": [{"name": "", "arguments": ""}]},
        {"calls": [{"name": "shell", "arguments": '{"command": 7}'}]},
        {"calls": [{"name": "shell", "arguments": '["ls"]'}, {"name": "x" * 500}]},
        {"text": "\x00 ```tool\n{"},
        {"text": "", "reasoning": "?"},
        {"text": "\u202e nothing"},
    ]
    script = {
        "t00": [shell("sleep 3002 & sleep 3002")],
        "t01": [nonsense],
        "t02": [shell("cat /dev/zero & yes | head -c 300000000")],
        "t03": [shell("kill -9 $$", "exit 3", "touch done")],
    }
    default = shell("seq 3 > list", "wc -l < list", "touch done")
    agent = {"type": "iflow", "finish": "tool"}  # text without a call does not end an episode
    script = {"tasks": script, "default": default}
    workshop.scripted(script, agent=agent, run={"concurrency": N})
    workshop.succeeds("run", "run.yaml")
    episodes = workshop.episodes()
    assert len(episodes) == N
    stops = {name: episode["trajectory"]["stop"]["reason"] for name, episode in episodes.items()}
    failed = {name for name, episode in episodes.items() if episode["reward"] == 0.0}
    assert failed == {"0-t00-0", "0-t01-0", "0-t02-0"}
    assert stops["0-t00-0"] == "time_limit"
    assert stops["0-t01-0"] == "gave_up"
    others = {reason for name, reason in stops.items() if name not in ("0-t00-0", "0-t01-0")}
    assert others == {"finished"}
    assert workshop.left_behind() == []
    workshop.succeeds("show", str(workshop.run), "0-t01-0", "--full")
