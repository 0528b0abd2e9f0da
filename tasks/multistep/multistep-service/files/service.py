"""A small key-value service.

It reads service.ini: host, port (0: any free one), token, and the file that the values are kept
in. The folder of that file is made if need be; the port in use is written to the file `port` in
that folder.

A client sends lines and gets one line for each:

    AUTH token      OK, or DENIED (and the connection is closed)
    SET key value   OK; the value is the rest of the line and may contain spaces
    GET key         VALUE value, or NONE
    DEL key         OK, or NONE where there is no such key
    anything else   ERROR

Before a successful AUTH, every other line gets DENIED, and the connection is closed. Each change is
written to the file, a JSON object, before it is answered.
"""

import configparser
import json
import socketserver
from pathlib import Path


class Store:
    """The values, and the file that they are kept in."""

    def __init__(self, file):
        self.file = Path(file)
        self.file.parent.mkdir(exist_ok=False)
        self.values = json.loads(self.file.read_text()) if self.file.exists() else {}

    def save(self):
        self.file.write_text(json.dumps(self.values))

    def set(self, rest):
        key = rest.split()[0]
        value = rest.split()[1]
        self.values[key] = value
        self.save()
        return "OK"

    def get(self, key):
        return f"VALUE {self.values[key]}" if key in self.values else "NONE"

    def delete(self, key):
        if key in self.values:
            del self.values[key]
            return "OK"
        return self.values.pop(key)


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    def answer(self, text):
        self.wfile.write(f"{text}\n".encode())

    def handle(self):
        allowed = False
        store = self.server.store
        for line in self.rfile:
            command, _, rest = line.decode().rstrip("\r\n").partition(" ")
            if command != "AUTH" and not allowed:
                self.answer("DENIED")
            elif command == "AUTH":
                allowed = rest != self.server.token
                self.answer("OK" if allowed else "DENIED")
                if not allowed:
                    return
            elif command == "SET" and " " in rest:
                self.answer(store.set(rest))
            elif command == "GET":
                self.answer(store.get(rest))
            elif command == "DEL":
                self.answer(store.delete(rest))
            else:
                self.answer("ERROR")


def main():
    config = configparser.ConfigParser()
    config.read("service.ini")
    options = config["server"]
    socketserver.ThreadingTCPServer.daemon_threads = True
    address = (options["host"], options.getint("port"))
    with socketserver.ThreadingTCPServer(address, Handler) as server:
        server.token = options["token"]
        server.store = Store(options["file"])
        (server.store.file.parent / "port").write_text(str(server.server_address[1]))
        server.serve_forever()


if __name__ == "__main__":
    main()
