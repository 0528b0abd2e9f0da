"""Config files of another format: detection, overrides, conversion and errors."""

import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from ale._config import RunConfig, load_config
from ale._registry import Registry
from ale._run.start import Host
from ale.errors import InputError
from ale.plugin import ConfigFormat, Converted, Probe, Secret, hookimpl
from ale.strict import Node, from_plain

KEY = "a-key-written-in-a-file"


@frozen
class Short:
    """The format ``short``: ``n: 3`` is so many tasks, and ``key`` is a key."""

    environ: Mapping[str, Secret]

    def reads(self, root: Node) -> bool:
        return root.get("n") is not None

    def convert(self, root: Node, probe: Callable[[str, str], Probe | None]) -> Converted:
        assert probe("agent", "bench") is None
        plain = {"agent": {"type": "bench"}, "run": {"name": "short"}, "chunker": {}}
        tree = from_plain(plain, file=root.file)
        n = root.get("n") or Node(1)
        assert tree.mapping is not None
        tree.mapping["tasks"] = Node({"type": Node("list"), "n": n}, root.file, n.line)
        del tree.mapping["chunker"]
        return Converted(root=tree, environ=self.environ)


def register(registry: Registry, answer: Any, package: str = "ale-short") -> None:
    hook = hookimpl(lambda: answer, specname="ale_config_formats")
    registry.add(types.SimpleNamespace(ale_config_formats=hook), package)


@pytest.fixture
def formats(registry: Registry) -> Registry:
    short = Short({"SHORT_KEY": Secret(KEY)})
    register(
        registry,
        [ConfigFormat(name="short", reads=short.reads, convert=short.convert, keys=lambda: ["n"])],
    )
    assert not registry.failed
    return registry


def load(
    tmp_path: Path, registry: Registry, text: str, *overrides: str, format: str | None = None
) -> RunConfig:
    (tmp_path / "c.yaml").write_text(text)
    return load_config(tmp_path / "c.yaml", registry, overrides, format)


def refused(tmp_path: Path, registry: Registry, text: str, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, registry, text, **more)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_file_is_converted_if_its_keys_identify_a_format(
    tmp_path: Path, formats: Registry
) -> None:
    config = load(tmp_path, formats, "n: 3\n")
    assert (config.tasks.options.n, config.run.name) == (3, "short")


def test_a_file_in_the_own_format_is_not_converted(tmp_path: Path, formats: Registry) -> None:
    config = load(tmp_path, formats, "tasks: {type: list}\nagent: {type: bench}\n")
    assert config.run.name is None


def test_a_format_can_be_named_if_the_keys_do_not_identify_it(
    tmp_path: Path, formats: Registry
) -> None:
    assert "section 'tasks' is missing" in refused(tmp_path, formats, "")
    assert load(tmp_path, formats, "", format="short").tasks.options.n == 1


def test_other_overrides_are_applied_after_the_conversion(
    tmp_path: Path, formats: Registry
) -> None:
    assert load(tmp_path, formats, "n: 3\n", "tasks.n=5", "run.seed=7").run.seed == 7


def test_an_override_of_a_key_of_the_format_is_applied_before_the_conversion(
    tmp_path: Path, formats: Registry
) -> None:
    assert load(tmp_path, formats, "n: 3\n", "n=5").tasks.options.n == 5
    assert load(tmp_path, formats, "n: 3\n", "n=5", "tasks.n=6").tasks.options.n == 6


def test_a_problem_keeps_its_line_in_the_file(tmp_path: Path, formats: Registry) -> None:
    assert refused(tmp_path, formats, "\nn: 0\n").startswith("c.yaml:2: tasks.n: ")


def test_an_unknown_format_is_refused(tmp_path: Path, formats: Registry) -> None:
    assert "no package reads the format 'long'" in refused(tmp_path, formats, "n: 1", format="long")


def test_two_formats_that_claim_one_file_are_both_named(tmp_path: Path, formats: Registry) -> None:
    other = ConfigFormat(name="other", reads=lambda root: True, convert=Short({}).convert)
    register(formats, [other], "ale-other")
    printed = refused(tmp_path, formats, "n: 1")
    assert printed == "c.yaml:1: --format: can be read as short and as other"
    assert load(tmp_path, formats, "n: 1", format="short").tasks.options.n == 1


def test_a_hook_that_returns_no_list_of_formats_is_recorded(
    tmp_path: Path, registry: Registry
) -> None:
    register(registry, "short")
    assert load(tmp_path, registry, "tasks: {type: list}\nagent: {type: bench}\n").tasks
    (broken,) = registry.failed
    assert "ale_config_formats" in broken.message


def test_an_api_key_in_the_file_is_in_the_runs_environment_and_not_stored(
    tmp_path: Path, formats: Registry
) -> None:
    config = load(tmp_path, formats, "n: 3\n")
    outside = Host(registry=formats, environ={"OTHER": "x"})
    context = outside.context(config, tmp_path, "run")
    assert context.secret("SHORT_KEY") == Secret(KEY)
    assert context.environ["OTHER"] == "x"
    assert outside.redactor(config).scrub(KEY.encode()) == b"***"
    assert KEY not in repr(config) + str(config.resolved)
