"""What records say beyond their fields."""

import pytest

from ale.testing.builders import task


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [({"environment": "swe"}, "swe"), ({"environment": "moon"}, None), ({}, None)],
)
def test_a_task_says_what_kind_of_environment_it_is_about(
    metadata: dict[str, str], kind: str | None
) -> None:
    assert task(metadata=metadata).environment_kind == kind
