"""A server of embeddings, as a process: the trigrams of a text, hashed into 256 numbers.

    python embedding_server.py

prints its base URL. It wants the key in KEY where that is set. A text with FAIL in it is an error.
"""

import json
import os
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

N = 256


def embedding(text: str) -> list[float]:
    """How often each trigram of its words occurs."""
    vector = [0.0] * N
    for word in text.lower().split():
        for at in range(len(word) - 2):
            vector[zlib.crc32(word[at : at + 3].encode()) % N] += 1.0
    return vector


class Handler(BaseHTTPRequestHandler):
    """Answers ``POST /v1/embeddings``."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = os.environ.get("KEY")
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            return self._answer(401, {"error": {"message": "wrong key"}})
        if any("FAIL" in text for text in asked["input"]):
            return self._answer(500, {"error": {"message": "out of memory"}})
        made = [
            {"object": "embedding", "index": i, "embedding": embedding(text)}
            for i, text in enumerate(asked["input"])
        ]
        # The order of the answers is not that of the texts: their indices say which is which.
        return self._answer(200, {"object": "list", "model": asked["model"], "data": made[::-1]})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()
