"""The contract kit for models behind OpenAI's API: `OpenAIServerContract`."""

from ale.protocols import LLM
from ale.testing._marks import async_tests
from ale.testing.llm import ADD, KEY, SUM, UNUSUAL, Connect, LLMServerContract, ask
from ale.testing.openai_server import ScriptedServer
from ale.types import Message, Sampling


@async_tests
class OpenAIServerContract(LLMServerContract):
    """`LLMServerContract`, and how requests and calls are written in OpenAI's API."""

    async def test_the_request_arrives_unchanged(
        self, llm: LLM, usual_server: ScriptedServer
    ) -> None:
        await llm.complete(ask(UNUSUAL, tools=(ADD,), sampling=Sampling(max_tokens=5, stop=("z",))))
        request = usual_server.requests()[-1]
        body = request["body"]
        assert [(m["role"], m["content"]) for m in body["messages"]] == [("user", UNUSUAL)]
        assert body["tools"][0]["function"]["parameters"] == ADD.parameters
        assert 5 in (body.get("max_tokens"), body.get("max_completion_tokens"))
        assert body["stop"] in ("z", ["z"])
        assert request["headers"]["authorization"] == f"Bearer {KEY}"

    async def test_ids_of_calls_survive_both_directions(
        self, llm: LLM, usual_server: ScriptedServer
    ) -> None:
        request = ask(SUM, tools=(ADD,))
        answer = (await llm.complete(request)).message
        assert answer.tool_calls[0].id == "call_sum"
        result = Message(role="tool", content="42", tool_call_id="call_sum")
        messages = (*request.messages, answer, result)
        final = await llm.complete(ask(messages=messages, tools=(ADD,), turn=1))
        assert final.message.content == "42."
        sent, done = usual_server.requests()[-1]["body"]["messages"][-2:]
        assert sent["tool_calls"][0]["id"] == done["tool_call_id"] == "call_sum"
        assert sent["tool_calls"][0]["function"] == {
            "name": "add",
            "arguments": answer.tool_calls[0].arguments,
        }

    async def test_calls_stay_as_the_model_wrote_them(self, connect: Connect) -> None:
        calls = [
            {"name": "no_such_tool", "arguments": '{"a": 1,  "b"', "id": "call_1"},
            {"name": "add", "arguments": '{"a":   1}', "id": "call_2"},
        ]
        async with self._session(connect, [{"calls": calls}]) as (llm, _):
            made = (await llm.complete(ask(SUM, tools=(ADD,)))).message.tool_calls
        assert [(call.name, call.arguments, call.id) for call in made] == [
            ("no_such_tool", '{"a": 1,  "b"', "call_1"),
            ("add", '{"a":   1}', "call_2"),
        ]
