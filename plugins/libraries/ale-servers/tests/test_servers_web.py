"""What the routes refuse."""

import aiohttp
import msgspec
import pytest

from ale_servers import web
from ale_servers.records import Refusal
from ale_servers.testing.bigram import BigramServer
from ale_servers.testing.serving import serving


async def test_a_body_that_is_too_long_is_refused_and_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MOST_BODY", 1000)
    async with serving(BigramServer(token_s=0.001)) as url, aiohttp.ClientSession() as client:
        for n, status in ((1001, 413), (1000, 200)):
            body = b'{"ids": []' + b" " * (n - 11) + b"}"
            head = {"Content-Type": "application/json"}
            async with client.post(f"{url}/ale/abort", data=body, headers=head) as answer:
                assert answer.status == status
                content = await answer.read()
            if status == 413:
                refusal = msgspec.json.decode(content, type=Refusal)
                assert refusal == Refusal(
                    kind="invalid", message="the request is longer than 1000 bytes"
                )
