"""Which names are valid, and what is suggested for the others."""

import pytest

from ale_workbench.new.kinds import KINDS, kind_named
from ale_workbench.new.names import Names, names
from ale_workbench.new.workspaces import WORKSPACES

CRITERION = KINDS["criterion"]


@pytest.mark.parametrize(
    ("kind", "name", "component"),
    [
        ("criterion", "ale-criterion-min-size", "min_size"),
        ("criterion", "ale-criteria-more", "more"),
        ("credit", "ale-credit-flat", "flat"),
        ("credit", "ale-credit-scheme-flat", "flat"),
        ("starts", "ale-starts-late", "late"),
        ("starts", "ale-start-scheme-late", "late"),
        ("tasks", "ale-tasks-csv", "csv"),
        ("observer", "ale-observe-slack", "slack"),
        ("llm", "acme-models", "acme-models"),
        ("llm", "ale-sandbox-2", "sandbox-2"),
        ("sandbox", "ale-sandbox", "sandbox"),
        ("credit", "ale-credit-scheme", "scheme"),
    ],
)
def test_a_component_is_named_after_its_package(kind: str, name: str, component: str) -> None:
    assert names(name, KINDS[kind]) == Names(
        distribution=name, module=name.replace("-", "_"), component=component
    )


def test_a_class_is_named_after_its_component() -> None:
    assert names("ale-criterion-min-size-2", CRITERION).class_name == "MinSize2"


def test_a_class_whose_component_begins_with_a_digit_is_named_after_the_package() -> None:
    assert names("ale-criterion-2-files", CRITERION).class_name == "AleCriterion2Files"


@pytest.mark.parametrize(
    ("name", "reason", "suggestion"),
    [
        ("MinSize", "not a normalised name", "min-size"),
        ("min_size", "not a normalised name", "min-size"),
        ("min--size-", "not a normalised name", "min-size"),
        ("größe", "not a normalised name", "gr-e"),
        ("../evil", "not a normalised name", "evil"),
        ("a\n", "not a normalised name", "a"),
        ("", "not a normalised name", "ale-criterion-mine"),
        ("3d", "begins with a digit", "ale-criterion-3d"),
        ("class", "is a keyword of Python", "ale-criterion-class"),
        ("match", "is a keyword of Python", "ale-criterion-match"),
        ("json", "would shadow a module of Python's standard library", "ale-criterion-json"),
        ("test", "would shadow a module of Python's standard library", "ale-criterion-test"),
        ("JSON", "not a normalised name", "ale-criterion-json"),
        ("ale", "belongs to ale itself", "ale-criterion-ale"),
        ("ale-core", "belongs to ale itself", "ale-criterion-ale-core"),
    ],
)
def test_an_invalid_name_is_rejected_with_a_suggestion(
    name: str, reason: str, suggestion: str
) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        names(name, CRITERION)
    assert str(raised.value).endswith(f"; try '{suggestion}'")
    assert names(suggestion, CRITERION).distribution == suggestion


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("chunker", "ale-chunker-null", "'null', which a config reads as null"),
        ("llm", "true", "'true', which a config reads as true or false"),
        ("criterion", "ale-criterion-1e5", "'1e5', which a config reads as a number"),
        ("credit", "ale-credit-7", "'7', which a config reads as a number"),
        ("sandbox", "ale-sandbox-auto", "'auto', with which a config leaves the choice to ale"),
    ],
)
def test_a_name_that_a_config_could_not_select_is_rejected(
    kind: str, name: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        names(name, KINDS[kind])
    suggested = str(raised.value).rpartition("try '")[2].rstrip("'")
    assert names(suggested, KINDS[kind]).component.startswith("my")


def test_other_kinds_may_use_the_names_that_are_refused_for_one() -> None:
    assert names("ale-agent-auto", KINDS["agent"]).component == "auto"
    assert names("ale-command-null", KINDS["command"]).component == "null"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("credit", "credit"), ("credit-scheme", "credit"), ("task-source", "tasks"), ("llm", "llm")],
)
def test_a_kind_is_found_by_its_name_in_configs_and_in_prose(name: str, kind: str) -> None:
    assert kind_named(name) is KINDS[kind]


def test_all_that_can_be_written_is_listed_for_a_kind_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="expected one of") as raised:
        kind_named("foo")
    listed = str(raised.value).partition("expected one of ")[2].split(", ")
    assert listed == [*KINDS, *WORKSPACES]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("criteria", "criterion"),
        ("task", "tasks"),
        ("credits", "credit"),
        ("agnt", "agent"),
        ("open-rlhf", "openrlhf"),
    ],
)
def test_a_misspelt_kind_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"one of tasks, .*; did you mean '{nearest}'"):
        kind_named(name)
