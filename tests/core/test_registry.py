"""The registry: a broken package is recorded and named; every other one works."""

import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from ale._registry import FORMER, Registry
from ale.errors import PluginError
from ale.plugin import BuildContext, Component, hookimpl


@frozen(kw_only=True)
class WithType:
    type: str = "x"


def package(**hooks: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{name: hookimpl(hook) for name, hook in hooks.items()})


def agent(name: str) -> Component[Any, Any]:
    return Component(name, None, lambda o, c: object(), summary="An agent.")


def test_a_component_is_found_by_its_name(registry: Registry) -> None:
    assert registry.find("agent", "bench").distribution == "ale-bench"


def test_an_unknown_name_lists_the_installed_ones(registry: Registry) -> None:
    with pytest.raises(PluginError, match="no agent 'iflow'; installed: bench"):
        registry.find("agent", "iflow")


def test_of_two_packages_with_one_name_either_can_be_chosen_by_its_full_name(
    registry: Registry,
) -> None:
    registry.add(package(ale_agents=lambda: [agent("bench")]), "ale-other")
    with pytest.raises(PluginError, match="write ale-bench/bench or ale-other/bench to choose one"):
        registry.find("agent", "bench")
    assert registry.find("agent", "ale-other/bench").distribution == "ale-other"


def test_a_package_that_has_gone_into_another_is_found_by_its_former_name() -> None:
    registry = Registry()
    registry.add(package(ale_agents=lambda: [agent("x")]), "ale-look")
    assert registry.find("agent", "ale-inspect/x") is registry.find("agent", "ale-look/x")
    with pytest.raises(PluginError, match="no agent 'ale-loop/x'"):
        registry.find("agent", "ale-loop/x")
    with pytest.raises(PluginError, match="; ale-hints is a part of ale-middleware now"):
        registry.find("agent", "ale-hints/x")


def test_every_package_that_is_no_more_has_gone_into_one_that_is_there() -> None:
    root = Path(__file__).parents[2]
    there = {path.parent.name for path in root.glob("plugins/*/*/pyproject.toml")}
    assert set(FORMER.values()) <= there
    assert not FORMER.keys() & there


def test_a_hook_that_does_not_exist_names_the_nearest_one() -> None:
    registry = Registry()
    registry.add(package(ale_agent=lambda: []), "ale-typo")
    assert not registry.packages
    assert "did you mean 'ale_agents'?" in registry.failed[0].message


def test_options_are_imported_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from attrs import frozen\n\n@frozen\nclass Late:\n    pass\n"
    (tmp_path / "late_options.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry()
    late = evolve(agent("x"), options="late_options:Late")
    registry.add(package(ale_agents=lambda: [late]), "ale-late")
    assert registry.find("agent", "x").component is late
    assert "late_options" not in sys.modules
    found = late.options
    assert found is not None
    assert found.__name__ == "Late"


def test_a_hook_with_a_wrong_argument_fails_to_load() -> None:
    registry = Registry()
    registry.add(package(ale_agents=lambda context: []), "ale-wrong")
    (broken,) = registry.failed
    assert "context" in broken.message


async def _async(event: Any) -> None:
    raise AssertionError("never runs")


def _generator(event: Any) -> Any:
    yield


@pytest.mark.parametrize("hook", [_async, _generator])
def test_a_hook_that_is_a_generator_or_coroutine_fails_to_load(hook: Any) -> None:
    registry = Registry()
    registry.add(package(ale_episode_finished=hook), "ale-wrong")
    (broken,) = registry.failed
    assert "ale_episode_finished must be a plain function" in broken.message
    assert not registry.packages


def test_an_event_hook_with_a_misspelt_argument_fails_to_load() -> None:
    registry = Registry()
    registry.add(package(ale_episode_finished=lambda evnt: None), "ale-wrong")
    (broken,) = registry.failed
    assert "{'evnt'}" in broken.message
    assert not registry.packages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "'name' must be <class 'str'>"),
        ({"name": ""}, "'name' must match"),
        ({"name": "a b"}, "'name' must match"),
        ({"name": "a/b"}, "'name' must match"),
        ({"options": dict}, "'options' must be an attrs class, the name of one as 'module:Class'"),
        ({"options": {}}, "'options' must be an attrs class, the name of one as 'module:Class'"),
        ({"options": "options.Mine"}, "or None, got 'options.Mine'"),
        ({"options": WithType}, "an option can't be named 'type'"),
        ({"build": None}, "'build' must be a function, or the name of a class or function"),
        ({"build": "parts.Mine"}, "'module:Class', got 'parts.Mine'"),
        ({"summary": None}, "'summary' must be <class 'str'>"),
        ({"probe": True}, "'probe' must be callable"),
    ],
)
def test_an_invalid_component_is_recorded_with_its_package(
    registry: Registry, changes: Any, message: str
) -> None:
    registry.add(package(ale_agents=lambda: [evolve(agent("x"), **changes)]), "ale-broken")
    assert [registration.distribution for registration in registry.registrations("agent")] == [
        "ale-bench"
    ] * 2
    (broken,) = registry.failed
    assert message in broken.message
    assert "Attribute(" not in broken.message


@pytest.mark.parametrize("given", ["ale.no_such_module:Options", "ale.plugin:NoSuchClass"])
def test_what_can_not_be_imported_is_named(given: str) -> None:
    made = evolve(agent("x"), options=given, build=given)
    with pytest.raises(PluginError, match=f"'options' of 'x' can't be imported from {given}: "):
        _ = made.options
    with pytest.raises(PluginError, match=f"'build' of 'x' can't be imported from {given}: "):
        made.build(None, BuildContext())


@pytest.mark.parametrize(
    ("name", "made"), [("options_alone", "o"), ("both", ("o", 7)), ("context_alone", 7)]
)
def test_what_is_named_gets_the_arguments_that_it_has(
    name: str, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = types.ModuleType("some_parts")
    vars(parts).update(
        options_alone=lambda options: options,
        both=lambda options, context: (options, context.seed),
        context_alone=lambda *, context: context.seed,
    )
    monkeypatch.setitem(sys.modules, "some_parts", parts)
    component = evolve(agent("x"), build=f"some_parts:{name}")
    assert component.build("o", BuildContext(seed=7)) == made


def test_named_options_that_are_no_attrs_class_are_refused() -> None:
    made = evolve(agent("x"), options="ale.plugin:doc")
    with pytest.raises(PluginError, match="are no attrs class"):
        _ = made.options


def test_named_options_with_one_that_is_named_type_are_refused() -> None:
    made = evolve(agent("x"), options=f"{__name__}:WithType")
    with pytest.raises(PluginError, match="'x': an option can't be named 'type'"):
        _ = made.options


def _raise() -> Sequence[Component[Any, Any]]:
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_raise, "RuntimeError: no luck"),
        (lambda: agent("x"), "expected a list of Component"),
        (lambda: ["x"], "expected a Component, got 'x'"),
        (lambda: [agent("x"), agent("x")], "the name 'x' is registered twice"),
    ],
)
def test_a_broken_hook_is_named_and_other_packages_work(
    registry: Registry, answer: Any, message: str
) -> None:
    registry.add(package(ale_agents=answer), "ale-broken")
    assert registry.find("agent", "bench").component.name == "bench"
    with pytest.raises(PluginError, match="ale-broken may register it") as caught:
        registry.find("agent", "x")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2
    assert "Traceback" in registry.failed[0].traceback


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise SystemExit('never')", "SystemExit: never"),
        ("import ale_answers.read", "'ale_answers'; ale-answers is a part of ale-grading now"),
    ],
)
def test_a_package_that_fails_to_import_fails_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: str
) -> None:
    (tmp_path / "sick_module.py").write_text(code)
    info = tmp_path / "ale_sick-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: ale-sick\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ale]\nplugin = sick_module\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    registry = Registry.installed()
    assert registry.failed[0].distribution == "ale-sick"
    assert error in registry.failed[0].message
    assert "sick_module.py" in registry.failed[0].traceback
