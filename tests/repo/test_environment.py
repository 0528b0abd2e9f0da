"""The page about variables names keys that a config has."""

import re
from pathlib import Path

import attrs
import pytest

from ale._config.model import RunOptions
from ale._registry import Registry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "environment.md"
KEYS = sorted(set(re.findall(r"ALE_([A-Z]+)__([A-Z_]+)", PAGE.read_text())) - {("SECTION", "KEY")})


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.installed()


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_variable_is_a_key_of_some_config(section: str, key: str, registry: Registry) -> None:
    if section == "RUN":
        known = {option.name for option in attrs.fields(RunOptions)}
    else:
        kinds = registry.registrations(section.lower())
        options = [each.component.options for each in kinds]
        known = {field.name for cls in options if cls is not None for field in attrs.fields(cls)}
    assert key.lower() in {"type", *known}
