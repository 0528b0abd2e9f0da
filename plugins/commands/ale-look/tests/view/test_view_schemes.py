"""The credit of other schemes, as a copy of the page has it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.errors import AleError
from ale.plugin import Component, hookimpl
from ale.runs import Registry, RunReader
from ale.testing.fakes import FakeCreditScheme
from ale_look.inspect.recrediting import creditings, recredited
from ale_look.view.schemes import OtherSchemes

from .conftest import begin_run


class Refusing(FakeCreditScheme):
    """A scheme that can credit nothing."""

    def assign(self, group: Any) -> Any:
        raise AleError("it needs what this run has not")


class More:
    """A scheme that fails, first in the alphabet."""

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        made = Refusing(scale=1.0, name="a-refusing")
        return [Component("a-refusing", None, lambda o, c: made, summary="Nothing.")]


@pytest.mark.parametrize("refusing", [False, True])
def test_it_is_the_credit_that_is_computed_again(
    runs: Path, registry: Registry, refusing: bool
) -> None:
    if refusing:
        registry.add(More(), "ale-more", "1.0")
    run = RunReader(runs / "first")
    found = OtherSchemes(run, registry, plugin_files=False).credits({(0, "rename")})
    again = recredited(run, creditings(run, ["double", "single"], registry, plugin_files=False))
    expected = {
        rollout.episode.id: {each.scheme: [*each.weights] for each in credits}
        for rollout, credits in again
    }
    assert {
        name: {each["scheme"]: each["weights"] for each in rows} for name, rows in found.items()
    } == expected
    assert sorted(expected) == ["0-rename-0", "0-rename-1"], "the broken one has none"


def test_a_run_without_a_chunker_has_no_other_schemes(runs: Path, registry: Registry) -> None:
    store = begin_run(runs / "plain")
    store.close()
    manifest = runs / "plain" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"chunker"', '"other"'))
    made = OtherSchemes(RunReader(runs / "plain"), registry, plugin_files=False)
    assert (made.names, made.credits({(0, "rename")})) == ([], {})
