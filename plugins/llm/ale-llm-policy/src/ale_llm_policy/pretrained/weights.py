"""Copy weights into a model, in place, all or none; and write them into files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

import ale_servers.tensors
from ale.errors import InputError
from ale_servers.tensors import Hashed

_PATH = "weights"
_MAX_FILE = 4 << 30
"""Most bytes of one file."""


def load(model: Any, source: Any) -> None:
    """Copy weights into `model`.

    Args:
        model: a module.
        source: a mapping of parameter names to tensors, or a folder that holds ``*.safetensors``.
            All parameters must be there; tied ones once. Buffers may be left out.

    Raises:
        InputError: a name is missing or unknown, a shape differs, or a file can't be read.
    """
    given: Mapping[str, torch.Tensor]
    given = read(Path(source)) if isinstance(source, str | Path) else source
    if not isinstance(given, Mapping):
        raise InputError.of(
            f"weights of type {type(given).__name__}",
            path=_PATH,
            expected="a mapping of names to tensors, or a folder",
        )
    own = _own(model)
    _check(model, own, given)
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def check(model: Any, given: Mapping[str, torch.Tensor]) -> None:
    """Raises `InputError` if `load` would; changes nothing."""
    _check(model, _own(model), given)


def _own(model: Any) -> dict[str, Any]:
    return {**dict(model.named_buffers()), **dict(model.named_parameters(remove_duplicate=False))}


def drop(model: Any) -> None:
    """Free the memory of a model's parameters. They keep their shapes; every value is NaN."""
    for each in model.parameters():
        each.data = torch.full((), torch.nan, dtype=each.dtype, device=each.device).expand_as(each)


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """The digest of names, types, shapes and values: `ale_servers.tensors.digest`."""

    def hashed(name: str) -> Hashed:
        tensor = tensors[name].detach()
        values = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        read = lambda begin, end: values[begin:end]  # noqa: E731
        return Hashed(name, str(tensor.dtype), tuple(tensor.shape), values.nbytes, read)

    return ale_servers.tensors.digest(map(hashed, sorted(tensors)))


def write(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors as safetensors, in several files where they are large."""
    files: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if files[-1] and size + tensor.nbytes > _MAX_FILE:
            files.append({})
            size = 0
        files[-1][name] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
    for number, part in enumerate(files):
        save_file(part, folder / f"model-{number:05d}.safetensors")


def _check(model: Any, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    unknown = sorted(given.keys() - own.keys())
    parts = {own[name].data_ptr() for name in given if name in own}
    lacking = sorted(name for name, w in model.named_parameters() if w.data_ptr() not in parts)
    if unknown or lacking:
        names = ", ".join((unknown or lacking)[:3])
        what = "has no parameters" if unknown else "is not given its parameters"
        raise InputError.of(
            f"the model {what} {names}", path=_PATH, hint="are they of another model?"
        )
    for name, tensor in given.items():
        if tuple(tensor.shape) != tuple(own[name].shape):
            raise InputError.of(
                f"{name} has the shape {tuple(tensor.shape)}",
                path=_PATH,
                expected=f"{tuple(own[name].shape)}",
                hint="are they of another model?",
            )


def read(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the ``*.safetensors`` files of a folder.

    Raises:
        InputError: there are no such files, or one can't be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError.of(f"no *.safetensors in {folder}", path=_PATH)
    found: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                found |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError.of(f"{file} can't be read: {error}", path=_PATH) from error
    return found
