"""Keep what docs/credit-truth.md needs of a run whose credit was measured in its first step.

    python tests/study/truth.py RUN docs/credit-truth/NAME

writes the manifest, the episodes without tokens, and the counts of their states.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OF_EPISODE = ("schema", "id", "task_id", "split", "step", "rollout", "seed", "reward")
OF_MESSAGE = ("role", "content", "tool_calls")
OF_OBSERVATION = ("call_id", "tool", "content", "error", "exit_code")
OF_SECTION = ("chunker", "agent", "sandbox")


def only(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """These fields."""
    return {name: record[name] for name in names}


def kept(episode: Mapping[str, Any]) -> dict[str, Any]:
    """What credit depends on."""
    trajectory = episode["trajectory"]
    turns = [
        {
            "completion": {
                "message": only(turn["completion"]["message"], OF_MESSAGE),
                "finish_reason": turn["completion"]["finish_reason"],
            },
            "observations": [only(each, OF_OBSERVATION) for each in turn["observations"]],
        }
        for turn in trajectory["turns"]
    ]
    whole = {"turns": turns, "stop": trajectory["stop"]}
    return {**only(episode, OF_EPISODE), "trajectory": whole}


def main(run: Path, out: Path) -> None:
    """Write the folder anew."""
    manifest = json.loads((run / "manifest.json").read_text())
    types = {name: manifest["config"][name]["type"] for name in OF_SECTION}
    config = {name: {"type": of.rpartition("/")[2]} for name, of in types.items()}
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    out.mkdir(parents=True, exist_ok=True)
    described = {
        "schema": manifest["schema"],
        "run_id": out.name,
        "n_tasks": len({episode["task_id"] for episode in episodes}),
        "seed": manifest["seed"],
        "config": {**config, "credit": {"type": "ipa"}},
    }
    (out / "manifest.json").write_text(json.dumps(described, indent=2) + "\n")
    episodes.sort(key=lambda each: (each["task_id"], each["rollout"]))
    lines = [json.dumps(kept(episode), separators=(",", ":")) for episode in episodes]
    (out / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    shutil.copyfile(run / "forks" / "00000" / "values.jsonl", out / "values.jsonl")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
