"""What records say beyond their fields."""

import pytest

from ale import errors
from ale.testing.builders import task


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [({"environment": "swe"}, "swe"), ({"environment": "moon"}, None), ({}, None)],
)
def test_a_task_says_what_kind_of_environment_it_is_about(
    metadata: dict[str, str], kind: str | None
) -> None:
    assert task(metadata=metadata).environment_kind == kind


def test_every_error_is_in_the_reference() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = {kind.__name__ for kind in kinds if issubclass(kind, errors.AleError)}
    assert not raised - set(errors.__all__)
