"""The merged file, to the byte."""

import json
from pathlib import Path

EXPECTED = {
    "hosts": ["db.example.org:1", "db.example.org:2"],
    "limits": {"memory": {"mb": 64}},
    "log": {"level": "debug", "tag": "shop-a=b=$MODE"},
    "name": "api",
    "plugins": ["auth", "cache", "metrics", "debug"],
    "server": {
        "host": "db.example.org",
        "port": 8080,
        "tls": {"ciphers": ["z"], "on": True},
    },
}


def test_the_layers_are_merged_by_the_rules() -> None:
    assert json.loads(Path("merged.json").read_text()) == EXPECTED


def test_the_file_is_written_as_asked() -> None:
    text = json.dumps(EXPECTED, indent=2, sort_keys=True) + "\n"
    assert Path("merged.json").read_text() == text
