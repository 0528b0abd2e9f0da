"""The model card: what was trained, on what and how, the results, and how to load the model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ale_trainer_trl.learning.options import Training
from ale_trainer_trl.learning.packages import NEEDED, installed
from ale_trainer_trl.learning.progress import Trained

PAPERS = {
    "dpo": ("Direct preference optimisation", "2305.18290"),
    "grpo": ("Group-relative policy optimisation", "2402.03300"),
}


def write_card(training: Training, trained: Trained, data: str) -> None:
    """Write ``README.md`` into the training's folder.

    Args:
        data: fingerprint of the training data.
    """
    name, paper = PAPERS[trained.method]
    what = "LoRA adapter" if trained.adapter else "model"
    parts = [
        _head(training, trained),
        f"# {training.output_dir.name}\n\nA {what}, trained from `{training.model_name_or_path}`.\n"
        f"{name} ([arXiv:{paper}](https://arxiv.org/abs/{paper})) with TRL, called by `ale`.",
        _section("Data", _data(training, trained, data)),
        _section("Training", _options(training)),
        _section("Measured", {key: f"{value:.6g}" for key, value in trained.metrics.items()}),
        "## Loading\n\n```python\n" + _loading(training, trained) + "```",
        _section("Versions", {each: installed(each) or "" for each in NEEDED}),
        "Nothing was measured beyond what stands above.",
    ]
    (training.output_dir / "README.md").write_text("\n\n".join(parts) + "\n")


def _head(training: Training, trained: Trained) -> str:
    fields = {
        "base_model": training.model_name_or_path,
        "library_name": "peft" if trained.adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["ale", "trl", trained.method, *(["lora"] if trained.adapter else [])],
    }
    # JSON is YAML.
    lines = [f"{key}: {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---"])


def _data(training: Training, trained: Trained, data: str) -> dict[str, Any]:
    return {
        "file": f"`{training.dataset_path}`",
        "rows trained on": trained.rows,
        **{f"left out, {why}": n for why, n in trained.left_out.items()},
        "SHA-256 of the token ids" if trained.method == "dpo" else "SHA-256": f"`{data}`",
    }


def _options(training: Training) -> dict[str, Any]:
    left = {"model_name_or_path", "dataset_path", "output_dir", "resume", "merge"}
    values = {
        each.name: getattr(training, each.name)
        for each in attrs.fields(type(training))
        if each.name not in left
    }
    if training.lora is not None:
        given = attrs.asdict(training.lora)
        values["lora"] = ", ".join(f"{key} {value}" for key, value in given.items())
    return values


def _section(title: str, values: Mapping[str, Any]) -> str:
    rows = [f"| {key} | {value} |" for key, value in values.items()]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *rows])


def _loading(training: Training, trained: Trained) -> str:
    where = json.dumps(str(Path(training.output_dir)))
    if not trained.adapter:
        return (
            "from transformers import AutoModelForCausalLM\n\n"
            f"model = AutoModelForCausalLM.from_pretrained({where})\n"
        )
    base = json.dumps(training.model_name_or_path)
    return (
        "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        f"base = AutoModelForCausalLM.from_pretrained({base})\n"
        f"model = PeftModel.from_pretrained(base, {where})\n"
    )
