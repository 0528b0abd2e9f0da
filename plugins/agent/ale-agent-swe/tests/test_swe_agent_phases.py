"""Plan, patch, test, repair: what is done in each phase, and what the model is told."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError, SandboxError
from ale.plugin import BuildContext
from ale.testing.agent import answer, call
from ale.testing.fakes import FolderSandbox
from ale.testing.played import Played
from ale.types import ExecResult
from ale_agent_swe.agent import PlanPatchTestAgent
from ale_agent_swe.options import PlanPatchTestOptions

Play = Callable[..., Awaitable[Played]]

RIGHT = "def add(a, b):\n    return a + b\n"
DIFF = """--- a/pkg/adding.py
+++ b/pkg/adding.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
WORSE = DIFF.replace("+    return a + b", "+    return a * b")
BETTER = DIFF.replace("a - b", "a * b")


def block(tag: str, body: str) -> str:
    return f"I do this:\n```{tag}\n{body}\n```\n"


def phases(played: Played) -> list[tuple[str, str | None]]:
    """The tool and the error of each observation."""
    return [(o.tool, o.error) for o in played.observations]


PLAN = "The sign in add is wrong."
TEST = block("sh", "sh check.sh")


async def test_a_plan_a_diff_and_a_test_end_the_episode(play: Play) -> None:
    played = await play(PLAN, block("diff", DIFF), TEST)
    assert (played.stop.reason, played.stop.detail) == ("finished", "the tests passed")
    assert phases(played) == [("plan", None), ("patch", None), ("test", None)]
    assert (played.folder / "pkg" / "adding.py").read_text() == RIGHT
    assert {observation.role for observation in played.observations} == {"user"}


async def test_the_first_message_has_the_goal_the_files_and_what_to_do(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_agent_swe.agent._LISTED", 1)
    played = await play(PLAN, block("finish", ""))
    prompt = played.prompt_of(0)
    assert prompt.startswith("Mend add.\n\nFiles:\ncheck.sh\n... and 1 more\n\nFirst find out")
    assert prompt.endswith("To look at files first, answer with one block that begins with ```sh.")
    assert played.prompt_of(1).startswith("Now change the code. Answer with a unified diff")


async def test_files_are_looked_at_in_any_phase_but_the_test(play: Play) -> None:
    look = block("sh", "cat pkg/adding.py")
    played = await play(look, PLAN, look, block("diff", DIFF), TEST)
    tools = [observation.tool for observation in played.observations]
    assert tools == ["shell", "plan", "shell", "patch", "test"]
    assert "return a - b" in played.prompt_of(1)


async def test_whole_files_are_written(play: Play) -> None:
    played = await play(
        PLAN,
        "```file:pkg/adding.py\n" + RIGHT + "```\nand\n```file:new/notes.md\nDone.\n```",
        TEST,
    )
    assert played.stop.reason == "finished"
    assert (played.folder / "pkg" / "adding.py").read_text() == RIGHT
    assert (played.folder / "new" / "notes.md").read_text() == "Done.\n"


@pytest.mark.parametrize(
    "written",
    [
        DIFF.replace("-1,2 +1,2", "-7,9 +7,8"),
        DIFF.replace("a/pkg", "pkg").replace("b/pkg", "pkg"),
        DIFF.removesuffix("\n"),
        DIFF + "\n\n",
        "\n".join(line for line in DIFF.splitlines() if not line.startswith(" ")),
    ],
    ids=["wrong lines", "without a/ and b/", "no end of line", "blank lines", "no context"],
)
async def test_a_diff_may_be_a_little_wrong(play: Play, written: str) -> None:
    played = await play(PLAN, block("diff", written), TEST)
    assert played.stop.reason == "finished"


async def test_a_diff_that_does_not_apply_is_told_why_and_changes_nothing(play: Play) -> None:
    both = DIFF + BETTER.replace("adding.py", "absent.py")
    played = await play(PLAN, block("diff", both), block("diff", DIFF), TEST)
    assert phases(played)[1] == ("patch", "the patch does not apply")
    assert "pkg/absent.py: No such file or directory" in played.prompt_of(2)
    assert played.stop.reason == "finished"


@pytest.mark.parametrize("path", ["/etc/ale-swe", "../out.txt", "pkg/../../out", ".git/config"])
async def test_files_outside_the_repository_are_refused(play: Play, path: str) -> None:
    played = await play(PLAN, block(f"file:{path}", "x"), block("finish", ""))
    assert "is not a path in the repository" in played.prompt_of(2)
    assert not (played.folder.parent / "out.txt").exists()


async def test_failing_tests_are_shown_and_repaired(play: Play) -> None:
    played = await play(PLAN, block("diff", WORSE), TEST, block("diff", BETTER), TEST)
    assert phases(played) == [
        ("plan", None),
        ("patch", None),
        ("test", "exit code 1"),
        ("repair", None),
        ("test", None),
    ]
    assert "AssertionError: 2" in played.prompt_of(3)
    assert played.stop.reason == "finished"


async def test_repairs_end_at_their_limit(play: Play) -> None:
    played = await play(PLAN, block("diff", WORSE), TEST, max_repairs=0)
    assert played.stop.reason == "gave_up"
    assert played.stop.detail == "the tests still fail after 0 repairs"


async def test_a_given_test_command_is_run_with_each_patch(play: Play) -> None:
    played = await play(
        PLAN, block("diff", WORSE), block("diff", BETTER), test_command="sh check.sh"
    )
    assert phases(played) == [("plan", None), ("patch", "exit code 1"), ("repair", None)]
    assert played.observations[1].exit_code == 1
    assert played.stop.reason == "finished"


async def test_tests_that_take_too_long_are_ended(play: Play) -> None:
    played = await play(
        PLAN, block("diff", DIFF), test_command="sleep 60", tool_timeout_s=3.0, max_repairs=0
    )
    assert played.observations[1].timed_out
    assert played.stop.reason == "gave_up"


async def test_an_answer_without_an_action_is_told_so(play: Play) -> None:
    played = await play(PLAN, "Hm.", block("diff", DIFF), "Hm.", TEST)
    assert phases(played)[1][0] == "patch"
    assert played.prompt_of(2).startswith("[The answer has nothing to act on. Answer with a")
    assert "```sh" in played.prompt_of(4)
    assert played.stop.reason == "finished"


async def test_reasoning_is_not_acted_on(play: Play) -> None:
    thought = f"<think>{block('sh', 'touch planted')}</think>{PLAN}"
    played = await play(thought, block("finish", ""))
    assert phases(played)[0] == ("plan", None)
    assert not (played.folder / "planted").exists()


async def test_a_model_with_tools_calls_them(play: Play) -> None:
    played = await play(
        call("shell", command="cat pkg/adding.py"),
        call("plan", plan=PLAN),
        call("patch", diff=WORSE),
        call("test", command="sh check.sh"),
        call("shell", command="sed -i 's/a [*] b/a + b/' pkg/adding.py"),
        call("repair"),
        call("test", command="sh check.sh"),
        tools=True,
    )
    tools = [tool for tool, _ in phases(played)]
    assert tools == ["shell", "plan", "patch", "test", "shell", "repair", "test"]
    assert {observation.role for observation in played.observations} == {"tool"}
    assert played.stop.reason == "finished"
    assert "Call patch with a diff" in played.prompt_of(2)


async def test_a_tool_of_another_phase_is_refused(play: Play) -> None:
    played = await play(call("test", command="true"), call("finish", summary="no"), tools=True)
    assert phases(played)[0][0] == "test"
    assert played.prompt_of(1).startswith("[this is the phase plan. Use the tool shell")


async def test_a_patch_without_a_change_is_refused(play: Play) -> None:
    played = await play(
        call("plan", plan=PLAN), call("patch"), call("finish", summary=""), tools=True
    )
    assert "no diff was given, and no file has changed" in played.prompt_of(2)


@pytest.mark.parametrize("arguments", ['{"command": 3}', "{}", "not json"])
async def test_bad_arguments_are_answered(play: Play, arguments: str) -> None:
    played = await play(answer("", ("shell", arguments)), call("finish", summary=""), tools=True)
    assert played.observations[0].error is not None
    assert played.stop.reason == "finished"


async def test_a_model_without_tools_that_invents_a_call_is_told_so(play: Play) -> None:
    played = await play(
        answer("", ("shell", json.dumps({"command": "touch planted"}))), block("finish", "")
    )
    assert played.prompt_of(1).startswith("[there are no tools. Answer with the plan.")
    assert not (played.folder / "planted").exists()


async def test_a_sandbox_without_git_breaks_the_episode(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FolderSandbox.exec

    async def without_git(self: FolderSandbox, command: Any, **arguments: Any) -> ExecResult:
        if command[0] == "git":
            return ExecResult(exit_code=127, stdout=b"", stderr=b"")
        return await run(self, command, **arguments)

    monkeypatch.setattr(FolderSandbox, "exec", without_git)
    with pytest.raises(SandboxError, match="by git, which the sandbox does not have"):
        await play(PLAN, block("diff", DIFF))


async def test_an_agent_that_removes_git_has_a_patch_that_fails(
    play: Play, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FolderSandbox.exec

    async def removable(self: FolderSandbox, command: Any, **arguments: Any) -> ExecResult:
        if command[0] == "git" and (repository / "removed").exists():
            return ExecResult(exit_code=127, stdout=b"", stderr=b"")
        return await run(self, command, **arguments)

    monkeypatch.setattr(FolderSandbox, "exec", removable)
    played = await play(
        block("sh", "touch removed"), PLAN, block("diff", DIFF), block("finish", "")
    )
    assert "git was removed, so no patch can be applied" in played.prompt_of(3)
    assert played.stop.reason == "finished"


async def test_prompts_are_in_a_file(play: Play, tmp_path: Path) -> None:
    (file := tmp_path / "prompts.yaml").write_text('plan: "{goal} {x} {how}"\n')
    played = await play(PLAN, block("finish", ""), system_prompt="Be brief.", prompts=file)
    system, user = played.llm.requests[0].messages
    assert (system.role, system.content) == ("system", "Be brief.")
    assert user.content.startswith("Mend add. {x} Answer with the plan.")


def test_the_repository_fixture_has_the_bug(repository: Path) -> None:
    assert "a - b" in (repository / "pkg" / "adding.py").read_text()


def test_a_wrong_prompt_names_its_line(tmp_path: Path) -> None:
    (file := tmp_path / "prompts.yaml").write_text("plan: a\nreapir: b\n")
    with pytest.raises(InputError, match=r"prompts.yaml:2: reapir: unknown option"):
        PlanPatchTestAgent(PlanPatchTestOptions(prompts=file), BuildContext())
