"""The schema of a config accepts and refuses the same configs as the reader."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from attrs import field, frozen, validators

from ale.errors import InputError
from ale.plugin import Component, doc, ge, gt, hookimpl, le
from ale.runs import Registry, check_config
from ale.strict import parse_yaml
from ale.testing.builders import task
from ale.testing.fakes import FolderBackend
from ale.types import CriterionSpec
from ale_workbench.schema.config import config_schema


@frozen(kw_only=True)
class Inner:
    size: int = field(validator=ge(1), metadata=doc("How large."))
    words: tuple[str, ...] = ()


@frozen(kw_only=True)
class Options:
    flag: bool = False
    count: int | None = field(default=None, validator=validators.optional(ge(1)))
    share: float = field(default=0.5, validator=validators.and_(gt(0), le(1)))
    url: str = field(default="http://here", validator=validators.matches_re(r"https?://\S+"))
    name: str = field(default="x", validator=validators.min_len(1))
    file: Path | None = None
    mode: Literal["one", "two"] = "one"
    pair: tuple[float, float] = (0.0, 1.0)
    span: int | tuple[int, int] = 1
    env: Mapping[str, str] = field(factory=dict)
    free: Mapping[str, Any] = field(factory=dict)
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(factory=dict)
    either: Literal["small"] | Inner = "small"


@frozen(kw_only=True)
class Needy:
    path: str = field(metadata=doc("It must be given."))


class Product:
    """Has the members that each protocol requires; only `load` is called."""

    capabilities = FolderBackend.capabilities
    name = "product"
    aclose = assign = complete = grade = limits = list = open = prune = restore = run = split = None

    def load(self) -> Sequence[Any]:
        return [task("t", criteria=(CriterionSpec(type="held"),))]

    @hookimpl
    def ale_run_started(self) -> None: ...


def part(name: str, options: type | None = None, **more: Any) -> Component[Any, Any]:
    make: Callable[[Any, Any], Any] = lambda options, context: Product()  # noqa: E731
    return Component(name, options, make, summary=f"The {name}.", **more)


class Package:
    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        return [part("list"), part("needy", Needy), part("rich", Options), part("twice")]

    @hookimpl
    def ale_sandboxes(self) -> Sequence[Component[Any, Any]]:
        return [part("box", priority=1)]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        return [part("model")]

    @hookimpl
    def ale_agents(self) -> Sequence[Component[Any, Any]]:
        return [part("alone"), part("talks", needs=("llm",))]

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [part("interaction", Options)]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [part("ipa")]

    @hookimpl
    def ale_criteria(self) -> Sequence[Component[Any, Any]]:
        return [part("held")]

    @hookimpl
    def ale_observers(self) -> Sequence[Component[Any, Any]]:
        return [part("console"), part("page", Needy)]


class Other:
    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        return [part("twice")]


@pytest.fixture(scope="module")
def registry() -> Registry:
    made = Registry()
    made.add(Package(), "a-package", "1.0")
    made.add(Other(), "other-package", "1.0")
    return made


@pytest.fixture(scope="module")
def validator(registry: Registry) -> Any:
    schema = config_schema(registry)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def rich(options: str) -> str:
    return f"tasks: {{type: rich, {options}}}\nagent: {{type: alone}}\n"


ACCEPTED = (
    "tasks: {type: list}\nagent: {type: alone}\n",
    "tasks: {type: a-package/list}\nagent: {type: a-package/alone}\n",
    "tasks: {type: other-package/twice}\nagent: {type: alone}\n",
    "tasks: {type: list}\nagent: {type: talks}\nllm: {type: model}\n",
    "tasks: {type: needy, path: x}\nagent: {type: alone}\nllm:\nobservers:\nrun:\n",
    "tasks: {type: list}\nagent: {type: alone}\nchunker: {count: 2}\nsandbox: {type: auto}\n",
    "tasks: {type: list}\nagent: {type: alone}\nobservers: [{type: page, path: x}]\n",
    "tasks: {type: list}\nagent: {type: alone}\nrun: {rollouts: 2, open_timeout_s: 1}\n",
    "tasks: {type: list}\nagent: {type: alone}\nsandbox: {type: box, require: []}\n",
    "tasks: {type: list}\nagent: {type: alone}\nplugins: []\n",
    "tasks: {type: list}\nagent: {type: alone}\nevaluation: {tasks: {type: list}, every: 2}\n",
    *map(
        rich,
        (
            "flag: true, count: 1, share: 1, url: 'https://x', name: y, file: z, mode: two",
            "count: null, file: null, inner: null, pair: [0, 1.5], span: [1, 2]",
            "span: 3, env: {A: b}, free: {deep: [1, {er: null}]}",
            "inner: {size: 1, words: [a]}, inners: [{size: 1}], by_name: {a: {size: 2}}",
            "either: small",
            "either: {size: 3}",
        ),
    ),
)
REFUSED = (
    "tasks: {type: list}\n",
    "agent: {type: alone}\n",
    "tasks:\nagent: {type: alone}\n",
    "tasks: list\nagent: {type: alone}\n",
    "tasks: {type: lost}\nagent: {type: alone}\n",
    "tasks: {type: twice}\nagent: {type: alone}\n",
    "tasks: {type: list, path: x}\nagent: {type: alone}\n",
    "tasks: {path: x}\nagent: {type: alone}\n",
    "tasks: {type: needy}\nagent: {type: alone}\n",
    "tasks: {type: list}\nagent: {type: talks}\n",
    "tasks: {type: list}\nagent: {type: talks}\nllm:\n",
    "tasks: {type: list}\nagent: {type: alone}\nllm: {}\n",
    "tasks: {type: list}\nagent: {type: alone}\ntaks: {}\n",
    "tasks: {type: list}\nagent: {type: alone}\nchunker: {counts: 2}\n",
    "tasks: {type: list}\nagent: {type: alone}\nobservers: {type: console}\n",
    "tasks: {type: list}\nagent: {type: alone}\nobservers: [{type: page}]\n",
    "tasks: {type: list}\nagent: {type: alone}\nobservers: [console]\n",
    "tasks: {type: list}\nagent: {type: alone}\nrun: {rollouts: 0}\n",
    "tasks: {type: list}\nagent: {type: alone}\nrun: {rolouts: 1}\n",
    "tasks: {type: list}\nagent: {type: alone}\nevaluation: {every: 2}\n",
    "tasks: {type: list}\nagent: {type: alone}\nevaluation: {tasks: {type: lost}}\n",
    *map(
        rich,
        (
            "flag: 'off'",
            "count: 0",
            "count: 1.5",
            "count: true",
            "share: 0",
            "share: 1.1",
            "share: '1'",
            "url: ftp://x",
            "name: ''",
            "file: 3",
            "mode: three",
            "pair: [1]",
            "pair: [1, 2, 3]",
            "pair: 1",
            "span: [1]",
            "env: {A: 1}",
            "env: [A]",
            "inner: {}",
            "inner: {size: 0}",
            "inner: {size: 1, sizes: 2}",
            "inners: [{}]",
            "inners: {size: 1}",
            "by_name: {a: {}}",
            "either: large",
            "either: {size: x}",
            "more: 1",
        ),
    ),
)


@pytest.mark.parametrize("text", ACCEPTED)
def test_schema_and_reader_accept_the_same(
    text: str, tmp_path: Path, registry: Registry, validator: Any
) -> None:
    (tmp_path / "run.yaml").write_text(text)
    resolved = check_config(tmp_path / "run.yaml", registry).config
    validator.validate(parse_yaml(text).plain())
    validator.validate(resolved)


@pytest.mark.parametrize("text", REFUSED)
def test_schema_and_reader_refuse_the_same(
    text: str, tmp_path: Path, registry: Registry, validator: Any
) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(InputError):
        check_config(tmp_path / "run.yaml", registry)
    assert not validator.is_valid(parse_yaml(text).plain())


@pytest.mark.parametrize(
    "text", ["tasks: {path: x}\n", "chunker: {inner: {words: [a]}}\n", "agent: {type: talks}\n"]
)
def test_what_another_file_may_have_can_be_left_out(
    text: str, tmp_path: Path, registry: Registry, validator: Any
) -> None:
    base = "tasks: {type: needy, path: y}\nagent: {type: alone}\nllm: {type: model}\n"
    (tmp_path / "base.yaml").write_text(f"{base}chunker: {{inner: {{size: 1}}}}\n")
    text = f"extends: base.yaml\n{text}"
    (tmp_path / "run.yaml").write_text(text)
    check_config(tmp_path / "run.yaml", registry)
    validator.validate(parse_yaml(text).plain())
    text = text.replace("extends: base.yaml\n", "")
    assert not validator.is_valid(parse_yaml(text).plain())


def test_an_extending_file_may_still_hold_no_nonsense(validator: Any) -> None:
    for text in ("taks: {}", "tasks: {type: lost}", "run: {rollouts: 0}", "extends: {}"):
        plain = {"extends": "base.yaml", **parse_yaml(text).plain()}
        assert not validator.is_valid(plain), text


def test_the_sections_are_those_that_the_reader_knows(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "run.yaml").write_text("nonsense: {}\n")
    with pytest.raises(InputError) as refused:
        check_config(tmp_path / "run.yaml", registry)
    (unknown,) = (p for p in refused.value.problems if p.message == "unknown section")
    assert unknown.expected is not None
    known = unknown.expected.removeprefix("one of ").split(", ")
    assert set(config_schema(registry)["properties"]) == {"extends", *known}


def test_it_tells_what_the_options_are(registry: Registry) -> None:
    made = config_schema(registry)
    tasks = made["properties"]["tasks"]["properties"]["type"]
    assert "needy: The needy." in tasks["description"].splitlines()
    options = made["$defs"]["tasks:a-package:needy"]
    assert options["description"] == "The needy."
    assert options["properties"]["path"] == {"type": "string", "description": "It must be given."}
    assert made["properties"]["run"]["properties"]["seed"]["default"] == 0
    assert made["$id"] == "urn:ale:config:1"
