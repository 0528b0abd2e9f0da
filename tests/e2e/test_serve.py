"""`ale serve` as a process: a model behind it is the same model to a run."""

import signal
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

PATIENCE_S = 300.0
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}
STEPS = [{"calls": [{"name": "shell", "arguments": {"command": "touch done"}}]}, FINISH]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_run_asks_a_model_over_ale_serve(workshop: Any, stream: bool) -> None:
    workshop.task("t")
    with openai_server({"conversations": [{"match": "Do t", "steps": STEPS}]}) as behind:
        served = f"openai:base_url={behind.url},model=m"
        serving = workshop.start(
            "serve", served, "--port", "0", "--api-key-env", "SERVE_KEY", SERVE_KEY="k" * 9
        )
        url = workshop.wait_for(lambda: serving.printed.strip(), timeout_s=PATIENCE_S)
        llm = {"type": "openai", "base_url": url, "model": "m", "api_key_env": "ASK_KEY"}
        workshop.config(llm={**llm, "stream": stream})
        workshop.succeeds("run", "run.yaml", timeout_s=PATIENCE_S, ASK_KEY="k" * 9)
        (episode,) = workshop.episodes().values()
        assert episode["reward"] == 1.0
        asked = behind.requests()
        assert [len(request["body"]["messages"]) for request in asked] == [2, 4]
        assert asked[0]["body"]["tools"]
        serving.signal(signal.SIGTERM)
        assert serving.ended(PATIENCE_S).code == 0


def test_an_address_in_use_is_reported(workshop: Any) -> None:
    with openai_server([]) as other:
        port = other.url.split(":")[2].split("/")[0]
        done = workshop.ale(
            "serve", f"openai:base_url={other.url},model=m", "--port", port, timeout_s=PATIENCE_S
        )
    assert done.code == 1
    assert f"can't listen at 127.0.0.1:{port}" in done.err


def test_a_model_or_a_config_is_required(workshop: Any) -> None:
    assert "give either a model or --config FILE" in workshop.ale("serve", timeout_s=PATIENCE_S).err
