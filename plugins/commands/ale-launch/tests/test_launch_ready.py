"""When a server of a launch counts as ready."""

import socket
import threading

from ale_launch.ready import answers


def test_a_port_that_speaks_no_http_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\0\0\x12\4\0\0\n\n")

        serving = threading.Thread(target=serve)
        serving.start()
        assert not answers(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        serving.join()
