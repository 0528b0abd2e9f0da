"""The smallest agent: each answer of the model is a shell command, whose output it is shown.

python examples/smallest_agent.py                   # a script plays the model
python examples/smallest_agent.py lmstudio MODEL    # a model of yours, in a sandbox found here
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import ale
from ale.agents import EpisodeLoop, shell_observation
from ale.types import Message, Observation, ToolCall, Turn, replace

RULE = "Answer with one shell command and nothing else; with DONE if the work is done."
TASKS = [ale.Task(id=f"sum-{n}", goal=f"Write 1 + ... + {n} to sum.txt.") for n in (10, 100)]


class Lines(EpisodeLoop):
    def head(self) -> tuple[Message, ...]:
        return (Message(role="user", content=f"{self.context.task.goal} {RULE}"),)

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        said = turn.completion.message.content.strip()
        return () if said in ("", "DONE") else [ToolCall(id="1", name="shell", arguments=said)]

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        result = await self.shell.run(call.arguments, timeout_s)
        return replace(shell_observation(call, result, timeout_s), role="user")


@ale.agent
async def lines(context: ale.AgentContext, *, max_turns: int = 8) -> ale.Stop:
    """Runs the model's answers as commands."""
    return await Lines(context).run()


@ale.criterion
async def is_the_sum(answer: ale.Answer) -> bool:
    """The file sum.txt has the sum of the task."""
    n = int(answer.task.id.removeprefix("sum-"))
    try:
        written = await answer.sandbox.read("sum.txt", max_bytes=100)
    except OSError:  # the agent's doing: a reward of 0, not a broken episode
        return False
    return written.strip() == str(n * (n + 1) // 2).encode()


def main(kind: str = "scripted", model: str = "") -> None:
    script = {"type": "scripted", "script": Path(__file__).with_suffix(".script.yaml")}
    llm, sandbox = ({"type": kind, "model": model}, "auto") if model else (script, "local")
    parts = {"tasks": TASKS, "criteria": [is_the_sum], "agent": lines, "llm": llm}
    run = ale.run({**parts, "sandbox": {"type": sandbox}, "run": {"name": "smallest"}})
    for episode in run.episodes:
        print(
            episode.task_id, episode.reward, [t.completion.message.content for t in episode.turns]
        )
    print(f"success {run.success:.2f}, 95% interval", *(f"{x:.2f}" for x in run.success.interval))


if __name__ == "__main__":
    main(*sys.argv[1:])
