"""Whether a process lives, by its entry in /proc."""

import os
import subprocess

from ale_sandbox_container.liveness import lives


def test_a_process_lives_until_it_has_ended() -> None:
    assert lives(os.getpid())
    with subprocess.Popen(["sleep", "600"]) as process:
        assert lives(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not lives(process.pid)  # a zombie
    assert not lives(process.pid)
