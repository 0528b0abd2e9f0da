"""Which errors of torch are a lack of memory."""

from collections.abc import Callable

import pytest
import torch

from ale.errors import AleError
from ale_training.memory import naming_lack_of_memory


def too_much() -> None:
    torch.empty(1 << 60)


def on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.32 GiB.")


def at_the_first_use_of_a_gpu() -> None:
    raise RuntimeError("CUDA error: out of memory")


@pytest.mark.parametrize("fails", [too_much, on_a_gpu, at_the_first_use_of_a_gpu])
def test_a_lack_of_memory_is_named_with_what_to_change(fails: Callable[[], None]) -> None:
    with (
        pytest.raises(AleError, match=r"(?s)the step needs more memory.*memory.*Train less\."),
        naming_lack_of_memory("the step", "Train less."),
    ):
        fails()


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), naming_lack_of_memory("the step", "no"):
        raise RuntimeError("shapes differ")
