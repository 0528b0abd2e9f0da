"""What a component builds is checked at once, and named with its package where it is wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale._run.parts import PROTOCOLS, observer_errors
from ale._run.start import check_run, resume
from ale.errors import InputError
from ale.plugin import hookimpl
from ale.protocols import LLM, Policy, missing
from ale.testing.fakes import FakeChunker, FolderBackend
from ale.types import CriterionSpec, Task


def _building(selected: Any, product: object) -> Any:
    """The same selection, whose build returns `product`."""
    component = evolve(selected.registration.component, build=lambda options, context: product)
    return evolve(selected, registration=evolve(selected.registration, component=component))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("credit", "'ipa' of ale-bench: its build returned an object of type object, which is no "),
        ("credit", "CreditScheme: assign missing"),
        ("chunker", "Chunker: split missing"),
        ("agent", "Agent: limits, run missing"),
        ("tasks", "TaskSource: load missing"),
        (
            "sandbox",
            "SandboxBackend: aclose, capabilities, list, name, open, prune, restore missing",
        ),
    ],
)
def test_a_product_without_the_methods_of_its_protocol_is_refused_before_sampling(
    workplace: Any, section: str, message: str
) -> None:
    config = workplace.config()
    wrong = evolve(config, **{section: _building(getattr(config, section), object())})
    with pytest.raises(InputError, match=re.escape(message)):
        check_run(wrong, "test", workplace.outside())
    assert not workplace.directory.exists()


def test_a_class_in_place_of_an_instance_is_refused(workplace: Any) -> None:
    config = workplace.config()
    wrong = evolve(config, chunker=_building(config.chunker, FakeChunker))
    with pytest.raises(InputError, match="returned the class FakeChunker, not an instance"):
        check_run(wrong, "test", workplace.outside())


def test_a_sandbox_whose_capabilities_are_none_is_refused(workplace: Any) -> None:
    vague = type("Vague", (FolderBackend,), {"capabilities": {"images": False}})
    config = workplace.config()
    wrong = evolve(config, sandbox=_building(config.sandbox, vague()))
    with pytest.raises(InputError, match=r"its capabilities are \{'images': False\}, exp"):
        check_run(wrong, "test", workplace.outside())


class Idle:
    def close(self) -> None:
        """No event hook."""


class Unmarked:
    def ale_run_started(self, event: object) -> None: ...


class Named:
    @hookimpl(specname="ale_run_finished")
    def finished(self, event: object) -> None: ...


class Misnamed:
    @hookimpl(specname="ale_run_ended")
    def ended(self, event: object) -> None: ...


def test_an_observer_without_an_event_hook_is_refused_with_those_it_may_have() -> None:
    for product in (Idle(), Misnamed()):
        (error,) = observer_errors(product)
        assert error.startswith("it has no event hook (hookimpl) of ale_run_started, ale_ep")
    assert observer_errors(Unmarked()) == ["ale_run_started is not marked with hookimpl"]
    assert observer_errors(Named()) == []


def test_members_that_a_protocol_inherits_are_checked_too() -> None:
    assert {*missing(object(), LLM)} < {*missing(object(), Policy)}
    assert "observer" not in PROTOCOLS


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda options, context: object(), "Criterion: grade missing"),
        (lambda options, context: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_criterion_that_fails_to_build_is_reported_with_its_task_file_and_line(
    bench: Any, workplace: Any, build: Callable[[Any, Any], object], message: str
) -> None:
    criterion = CriterionSpec(type="done", file="tasks/a.yaml", line=7)
    bench.tasks = lambda n: [Task(id="count-lines", goal="g", criteria=(criterion,))]
    (registration,) = workplace.registry.registrations("criterion")
    broken = evolve(registration, component=evolve(registration.component, build=build))
    workplace.registry._registrations["criterion"] = [broken]
    with pytest.raises(InputError, match=message) as caught:
        check_run(workplace.config(), "test", workplace.outside())
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("tasks/a.yaml", 7)
    assert problem.path == "success_criteria[0]"
    assert problem.message.startswith("task 'count-lines': criterion 'done' of ale-bench")


def test_a_problem_with_an_option_of_a_criterion_is_on_the_line_of_the_option(
    bench: Any, workplace: Any, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("success_criteria:\n- weight: 1\n\n  type: done\n  colour: [red]\n")
    options = {"colour": ["red"]}
    lines = []
    for line in (2, 1):  # as it was read, and changed since
        criterion = CriterionSpec(type="done", file=str(file), line=line, options=options)
        bench.tasks = lambda n, made=criterion: [Task(id="a", goal="g", criteria=(made,))]
        with pytest.raises(InputError) as caught:
            check_run(workplace.config(), "test", workplace.outside())
        (problem,) = caught.value.problems
        assert problem.path == "success_criteria[0].colour"
        lines.append(problem.line)
    assert lines == [5, 1]


def test_a_problem_in_a_file_that_an_option_names_keeps_the_line_there(
    bench: Any, workplace: Any, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("success_criteria:\n- type: done\n  tests: own.py\n")

    def build(options: object, context: object) -> object:
        path = "success_criteria[0].type"
        raise InputError.of("not valid Python", file="own.py", line=9, path=path)

    (registration,) = workplace.registry.registrations("criterion")
    broken = evolve(registration, component=evolve(registration.component, build=build))
    workplace.registry._registrations["criterion"] = [broken]
    criterion = CriterionSpec(type="done", file=str(file), line=2)
    bench.tasks = lambda n: [Task(id="a", goal="g", criteria=(criterion,))]
    with pytest.raises(InputError) as caught:
        check_run(workplace.config(), "test", workplace.outside())
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("own.py", 9)


@pytest.mark.parametrize(
    ("version", "notes"),
    [
        ("1.0", []),
        (
            "1.1",
            ["resumed with other versions than the run was started with: ale-bench 1.0 -> 1.1"],
        ),
    ],
)
def test_resuming_with_another_version_of_a_plugin_is_reported_once(
    workplace: Any, version: str, notes: list[str]
) -> None:
    run = workplace.prepared(workplace.config())
    run.store.close()
    packages = workplace.registry.packages
    packages[:] = [evolve(package, version=version) for package in packages]
    reported: list[str] = []
    resumed = resume(run.store.path, workplace.outside(report=reported.append))
    resumed.store.close()
    assert reported == notes
    events = [event["message"] for event in resumed.store.reader.events()]
    assert events == notes
