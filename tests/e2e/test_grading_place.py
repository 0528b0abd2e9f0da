"""Code of the model that runs as root in a container has no say in how it is graded.

docs/why/grading.md says where criteria are graded.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ale_criteria_python.testing import ROOT
from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import skip_without

TESTS = {"type": "python_tests", "tests": ["assert square(3) == 9"]}
REMARK = "the agent's commands could replace the programs with which this was graded"


@pytest.fixture(params=["docker", pytest.param("podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    skip_without(request.param)
    return str(request.param)


def graded(workshop: Any, engine: str, agent: str, *criteria: Any, **more: Any) -> Any:
    """The scores of a task that a model answers with the attack, and what was said at the start."""
    python = {"visible_tests": ["assert square(3) == 9"]}
    workshop.write(
        "tasks/square.yaml",
        {
            "id": "square",
            "goal": "Square.",
            "success_criteria": criteria,
            "metadata": {"python": python},
        },
    )
    config = workshop.scripted(
        {"tasks": {"square": [more.pop("script")]}},
        agent={"type": agent},
        sandbox={"type": engine, "image": DEBIAN, **more},
    )
    done = workshop.succeeds("run", str(config))
    (episode,) = workshop.episodes().values()
    return episode["scores"], done.err


def values(scores: Sequence[Any]) -> list[float]:
    return [score["value"] for score in scores]


def test_what_an_attempt_changed_does_not_grade_it(workshop: Any, engine: str) -> None:
    answer = f"```python\n{ROOT}```"
    scores, _ = graded(workshop, engine, "code-attempts", TESTS, script=[answer] * 3)
    assert values(scores) == [0.0]
    assert REMARK not in scores[0]["detail"]


def test_what_one_criterion_ran_does_not_mislead_the_next(workshop: Any, engine: str) -> None:
    answer = f"```python\n{ROOT}```"
    scores, _ = graded(workshop, engine, "single-shot", TESTS, TESTS, script=[answer])
    assert values(scores) == [0.0, 0.0]


def test_an_answer_that_breaks_the_place_where_it_is_graded_has_failed(
    workshop: Any, engine: str
) -> None:
    code = (
        "import os, signal\nfor name in ('sh', 'dash'):\n    os.remove('/bin/' + name)\n"
        "above = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
        "os.kill(above, signal.SIGKILL)\n"
    )
    script = [f"```python\n{code}```"]
    scores, _ = graded(workshop, engine, "single-shot", TESTS, {**TESTS}, script=script)
    assert values(scores) == [0.0, 0.0]
    assert ["damaged the sandbox" in score["detail"] for score in scores] == [True, True]


FILE = {**TESTS, "answer": "file:answer.py"}
COMMAND = {"type": "command_exit_code", "command": "test -e answer.py"}


@pytest.mark.parametrize("options", [{}, {"user": "nobody"}])
def test_what_an_agent_changed_of_its_own_check_contests_the_score(
    workshop: Any, engine: str, options: dict[str, str]
) -> None:
    write = f"cat >answer.py <<'END'\n{ROOT}END\npython3 answer.py"
    script = [{"shell": write}, "Done."]
    scores, said = graded(workshop, engine, "iflow", FILE, COMMAND, script=script, **options)
    contested = [score.get("contested") for score in scores]
    assert not any(REMARK in score["detail"] for score in scores)
    assert "can replace the programs" not in said
    if options:
        assert (values(scores), contested) == ([0.0, 1.0], [None, None])
    else:
        # The answer has replaced a module in the judge, where the second one passes, too.
        assert (values(scores), contested) == ([1.0, 1.0], [0.0, 0.0])
        assert "encodings/__init__.py" in scores[0]["detail"]
