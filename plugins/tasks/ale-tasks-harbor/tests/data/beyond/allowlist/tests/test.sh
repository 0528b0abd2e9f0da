#!/usr/bin/env python3
"""The agent was told no by the proxy; the tests have none."""

import os
from pathlib import Path

said = Path("said")
told = said.is_file() and said.read_text() == "403 allowed.invalid 502"
Path("/logs/verifier/reward.txt").write_text(str(int(told and os.listdir("/sys/class/net") == ["lo"])))
