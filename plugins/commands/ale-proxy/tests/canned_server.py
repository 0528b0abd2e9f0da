"""A server in a process of its own that answers with the same bytes whenever it is asked.

``python canned_server.py ANSWERS.json`` prints its port. The file has answers by path: the pieces
that are sent one after the other, each a text, or seconds to wait. After ``close`` the connection
is closed.
"""

import asyncio
import json
import sys
from pathlib import Path


async def answer(
    answers: dict[str, list[str | float]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *rest = head.split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in rest if line)
            await reader.readexactly(int(fields.get("content-length", 0)))
            for piece in answers[first.split(" ")[1]]:
                if isinstance(piece, float | int):
                    await asyncio.sleep(piece)
                elif piece == "close":
                    writer.close()
                    return
                else:
                    writer.write(piece.encode("latin-1"))
                    await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    answers = json.loads(Path(sys.argv[1]).read_text())

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(answers, reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
