"""The smallest agent: each answer of the model is a shell command, whose output it is shown.

Without arguments a script plays the model; `lmstudio MODEL` names one of yours.
"""

import sys
from pathlib import Path

import ale
from ale.agents import EpisodeLoop, shell_observation
from ale.types import Observation, ToolCall, Turn, replace

SCRIPT = {"type": "scripted", "script": Path(__file__).with_suffix(".script.yaml")}
GOAL = "Write 1 + ... + {} to sum.txt. Answer with one shell command, or DONE, and nothing else."


class Lines(EpisodeLoop):
    def calls(self, turn: Turn) -> list[ToolCall]:
        said = turn.completion.message.content.strip()
        return [] if said in ("", "DONE") else [ToolCall(id="1", name="shell", arguments=said)]

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        result = await self.shell.run(call.arguments, timeout_s)
        return replace(shell_observation(call, result, timeout_s), role="user")


@ale.agent
async def lines(context: ale.AgentContext, *, max_turns: int = 8) -> ale.Stop:
    return await Lines(context).run()


@ale.criterion
async def is_the_sum(answer: ale.Answer) -> bool:
    return (await answer.sandbox.exec("cat sum.txt")).stdout.strip().decode() == answer.task.id


llm = {"type": sys.argv[1], "model": sys.argv[2]} if sys.argv[1:] else SCRIPT
tasks = [ale.Task(id=str(sum(range(n + 1))), goal=GOAL.format(n)) for n in (10, 100)]
run = ale.run({"tasks": tasks, "agent": lines, "criteria": [is_the_sum], "llm": llm})
print(*((each.task_id, each.reward) for each in run.episodes), f"success {run.success:.2f}")
