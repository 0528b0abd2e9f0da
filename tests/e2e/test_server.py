"""A model behind HTTP: a real server in another process, many episodes at once, and its faults."""

from typing import Any

import pytest

from ale.testing.openai_server import openai_server

N = 16
DELAY_S = 1.5
"""Of an answer: long enough for N requests on a busy machine."""
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}
TOUCH = {"calls": [{"name": "shell", "arguments": {"command": "touch done"}}]}

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def sections(url: str, **llm: Any) -> dict[str, Any]:
    """The model at `url`, patient for fractions of a second."""
    basis = {"type": "openai", "base_url": url, "model": "m", "retry_min_s": 0.01}
    return {
        "llm": {**basis, "timeout_s": 5.0, "deadline_s": 20.0, "max_retries": 2, **llm},
        "run": {"concurrency": N, "retries": 0},
    }


@streamed
def test_sixteen_episodes_at_once_each_get_their_own_answers(workshop: Any, stream: bool) -> None:
    conversations = []
    for number in range(N):
        workshop.task(f"t{number:02}", check=f"test $(cat done) = {number}")
        command = f"echo {number} > done"
        steps = [
            {"calls": [{"name": "shell", "arguments": {"command": command}}], "delay_s": DELAY_S},
            {**FINISH, "text": "It is written."},
        ]
        conversations.append({"match": f"t{number:02}", "steps": steps})
    with openai_server({"models": [{"id": "m"}], "conversations": conversations}) as server:
        workshop.config(**sections(server.url, stream=stream))
        done = workshop.ale("run", "run.yaml")
        arrived = [request for request in server.requests() if request["method"] == "POST"]
    assert done.code == 0, done.text
    assert [episode["reward"] for episode in workshop.episodes().values()] == [1.0] * N
    assert len(arrived) == 2 * N
    assert {request["body"].get("stream", False) for request in arrived} == {stream}
    # All sixteen have asked before the first is answered.
    assert arrived[N - 1]["at"] - arrived[0]["at"] < DELAY_S
    assert {tool["function"]["name"] for tool in arrived[0]["body"]["tools"]} >= {"shell", "finish"}
    assert workshop.left_behind() == []


GRADED: dict[str, list[dict[str, Any]]] = {
    "429": [{**TOUCH, "before": [{"fault": 429, "retry_after": 0.1}]}, FINISH],
    "500": [{**TOUCH, "before": [{"fault": 500}, {"fault": 503}]}, FINISH],
    "half": [{**TOUCH, "text": "I will.", "before": [{**TOUCH, "fault": "half"}]}, FINISH],
    "drop": [{**TOUCH, "before": [{"fault": "drop"}]}, FINISH],
    "invalid-json": [{**TOUCH, "before": [{"fault": "invalid_json"}]}, FINISH],
    "unknown-tool": [{"calls": [{"name": "shel", "arguments": {"command": "ls"}}]}, TOUCH, FINISH],
    "bad-arguments": [{"calls": [{"name": "shell", "arguments": "{not json"}]}, TOUCH, FINISH],
    "stall": [{**TOUCH, "before": [{**TOUCH, "fault": "stall"}]}, FINISH],
    "ten-megabytes": [{**TOUCH, "text": "x" * 10_000_000}, FINISH],
}
BROKEN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "always-429": ([{"fault": 429, "message": "slow down please"}], "slow down please"),
    "always-500": ([{"fault": 500, "message": "out of order"}], "out of order"),
    "refused": ([{"fault": 401, "message": "no such key"}], "api_key_env"),
    "always-half": ([{**TOUCH, "fault": "half"}], "connection"),
    "always-invalid": ([{"fault": "invalid_json"}], "read"),
    "half-a-letter": ([{**TOUCH, "text": "\ud83d"}], "surrogate"),
    "silence": ([{"fault": "silence"}], "3 s"),
}


@streamed
def test_a_failure_of_the_model_is_recorded_and_affects_no_other_episode(
    workshop: Any, stream: bool
) -> None:
    conversations = []
    for name, steps in {**GRADED, **{name: steps for name, (steps, _) in BROKEN.items()}}.items():
        workshop.task(name)
        conversations.append({"match": f"Do {name}\\.", "steps": steps})
    with openai_server({"conversations": conversations}) as server:
        workshop.config(**sections(server.url, stream=stream, timeout_s=3.0))
        done = workshop.ale("run", "run.yaml")
    assert done.code == 3, done.text
    assert "Traceback" not in done.text
    episodes = {episode["task_id"]: episode for episode in workshop.episodes().values()}
    assert episodes.keys() == GRADED.keys() | BROKEN.keys()
    rewards = {name: episodes[name]["reward"] for name in GRADED}
    failures = {name: episodes[name]["failure"] for name in GRADED if episodes[name]["failure"]}
    assert rewards == dict.fromkeys(GRADED, 1.0), failures
    for name, (_, reason) in BROKEN.items():
        failure = episodes[name]["failure"]
        assert episodes[name]["reward"] is None
        assert (failure["stage"], failure["kind"]) == ("agent", "LLMError"), name
        assert reason in failure["message"], name
    assert f"broken       {len(BROKEN)}" in done.out
    shown = workshop.ale("show", str(workshop.run)).out
    for _, reason in BROKEN.values():
        assert reason in shown
    assert workshop.left_behind() == []


def test_a_refused_call_is_an_observation_of_the_model(workshop: Any) -> None:
    workshop.task("unknown-tool")
    conversations = [{"match": ".", "steps": GRADED["unknown-tool"]}]
    with openai_server({"models": [{"id": "m"}], "conversations": conversations}) as at:
        workshop.config(**sections(at.url))
        workshop.succeeds("run", "run.yaml")
        _, _, request, *_ = at.requests()  # the first lists the models
    observation = request["body"]["messages"][-1]
    assert observation["role"] == "tool"
    assert "shell" in observation["content"]


def test_no_server_at_all_breaks_the_episode_and_says_where_it_looked(workshop: Any) -> None:
    workshop.task("t")
    url = "http://127.0.0.1:9/v1"
    workshop.config(**sections(url))
    done = workshop.ale("run", "run.yaml", "--no-checks")
    assert done.code == 3
    (episode,) = workshop.episodes().values()
    assert "127.0.0.1:9" in episode["failure"]["message"]
