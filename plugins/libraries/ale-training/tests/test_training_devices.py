"""Devices and dtypes from options, on a machine with or without a GPU."""

import pytest
import torch

from ale.errors import InputError
from ale_training.devices import resolve_device, resolve_dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_with_what_was_found() -> None:
    with pytest.raises(InputError) as refused:
        resolve_device("cuda", path="llm.device")
    (problem,) = refused.value.problems
    assert problem.path == "llm.device"
    built = f"built for {'the CPU alone' if torch.version.cuda is None else 'CUDA'}"
    assert problem.message.startswith(f"torch {torch.__version__}, which is {built}")
    assert problem.message.endswith("finds no GPU here")
    assert problem.hint == "device: auto uses the CPU"


def test_auto_takes_a_gpu_where_there_is_one_and_its_number_format() -> None:
    found = resolve_device("auto", path="device")
    assert found.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu", path="device").type == "cpu"
    formats = [resolve_dtype("auto", torch.device(each)) for each in ("cpu", "cuda")]
    assert formats == [torch.float32, torch.bfloat16]
    assert resolve_dtype("bfloat16", torch.device("cpu")) is torch.bfloat16
