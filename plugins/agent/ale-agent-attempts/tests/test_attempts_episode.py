"""What ``code-attempts`` shows the model, and when it stops."""

from typing import Any

import pytest

from ale.errors import AleError, SandboxError
from ale.testing import builders
from ale.testing.agent import answer, call

RIGHT = "def add(a, b):\n    return a + b"
WRONG = "def add(a, b):\n    return a - b"


def block(code: str) -> Any:
    return answer(f"Here it is.\n```python\n{code}\n```")


async def test_code_whose_visible_tests_pass_ends_the_episode(play: Any) -> None:
    played = await play(block(RIGHT))
    assert (played.stop.reason, played.stop.detail) == ("finished", "1 of 1 tests passed")
    (observation,) = played.observations
    assert (observation.error, observation.exit_code) == (None, 0)


async def test_the_model_is_shown_what_failed_and_repairs_it(play: Any) -> None:
    played = await play(block(WRONG), block(RIGHT))
    assert played.stop.reason == "finished"
    assert played.prompt_of(1) == (
        "The code does not pass its tests:\n\n"
        "failed: assert add(1, 2) == 3\n    the left side is -1\n0 of 1 tests passed\n\n"
        "Answer with the whole corrected code in a block that begins with ```python."
    )
    assert [o.error for o in played.observations] == ["0 of 1 tests passed", None]


async def test_each_failing_test_is_shown_and_passing_ones_are_counted(
    play: Any, add_task: Any
) -> None:
    tests = ["assert add(0, 0) == 0", "assert add(1, 2) == 3", "assert add(2, 2) > 3"]
    played = await play(block(WRONG), block(RIGHT), task=add_task(visible_tests=tests))
    shown = played.prompt_of(1)
    assert "add(0, 0)" not in shown
    assert "the left side is -1" in shown
    assert 'File "test", line 1, in <module>\n    assert add(2, 2) > 3\n' in shown
    assert "1 of 3 tests passed" in shown


async def test_an_error_in_the_code_is_shown_with_its_line(play: Any) -> None:
    played = await play(block("def add(a, b):\n    return a + c\n\nadd(1, 2)"), block(RIGHT))
    shown = played.prompt_of(1)
    assert 'File "code.py", line 2, in add\n    return a + c\n' in shown
    assert "NameError: name 'c' is not defined" in shown
    assert "<string>" not in shown


async def test_code_that_can_not_be_parsed_is_shown_its_error(play: Any) -> None:
    played = await play(block("def add(a, b) return a"), block(RIGHT))
    assert "SyntaxError: expected ':'" in played.prompt_of(1)


async def test_what_the_code_prints_is_shown(play: Any) -> None:
    played = await play(block(WRONG + "\nprint('a is', 7)"), block(RIGHT))
    assert "a is 7\nfailed: assert" in played.prompt_of(1)


async def test_code_that_takes_too_long_has_feedback_of_its_own(play: Any) -> None:
    played = await play(block("while True: pass"), block(RIGHT), tool_timeout_s=5.0)
    assert played.prompt_of(1).startswith("The code was stopped after 5 seconds.")
    first, second = played.observations
    assert (first.timed_out, first.error, second.error) == (True, "timed out", None)


async def test_code_that_waits_for_the_processor_is_not_late(play: Any) -> None:
    played = await play(block("import time; time.sleep(2)\n" + RIGHT), tool_timeout_s=1.0)
    assert [each.error for each in played.observations] == [None]


async def test_an_answer_without_code_is_an_attempt_with_feedback_of_its_own(play: Any) -> None:
    played = await play(answer("I can't."), answer("Really not."), max_attempts=2)
    assert played.prompt_of(1).startswith("The answer has no code block.")
    assert [o.error for o in played.observations] == ["no code", "no code"]
    assert (played.stop.reason, len(played.turns)) == ("max_turns", 2)


@pytest.mark.parametrize("max_attempts", [1, 2, 4])
async def test_there_are_no_more_attempts_than_allowed(play: Any, max_attempts: int) -> None:
    played = await play(*[block(WRONG)] * 9, max_attempts=max_attempts)
    assert len(played.llm.requests) == len(played.observations) == max_attempts
    assert played.stop.reason == "max_turns"


@pytest.mark.parametrize("code", ["import sys; sys.exit(0)", "import os; os._exit(0)", "exit()"])
async def test_code_that_exits_has_not_passed(play: Any, code: str) -> None:
    played = await play(block(code), block(RIGHT))
    assert played.observations[0].error is not None
    assert played.stop.detail == "1 of 1 tests passed"


async def test_code_killed_by_a_signal_is_a_failed_attempt(play: Any) -> None:
    played = await play(block("import os; os.kill(os.getpid(), 9)"), block(RIGHT))
    assert played.observations[0].error == "exit code 137"
    assert "[ended with exit code 137, before the tests were over]" in played.prompt_of(1)


async def test_code_that_ends_like_a_missing_command_is_a_failed_attempt(play: Any) -> None:
    played = await play(block("import os; os._exit(127)"), block(RIGHT))
    assert played.observations[0].error == "exit code 127"


async def test_a_sandbox_without_python_breaks_the_episode(play: Any) -> None:
    with pytest.raises(SandboxError, match="'python9' can't be run in the sandbox"):
        await play(block(RIGHT), python="python9")


async def test_setup_is_run_before_the_code(play: Any, add_task: Any) -> None:
    task = add_task(setup="import operator as op")
    played = await play(block("def add(a, b):\n    return op.add(a, b)"), task=task)
    assert played.stop.reason == "finished"


async def test_code_may_continue_the_setup(play: Any, add_task: Any) -> None:
    task = add_task(setup="def add(a, b):\n")
    assert (await play(block("    return a + b"), task=task)).stop.reason == "finished"


async def test_code_is_a_module_of_its_own(play: Any) -> None:
    code = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        f"@dataclass\nclass Pair:\n    a: int\n{RIGHT}"
    )
    assert (await play(block(code))).stop.reason == "finished"


async def test_each_attempt_starts_with_nothing_of_the_one_before(play: Any) -> None:
    played = await play(block(RIGHT + "\nadd = 0"), block("pass"), max_attempts=2)
    assert "name 'add' is not defined" in played.observations[1].content


async def test_without_visible_tests_the_code_is_only_run(play: Any, add_task: Any) -> None:
    played = await play(block("1 / 0"), block(RIGHT), task=add_task(visible_tests=[]))
    assert "ZeroDivisionError" in played.prompt_of(1)
    assert played.stop.detail == "0 of 0 tests passed"


async def test_long_output_is_cut_in_the_middle_and_the_verdict_is_kept(play: Any) -> None:
    code = f"{RIGHT}\nprint('x' * 100_000)"
    played = await play(block(code), max_output_bytes=256)
    (observation,) = played.observations
    assert (observation.truncated, played.stop.reason) == (True, "finished")


async def test_prompts_are_options(play: Any, add_task: Any) -> None:
    played = await play(
        block(WRONG),
        answer("?"),
        block(RIGHT),
        task=add_task(entry_point="add"),
        system_prompt="You write {entry_point}.",
        prompt="{goal} {tests} {other} {goal}",
        failed_prompt="Wrong: {output}",
        no_code_prompt="No code {output}.",
    )
    system, user = played.llm.requests[0].messages
    assert (system.role, system.content) == ("system", "You write add.")
    assert user.content == "Add two numbers. assert add(1, 2) == 3 {other} Add two numbers."
    assert played.prompt_of(1).startswith("Wrong: failed: assert add(1, 2)")
    assert played.prompt_of(2) == "No code {output}."


async def test_a_goal_with_braces_is_shown_as_it_is(play: Any, add_task: Any) -> None:
    task = builders.task(goal="Use {tests}.", metadata=add_task().metadata)
    played = await play(block(RIGHT), task=task, prompt="{goal}")
    assert played.prompt_of(0) == "Use {tests}."


async def test_no_tools_are_sent_and_calls_that_a_model_invents_are_answered(play: Any) -> None:
    played = await play(call("shell", command="ls"), block(RIGHT))
    assert [request.tools for request in played.llm.requests] == [(), ()]
    first = played.observations[0]
    assert (first.role, first.call_id) == ("tool", "call_0")
    assert first.content.startswith("[there are no tools. The answer has no code block.")
    assert played.stop.reason == "finished"


async def test_reasoning_before_the_answer_is_no_code(play: Any) -> None:
    played = await play(
        answer(f"<think>```python\n{RIGHT}\n```</think> I give up."), max_attempts=1
    )
    assert played.observations[0].error == "no code"


async def test_a_task_that_is_not_about_python_is_refused(play: Any) -> None:
    with pytest.raises(
        AleError, match=r"'demo' has no metadata\.python.*'single-shot' answers any"
    ):
        await play(task=builders.task())


@pytest.mark.parametrize(
    "python", [[], "x", {"visible_tests": "assert f()"}, {"setup": 1}, {"visible_tests": [1]}]
)
async def test_metadata_of_another_form_is_refused(play: Any, python: Any) -> None:
    with pytest.raises(AleError, match=r"task 'demo': expected metadata\.python with"):
        await play(task=builders.task(metadata={"python": python}))
