"""What is said of an engine, and of one that does not answer."""

import base64
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from ale_sandboxing.container import probing
from ale_sandboxing.container.api import parse_stat

REMEDIES = {"missing": "install it", "silent": "start it", "refused": "join the group"}
INFO = {
    "ServerVersion": "1.2",
    "DefaultRuntime": "runc",
    "CgroupVersion": "2",
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": False,
    "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
}


def test_an_engine_that_is_not_there_is_named_with_what_would_help(tmp_path: Path) -> None:
    found = probing.probe_engine("no-such-engine", f"unix://{tmp_path}/socket", REMEDIES)
    assert (found.usable, found.remedy) == (False, "install it")
    assert f"{tmp_path}/socket" in found.reason


def test_one_that_is_installed_and_silent_is_to_be_started(tmp_path: Path) -> None:
    found = probing.probe_engine("sh", f"unix://{tmp_path}/socket", REMEDIES)
    assert (found.usable, found.remedy) == (False, "start it")


def test_one_that_takes_calls_and_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_PATIENCE_S", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/socket")
        listener.listen()
        found = probing.probe_engine("sh", f"unix://{tmp_path}/socket", REMEDIES)
    assert not found.usable
    assert "timed out" in found.reason


def test_an_address_of_another_kind_is_named() -> None:
    found = probing.probe_engine("sh", "ssh://host", REMEDIES)
    assert "ssh://host" in found.reason
    assert "forward its socket" in found.reason


def test_facts_are_read_from_what_the_engine_says() -> None:
    facts = probing.facts_of(INFO)
    assert (facts.version, facts.runtime, facts.cgroup) == ("1.2", "runc", "v2")
    assert (facts.holds_memory, facts.holds_cpu) == (True, False)
    assert (facts.seccomp, facts.root_is_root) == (True, False)
    assert probing.facts_of({**INFO, "SecurityOptions": None}).root_is_root


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_path_is_described_in_either_alphabet_of_base64(encode: Any) -> None:
    about = {"name": "\u00fb\u00ff?>", "size": 3, "mode": 1 << 31 | 0o755, "linkTarget": "/x"}
    about["mtime"] = "1970-01-01T00:00:02.123456789Z"
    raw = json.dumps(about, ensure_ascii=False).encode()
    found = parse_stat(encode(raw).decode())
    assert (found.mode, found.link) == (stat.S_IFDIR | 0o755, "")
    assert found.mtime == 2.123456
