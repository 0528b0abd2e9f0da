"""Strict reading: no implicit conversions, and problems with file, line and path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml
from attrs import field, frozen, validators
from attrs.validators import min_len

from ale.errors import InputError
from ale.plugin import doc, ge, optional
from ale.strict import (
    Former,
    NameOrPath,
    Node,
    former_options,
    parse_yaml,
    read_yaml,
    structure,
)


@frozen(kw_only=True)
class Inner:
    depth: int = 1


@frozen(kw_only=True)
class Options:
    image: str = field(default="x", metadata=doc("Image."))
    network: bool = False
    memory_mb: int = field(default=64, validator=ge(16))
    rate: float = 0.1
    mode: Literal["fast", "slow"] = "fast"
    names: tuple[str, ...] = ()
    folder: Path | None = None
    inner: Inner = Inner()
    extra: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Needy:
    path: str = field(metadata=doc("Where the tasks are."))


@frozen(kw_only=True)
class Named:
    model: NameOrPath | None = None


def problems(text: str, cls: type = Options) -> list[str]:
    with pytest.raises(InputError) as caught:
        structure(parse_yaml(text, file="c.yaml"), cls)
    return [str(problem) for problem in caught.value.problems]


def test_scalars_are_read_as_written() -> None:
    node = parse_yaml("a: 1e-5\nb: off\nc: true\nd: 0x10\ne: '3'\nf:\ng: -.inf\nh: 1_000\n")
    assert node.plain() == {
        "a": 1e-5,
        "b": "off",
        "c": True,
        "d": 16,
        "e": "3",
        "f": None,
        "g": float("-inf"),
        "h": "1_000",
    }


def test_the_word_off_is_text() -> None:
    assert problems("network: off") == [
        'c.yaml:1: network: expected true or false, found the text "off"\n    hint      write false'
    ]


def test_text_is_not_converted_to_a_number() -> None:
    assert problems("memory_mb: '64'") == [
        'c.yaml:1: memory_mb: expected a whole number, found the text "64"'
    ]


def test_an_unknown_option_names_the_nearest_one() -> None:
    (printed,) = problems("\nimge: x")
    assert printed.startswith("c.yaml:2: imge: unknown option\n    expected  one of extra, folder,")
    assert printed.endswith("did you mean 'image'?")


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1e999", "9" * 400])
def test_a_number_is_finite_since_json_has_no_other(value: str) -> None:
    (printed,) = problems(f"rate: {value}")
    assert printed.startswith("c.yaml:1: rate: expected a finite number, found the number ")


def test_every_problem_is_reported_at_once() -> None:
    printed = problems("memory_mb: 3\nmode: fas\nnames: x\ninner: {depth: a}\nrate: true\n")
    assert [line.splitlines()[0] for line in printed] == [
        "c.yaml:1: memory_mb: expected a value >= 16, found 3",
        'c.yaml:2: mode: expected one of fast, slow, found the text "fas"',
        'c.yaml:3: names: expected a list, found the text "x"',
        'c.yaml:4: inner.depth: expected a whole number, found the text "a"',
        "c.yaml:5: rate: expected a number, found true",
    ]


def test_a_bound_is_reported_with_the_bound_and_the_value() -> None:
    assert problems("memory_mb: 3") == ["c.yaml:1: memory_mb: expected a value >= 16, found 3"]


def test_a_missing_option_is_reported_with_its_description() -> None:
    assert problems("{}", Needy) == [
        "c.yaml:1: 'path' is missing\n    expected  Where the tasks are."
    ]


@frozen(kw_only=True)
class Preset:
    preset: Literal["ipa", "grpo"]
    mask: str = "chunk"


@frozen(kw_only=True)
class Chosen:
    objective: Literal["ipa", "grpo"] | Preset = "ipa"


def merged(above: str, below: str) -> Any:
    nodes = [parse_yaml(text, file=name) for text, name in ((above, "--set"), (below, "a.yaml"))]
    return Node({"objective": nodes[0].replacing(nodes[1])})


def test_text_replaced_by_a_mapping_becomes_its_one_required_option() -> None:
    assert structure(merged("{mask: none}", "grpo"), Chosen).objective == Preset(
        preset="grpo", mask="none"
    )
    given = structure(merged("{preset: ipa, mask: none}", "grpo"), Chosen)
    assert given.objective == Preset(preset="ipa", mask="none")
    with pytest.raises(InputError) as caught:
        structure(merged("{mask: none}", "grop"), Chosen)
    (problem,) = caught.value.problems
    assert (problem.file, problem.path) == ("a.yaml", "objective.preset")


def test_a_list_replaced_by_a_mapping_sets_no_option() -> None:
    with pytest.raises(InputError, match="'preset' is missing"):
        structure(merged("{mask: none}", "[grpo]"), Chosen)


def test_a_duplicate_key_is_a_problem() -> None:
    assert problems("image: a\nimage: b") == ["c.yaml:2: 'image' is given twice, first on line 1"]


def test_an_item_of_a_list_is_named_by_its_number() -> None:
    assert problems("names: [a, 3]") == [
        "c.yaml:1: names[1]: expected text, found the number 3\n    hint      put it in quotes"
    ]


@pytest.mark.parametrize("text", ["a: ]", "a: b: c", "\ta: 1", "a: !!python/object:x y", "<<: {}"])
def test_invalid_or_unsupported_yaml_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, file="c.yaml")
    assert caught.value.problems[0].line == 1


@pytest.mark.parametrize("reader", ["CBaseLoader", "BaseLoader"])
@pytest.mark.parametrize("text", ["\ta: 1", "a: 1\nb:\n  c: 1\n\td: 2\n", "a:\n  - x\n\t- y\n"])
def test_both_loaders_report_an_indent_with_tabs(
    text: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale.strict.reading._Loader", getattr(yaml, reader))
    with pytest.raises(InputError) as caught:
        parse_yaml(text)
    assert caught.value.problems[0].hint == "indent with spaces"


def test_a_syntax_error_without_tabs_has_no_hint_about_them() -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml("a: b: c\td")
    assert caught.value.problems[0].hint is None


def test_an_anchor_that_contains_itself_is_refused() -> None:
    with pytest.raises(InputError, match="contains itself"):
        parse_yaml("a: &x [*x]")


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InputError, match=r"c\.yaml:101: nested more than 100 levels deep"):
        parse_yaml("\n".join(" " * i + "a:" for i in range(600)), file="c.yaml")


def test_nested_aliases_are_read_fast() -> None:
    lines = ["a0: &a0 [x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)
    ]
    assert parse_yaml("\n".join(lines)).get("a29") is not None


def test_a_path_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("folder: ../tasks")
    made = structure(read_yaml(tmp_path / "c.yaml"), Options)
    assert made.folder == tmp_path.parent / "tasks"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * 300, "File name too long"),
        ("~nobody-here/x", "Could not determine home directory."),
        # The reason differs between versions of Python.
        ('"a\\0b"', ""),
        ("loop", ""),
    ],
)
@pytest.mark.parametrize(("option", "cls"), [("folder", Options), ("model", Named)])
def test_what_can_be_no_path_is_a_problem(
    text: str, reason: str, option: str, cls: type, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "c.yaml").write_text(f"{option}: {text}")
    with pytest.raises(InputError) as caught:
        structure(read_yaml(tmp_path / "c.yaml"), cls)
    assert f"c.yaml:1: {option}: expected a path: {reason}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("../models/mine", "{parent}/models/mine"),
        ("/models/mine", "/models/mine"),
        ("here", "{folder}/here"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
    ],
)
def test_what_may_be_a_name_is_a_path_if_it_looks_like_one_or_something_is_there(
    text: str, found: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "c.yaml").write_text(f"model: {text}")
    made = structure(read_yaml(tmp_path / "c.yaml"), Named)
    assert made.model == found.format(parent=tmp_path.parent, folder=tmp_path)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text("")
    with pytest.raises(InputError, match=r"no such file\n    hint      did you mean 'quickstart"):
        read_yaml(tmp_path / "quickstrat.yaml")


def test_a_link_to_nothing_does_not_suggest_itself(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(InputError, match=r"c\.yaml: no such file$"):
        read_yaml(tmp_path / "c.yaml")


def test_untyped_values_become_plain_python_values() -> None:
    made = structure(parse_yaml("extra: {a: [1, {b: x}]}"), Options)
    assert made.extra == {"a": [1, {"b": "x"}]}


def test_bad_values_are_reported_with_unknown_and_missing_keys() -> None:
    @frozen(kw_only=True)
    class Range:
        low: int = field(validator=ge(0))
        high: int
        step: int = field(default=1)

        @step.validator
        def _fits(self, attribute: object, value: int) -> None:
            if value > self.high - self.low:
                raise ValueError("expected a step that fits")

    assert problems("low: -1\nstep: 9\nhihg: 3\n", Range) == [
        "c.yaml:1: 'high' is missing",
        "c.yaml:1: low: expected a value >= 0, found -1",
        "c.yaml:3: hihg: unknown option\n"
        "    expected  one of high, low, step\n"
        "    hint      did you mean 'high'?",
    ]
    assert problems("low: 0\nstep: 9\nhigh: 3\n", Range) == [
        "c.yaml:2: step: expected a step that fits"
    ]


def test_a_default_that_contradicts_what_is_given_is_reported() -> None:
    @frozen(kw_only=True)
    class Kl:
        to: str = "start"
        model: str | None = None
        steps: int = field(default=4, validator=ge(1))

        @steps.validator
        def _fits(self, attribute: object, value: int) -> None:
            if self.to == "reference" and self.model is None:
                raise ValueError("'model' is missing for to: reference")

    assert problems("to: reference", Kl) == [
        "c.yaml:1: steps: 'model' is missing for to: reference"
    ]
    assert problems("{to: reference, model: [x]}", Kl) == [
        "c.yaml:1: model: expected text or null, found a list"
    ]
    assert structure(parse_yaml("to: start"), Kl) == Kl()


def test_an_option_that_null_turns_off_says_so_wherever_its_value_is_wrong() -> None:
    @frozen(kw_only=True)
    class Off:
        after: int | None = field(default=3, validator=optional(ge(1)))
        names: tuple[str, ...] | None = field(default=None, validator=optional(min_len(1)))
        mode: Literal["a", "b"] | None = None

    assert problems("{after: 0, names: []}", Off) == [
        "c.yaml:1: after: expected a value >= 1 or null, found 0",
        "c.yaml:1: names: expected a non-empty list or null, found an empty one",
    ]
    assert problems("{after: never, names: [1], mode: c}", Off) == [
        'c.yaml:1: after: expected a whole number or null, found the text "never"',
        "c.yaml:1: names[0]: expected text, found the number 1\n    hint      put it in quotes",
        'c.yaml:1: mode: expected one of a, b or null, found the text "c"',
    ]


def test_a_text_of_another_form_is_reported_with_the_form() -> None:
    @frozen(kw_only=True)
    class Server:
        base_url: str = field(validator=validators.matches_re(r"https?://[^\s]+"))

    assert problems("base_url: 'a: b'", Server) == [
        r'c.yaml:1: base_url: expected a text of the form https?://[^\s]+, found the text "a: b"'
    ]


@frozen(kw_only=True)
class Fewer:
    former_options: ClassVar[Mapping[str, Former]] = {
        "wait_s": Former(30.0),
        "account": Former(None, "flags: [--account=NAME]"),
        "flags": Former([]),
    }
    flags: tuple[str, ...] = ()


def test_a_former_option_is_passed_over_with_the_value_that_is_built_in() -> None:
    text = "wait_s: 30\naccount: null\nflags: [a]\n"
    assert structure(parse_yaml(text, file="c.yaml"), Fewer) == Fewer(flags=("a",))
    assert former_options(Fewer).keys() == {"wait_s", "account"}, "flags is there again"


def test_a_former_option_with_another_value_names_its_successor() -> None:
    assert problems("wait_s: 31\naccount: me\n", Fewer) == [
        "c.yaml:1: wait_s: option was removed\n"
        "    expected  a config without it: the number 30.0 is built in",
        "c.yaml:2: account: option was removed\n"
        "    expected  a config without it\n"
        "    hint      write flags: [--account=NAME]",
    ]
