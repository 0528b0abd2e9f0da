"""The config: `extends`, overrides, and problems with file and line."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, field, frozen, validators

from ale._config import RunConfig, load_config
from ale._registry import Registry
from ale.errors import InputError
from ale.plugin import Component, Probe, doc, hookimpl
from ale.testing.fakes import FolderBackend

BASE = "tasks: {type: list, n: 3}\nagent: {type: bench}\n"


@frozen(kw_only=True)
class Parts:
    preset: str
    depth: int = 1


@frozen(kw_only=True)
class WithParts:
    objective: str | Parts = "ipa"


class Trainers:
    @hookimpl
    def ale_trainers(self) -> list[Component[Any, Any]]:
        return [Component("parts", WithParts, print, summary="Parts.")]


def load(tmp_path: Path, registry: Registry, text: str, *overrides: str) -> RunConfig:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "c.yaml").write_text(text)
    return load_config(tmp_path / "c.yaml", registry, overrides)


def problems(tmp_path: Path, registry: Registry, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, registry, text, *overrides)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_missing_section_has_its_default(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, BASE)
    assert (config.sandbox.name, config.chunker.name, config.credit.name) == (
        "folder",
        "interaction",
        "ipa",
    )
    assert config.llm is None
    assert config.run.rollouts == 1


def test_without_a_trainer_a_run_needs_no_chunker_no_credit_and_no_display(tmp_path: Path) -> None:
    class Sampling:
        @hookimpl
        def ale_task_sources(self) -> list[Component[Any, Any]]:
            return [Component("list", None, print, summary="Tasks.")]

        @hookimpl
        def ale_sandboxes(self) -> list[Component[Any, Any]]:
            return [Component("folder", None, print, summary="A folder.", priority=1)]

        @hookimpl
        def ale_agents(self) -> list[Component[Any, Any]]:
            return [Component("bench", None, print, summary="An agent.")]

        @hookimpl
        def ale_trainers(self) -> list[Component[Any, Any]]:
            return [Component("parts", None, print, summary="A trainer.")]

    registry = Registry()
    registry.add(Sampling(), "ale-sampling")
    text = "tasks: {type: list}\nagent: {type: bench}\n"
    config = load(tmp_path, registry, text)
    assert (config.chunker, config.credit, config.observers) == (None, None, ())
    assert not {"chunker", "credit"} & config.resolved.keys()
    missing = problems(tmp_path, registry, text + "trainer: {type: parts}\n")
    for kind, package in (("chunker", "ale-chunkers"), ("credit", "ale-credit")):
        assert f"{kind}.type: no {'chunker' if kind == 'chunker' else 'credit scheme'} '" in missing
        assert f"hint      pip install {package}; in a clone: pip install -e ." in missing
    named = problems(tmp_path, registry, text + "observers: [{type: console}]\n")
    assert "pip install ale-observe-console" in named


@pytest.mark.parametrize(
    ("section", "package"),
    [
        ("tasks: {type: shell}", "ale-tasks-shell"),
        ("sandbox: {type: docker}", "ale-sandbox-docker"),
        ("llm: {type: servers}", "ale-llm-policy"),
        ("launch: {type: slurm}", "ale-slurm"),
        ("executor: {type: ray}", "ale-ray"),
        ("observers: [{type: wandb}]", "ale-trackers"),
    ],
)
def test_a_component_that_is_not_installed_is_named_with_its_package(
    tmp_path: Path, registry: Registry, section: str, package: str
) -> None:
    found = problems(tmp_path, registry, f"extends: base.yaml\n{section}\n")
    assert f"hint      pip install {package}; in a clone: pip install -e ." in found


def test_a_config_extends_another_key_by_key(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, "extends: base.yaml\nrun: {rollouts: 4}\n")
    assert config.tasks.options.n == 3
    assert config.run.rollouts == 4


def test_an_override_wins_over_the_file(tmp_path: Path, registry: Registry) -> None:
    assert load(tmp_path, registry, BASE, "tasks.n=7").tasks.options.n == 7


class OtherTasks:
    @hookimpl
    def ale_task_sources(self) -> list[Component[Any, Any]]:
        @frozen(kw_only=True)
        class Options:
            n: int = 1

        return [Component("counted", Options, print, summary="Tasks."), EMPTY]


EMPTY: Component[Any, Any] = Component("empty", None, print, summary="No options.")


def test_options_that_the_new_type_has_too_are_retained(tmp_path: Path, registry: Registry) -> None:
    registry.add(OtherTasks(), "ale-others")
    for config in (
        load(tmp_path, registry, "extends: base.yaml\ntasks: {type: counted}\n"),
        load(tmp_path, registry, BASE, "tasks.type=counted"),
    ):
        assert (config.tasks.name, config.tasks.options.n) == ("counted", 3)
        assert config.notes == []


def test_options_that_another_type_lacks_are_dropped_with_a_note(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(OtherTasks(), "ale-others")
    config = load(tmp_path, registry, BASE, "tasks.type=empty")
    assert config.notes == ["--set tasks.type=empty: dropped tasks.n, which empty does not have"]
    config = load(tmp_path, registry, "extends: base.yaml\ntasks:\n  type: empty\n")
    (note,) = config.notes
    assert note.endswith("c.yaml:3: tasks.type=empty: dropped tasks.n, which empty does not have")


def test_an_override_of_a_whole_section_retains_no_option_of_another_type(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(OtherTasks(), "ale-others")
    config = load(tmp_path, registry, BASE, "tasks={type: counted}")
    assert config.tasks.options.n == 1
    assert config.notes == ["--set tasks={type: counted, ...}: dropped tasks.n"]
    config = load(tmp_path, registry, BASE, "tasks={type: counted}", "tasks.n=5")
    assert (config.tasks.options.n, config.notes[1:]) == (5, [])


def test_an_option_given_with_the_new_type_is_never_dropped(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(OtherTasks(), "ale-others")
    assert "--set: tasks.n: unknown option" in problems(
        tmp_path, registry, BASE, "tasks.type=empty", "tasks.n=2"
    )


@pytest.mark.parametrize(
    ("written", "overrides", "preset", "depth"),
    [
        ("ipa", ["objective.depth=2"], "ipa", 2),
        ("ipa", ["objective.depth=2", "objective.preset=grpo"], "grpo", 2),
        ("ipa", ["objective=grpo", "objective.depth=2"], "grpo", 2),
        ("{preset: ipa, depth: 3}", ["objective=grpo", "objective.depth=2"], "grpo", 2),
        ("{preset: ipa, depth: 3}", ["objective=grpo"], "grpo", None),
        ("{preset: ipa, depth: 3}", ["objective.depth=2"], "ipa", 2),
    ],
)
def test_options_may_be_merged_over_a_bare_name(
    tmp_path: Path, registry: Registry, written: str, overrides: list[str], preset: str, depth: int
) -> None:
    registry.add(Trainers(), "ale-parts")
    base = f"{BASE}trainer: {{type: parts, objective: {written}}}\n"
    for text in (base, "extends: other.yaml\n"):
        (tmp_path / "other.yaml").write_text(base)
        config = load(tmp_path, registry, text, *(f"trainer.{each}" for each in overrides))
        assert config.trainer is not None
        read = config.trainer.options.objective
        found = (read, None) if isinstance(read, str) else (read.preset, read.depth)
        assert found == (preset, depth)


def test_an_extending_file_may_merge_options_over_a_bare_name(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(Trainers(), "ale-parts")
    (tmp_path / "other.yaml").write_text(f"{BASE}trainer: {{type: parts, objective: ipa}}\n")
    text = "extends: other.yaml\ntrainer: {objective: {depth: 2}}\n"
    for overrides, depth in (([], 2), (["trainer.objective.depth=4"], 4)):
        config = load(tmp_path, registry, text, *overrides)
        assert config.trainer is not None
        assert config.trainer.options.objective == Parts(preset="ipa", depth=depth)


def test_problems_of_all_sections_are_reported_at_once(tmp_path: Path, registry: Registry) -> None:
    printed = problems(tmp_path, registry, "taks: {}\nagent: {type: bensh}\nrun: {rollout: 2}\n")
    assert "c.yaml:1: taks: unknown section" in printed
    assert "did you mean 'tasks'?" in printed
    assert "c.yaml:1: section 'tasks' is missing" in printed
    assert "c.yaml:2: agent.type: no agent 'bensh'; installed: bench" in printed
    assert "did you mean 'bench'?" in printed
    assert "c.yaml:3: run.rollout: unknown option" in printed
    assert "did you mean 'rollouts'?" in printed
    printed = problems(tmp_path, registry, f"{BASE}sandbox: {{type: autoo}}\n")
    assert "did you mean 'auto'?" in printed


def test_a_problem_in_an_extended_file_names_that_file(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "other.yaml").write_text("\ntasks: {type: list, n: 0}\n")
    printed = problems(tmp_path, registry, "extends: other.yaml\nagent: {type: bench}\n")
    assert printed == "other.yaml:2: tasks.n: expected a value >= 1, found 0"


def test_overrides_of_a_section_may_come_in_any_order(tmp_path: Path, registry: Registry) -> None:
    changed = "tasks.type=ale-bench/list"
    assert load(tmp_path, registry, BASE, "tasks.n=7", changed).tasks.options.n == 7
    assert load(tmp_path, registry, BASE, changed, "tasks.n=7").tasks.options.n == 7
    assert load(tmp_path, registry, BASE, changed).tasks.options.n == 3


def test_an_override_does_not_change_the_line_of_other_problems(
    tmp_path: Path, registry: Registry
) -> None:
    printed = problems(tmp_path, registry, "agent: {type: bench}\n", "run.seed=1")
    assert printed.startswith("c.yaml:1: section 'tasks' is missing")


def test_an_option_can_be_set_without_naming_the_default_type(
    tmp_path: Path, registry: Registry, bench: Any
) -> None:
    config = load(tmp_path, registry, BASE, "credit.gamma=0.5")
    assert (config.credit.name, config.credit.options.gamma) == ("ipa", 0.5)


def test_the_default_type_can_be_overridden(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, BASE, "credit.type=even")
    assert (config.credit.name, config.credit.options) == ("even", None)


@pytest.mark.parametrize("section", ["sandbox", "credit", "observers", "run"])
def test_an_empty_section_has_its_default(tmp_path: Path, registry: Registry, section: str) -> None:
    written = load(tmp_path, registry, BASE + f"{section}:\n")
    assert written.resolved == load(tmp_path, registry, BASE).resolved


@pytest.mark.parametrize("llm", ["", "llm: null\n"])
def test_a_section_that_a_component_needs_must_not_be_empty(
    tmp_path: Path, registry: Registry, llm: str
) -> None:
    text = "tasks: {type: list}\nagent: {type: needy}\n" + llm
    assert problems(tmp_path, registry, text) == (
        "c.yaml:1: section 'llm' is missing\n"
        "    expected  llm: {type: ...}, which agent 'needy' needs"
    )


@pytest.mark.parametrize("number", [0, -1])
def test_a_step_has_at_least_one_task(tmp_path: Path, registry: Registry, number: int) -> None:
    printed = problems(tmp_path, registry, BASE, f"run.tasks_per_step={number}")
    assert printed == f"--set: run.tasks_per_step: expected a value >= 1 or null, found {number}"
    assert load(tmp_path, registry, BASE, "run.tasks_per_step=null").run.tasks_per_step is None


@pytest.mark.parametrize("name", ["../../evil", "a/b", "/", '""', '"a\\nb"', "x" * 201])
def test_a_runs_name_stays_in_its_folder(tmp_path: Path, registry: Registry, name: str) -> None:
    printed = problems(tmp_path, registry, BASE, f"run.name={name}")
    assert printed.startswith(
        "--set: run.name: expected part of a folder's name, without '/', found"
    )


def test_a_runs_name_may_be_in_any_script(tmp_path: Path, registry: Registry) -> None:
    assert load(tmp_path, registry, BASE, "run.name=Größe 2..3").run.name == "Größe 2..3"


def test_an_unknown_option_that_is_part_of_a_known_one_gets_a_hint(
    tmp_path: Path, registry: Registry
) -> None:
    assert "did you mean 'concurrency'?" in problems(tmp_path, registry, BASE, "run.Curr=1")


def _crash() -> Probe:
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("probe", "printed"),
    [
        (_crash, "the probe of ale-sick/sick failed: RuntimeError('no luck')"),
        (lambda: True, "the probe of ale-sick/sick gave True, not a Probe"),
    ],
)
def test_auto_skips_a_sandbox_with_a_broken_probe(tmp_path: Path, probe: Any, printed: str) -> None:
    class Sick:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[Any, Any]]:
            return [Component("sick", None, print, summary="Sick.", priority=9, probe=probe)]

    registry = Registry()
    registry.add(Sick(), "ale-sick")
    assert f"no sandbox is usable here; sick: {printed}" in problems(tmp_path, registry, BASE)


def test_auto_chooses_the_next_sandbox_after_a_broken_one(
    tmp_path: Path, registry: Registry
) -> None:
    class Sick:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[Any, Any]]:
            return [Component("sick", None, print, summary="Sick.", priority=9, probe=_crash)]

    registry.add(Sick(), "ale-sick")
    assert load(tmp_path, registry, BASE).sandbox.name == "folder"


def test_auto_skips_a_sandbox_without_the_options_it_needs(
    tmp_path: Path, registry: Registry
) -> None:
    @frozen(kw_only=True)
    class Options:
        image: str | None = field(default=None, metadata=doc("Where it starts."))

    class Containers:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[Any, Any]]:
            made: Component[Any, Any] = Component(
                "box", Options, print, summary="Boxes.", priority=9, auto_needs=("image",)
            )
            return [made]

    registry.add(Containers(), "ale-box")
    assert load(tmp_path, registry, BASE).sandbox.name == "folder"
    assert load(tmp_path, registry, BASE, "sandbox.image=x").sandbox.name == "box"
    alone = Registry()
    alone.add(Containers(), "ale-box")
    printed = "no sandbox is usable here; box: sandbox.image is not given"
    assert printed in problems(tmp_path, alone, BASE)


def test_auto_skips_a_sandbox_without_an_option_that_is_given_and_says_what_to_install(
    tmp_path: Path, registry: Registry
) -> None:
    @frozen(kw_only=True)
    class Options:
        network: bool = field(default=False, metadata=doc("Its network."))

    class Isolated:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[Any, Any]]:
            gone = Probe(usable=False, reason="there is no box", remedy="apt-get install box")
            made: Component[Any, Any] = Component(
                "box", Options, print, summary="Boxes.", priority=9, probe=lambda: gone
            )
            return [made]

    registry.add(Isolated(), "ale-box")
    assert load(tmp_path, registry, BASE).sandbox.name == "folder"
    assert problems(tmp_path, registry, BASE, "sandbox.network=false") == (
        "c.yaml: sandbox.type: no sandbox is usable here; box: there is no box; folder: it has no "
        "option 'network'; to change that, for box: apt-get install box"
    )
    named = problems(tmp_path, registry, BASE, "sandbox={type: folder, network: false}")
    assert "sandbox.network: unknown option" in named
    assert "hint      an option of box" in named
    assert "unknown option" in problems(tmp_path, registry, BASE, "sandbox.netwrok=false")


def test_a_problem_in_an_override_names_it(tmp_path: Path, registry: Registry) -> None:
    printed = problems(tmp_path, registry, BASE, "run.seed=x")
    assert printed == '--set: run.seed: expected a whole number, found the text "x"'
    assert "expected a value < " in problems(tmp_path, registry, BASE, f"run.seed={1 << 63}")


@pytest.mark.parametrize(
    ("value", "message"),
    [("[1", "not valid YAML: "), ("{a: 1, a: 2}", "'a' is given twice"), ("!x 1", "the tag")],
)
def test_an_override_that_is_no_yaml_names_its_key(
    tmp_path: Path, registry: Registry, value: str, message: str
) -> None:
    printed = problems(tmp_path, registry, BASE, "run.seed=1", f"run.name={value}")
    assert printed.startswith(f"--set: run.name: {message}")


@pytest.mark.parametrize("override", ["run.seed", "=3", "run..seed=3"])
def test_an_override_without_key_and_value_is_a_problem(
    tmp_path: Path, registry: Registry, override: str
) -> None:
    assert "expected key.key=value" in problems(tmp_path, registry, BASE, override)


def test_a_config_that_extends_itself_is_a_problem(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.yaml").write_text("extends: c.yaml\n")
    assert "a.yaml:1: extends: extends itself" in problems(tmp_path, registry, "extends: a.yaml\n")


def test_an_empty_config_lists_the_missing_sections(tmp_path: Path, registry: Registry) -> None:
    printed = problems(tmp_path, registry, "")
    assert "section 'tasks' is missing" in printed
    assert "tasks: {type: ...}, one of list" in printed


def test_a_missing_base_is_named(tmp_path: Path, registry: Registry) -> None:
    printed = problems(tmp_path, registry, "\nextends: bse.yaml\n")
    assert printed.startswith("c.yaml:2: extends: no such file: bse.yaml")
    assert "did you mean 'base.yaml'?" in printed


@pytest.mark.parametrize(
    "name", ["x" * 300, f"{'x' * 300}/c.yaml", '"a\\0b"', "loop.yaml", '""', "."]
)
def test_a_base_that_can_be_no_file_is_a_problem(
    tmp_path: Path, registry: Registry, name: str
) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert problems(tmp_path, registry, f"extends: {name}\n").startswith("c.yaml:1: extends: ")


def test_an_empty_text_is_reported_as_such(tmp_path: Path, registry: Registry) -> None:
    @frozen(kw_only=True)
    class Options:
        model: str = field(validator=validators.min_len(1))

    class Trainer:
        @hookimpl
        def ale_trainers(self) -> list[Component[Any, Any]]:
            return [Component("named", Options, print, summary="Named.")]

    registry.add(Trainer(), "ale-named")
    text = BASE + 'trainer: {type: named, model: ""}\n'
    assert "trainer.model: expected a non-empty text, found an empty one" in problems(
        tmp_path, registry, text
    )


def test_a_missing_file_suggests_only_files_of_its_type(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "bas.txt").write_text("")
    (tmp_path / "short.yaml").write_text(BASE)
    assert "did you mean 'base.yaml'?" in problems(tmp_path, registry, "extends: bas.yaml\n")
    assert "did you mean" not in problems(tmp_path, registry, "extends: bas.toml\n")
    assert "did you mean 'short.yaml'?" in problems(tmp_path, registry, "extends: short\n")


def test_a_name_registered_twice_has_no_misleading_hint(tmp_path: Path, registry: Registry) -> None:
    registry.add(OtherTasks(), "ale-one")
    registry.add(OtherTasks(), "ale-two")
    found = problems(tmp_path, registry, BASE, "tasks.type=counted")
    assert "registered twice: write ale-one/counted or ale-two/counted" in found
    assert "did you mean" not in found


class IsolatingBackend(FolderBackend):
    """Claims to isolate the network, as its class attribute says."""

    capabilities = evolve(FolderBackend.capabilities, network_isolation=True)


class Isolating:
    """A sandbox below the folder in priority that isolates the network."""

    @hookimpl
    def ale_sandboxes(self) -> list[Component[Any, Any]]:
        build = lambda options, context: IsolatingBackend()  # noqa: E731
        return [
            Component("weak", None, lambda o, c: FolderBackend(), summary="Weak.", priority=5),
            Component("jail", None, build, summary="A jail.", priority=4),
        ]


def test_auto_skips_a_sandbox_that_lacks_required_isolation(
    tmp_path: Path, registry: Registry
) -> None:
    registry.add(Isolating(), "ale-jail")
    assert load(tmp_path, registry, BASE).sandbox.name == "weak"
    config = load(tmp_path, registry, BASE, "sandbox.require=[network]")
    assert (config.sandbox.name, config.resolved["sandbox"]["require"]) == ("jail", ["network"])
    assert config.sandbox.auto is not None
    assert config.sandbox.auto.skipped == ("weak: does not isolate the network",)
    refused = problems(tmp_path, registry, BASE, "sandbox.require=[network, files]")
    assert "folder: does not isolate the network or files" in refused


def test_an_option_that_only_sandboxes_of_other_packages_have_names_the_packages(
    tmp_path: Path, registry: Registry
) -> None:
    refused = problems(tmp_path, registry, BASE, "sandbox.network=false")
    assert "sandbox.network: unknown option" in refused
    assert "none that is installed has it; there are also" in refused
    assert "ale-sandbox-bubblewrap" in refused


def test_an_unknown_requirement_is_refused(tmp_path: Path, registry: Registry) -> None:
    refused = problems(tmp_path, registry, BASE, "sandbox.require=[networks]")
    assert "--set: sandbox.require[0]: expected one of network, files, processes" in refused


def test_a_type_that_is_no_text_is_named(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(InputError, match=r"agent\.type: expected a name, found the number 2048"):
        load(tmp_path, registry, "agent: {type: 2048}\n")


def test_a_misspelt_type_is_named(tmp_path: Path, registry: Registry) -> None:
    for section, text in (
        ("sandbox", BASE + "sandbox: {typ: folder}\n"),
        ("agent", "agent: {typ: bench}\n"),
    ):
        with pytest.raises(InputError) as caught:
            load(tmp_path, registry, text)
        (problem,) = (
            each for each in caught.value.problems if (each.path or "").startswith(section)
        )
        assert "did you mean 'type'" in str(problem)


@frozen(kw_only=True)
class UnknownType:
    depth: "NoSuchName" = 1  # type: ignore[name-defined]  # noqa: F821


@frozen(kw_only=True)
class UnreadableType:
    depth: object = 1


@frozen(kw_only=True)
class Untyped:
    depth = field(default=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (UnknownType, "name 'NoSuchName' is not defined"),
        (UnreadableType, "trainer.depth: an option can't be of type <class 'object'>"),
        (Untyped, "trainer.depth: an option can't be of type None"),
        ("no_such_module:Options", "No module named 'no_such_module'"),
    ],
)
def test_a_class_of_options_that_can_not_be_read_is_named(
    tmp_path: Path, registry: Registry, options: Any, message: str
) -> None:
    class Author:
        @hookimpl
        def ale_trainers(self) -> list[Component[Any, Any]]:
            return [Component("odd", options, print, summary="Odd.")]

    registry.add(Author(), "acme-odd")
    found = problems(tmp_path, registry, f"{BASE}trainer: {{type: odd, depth: 3}}\n")
    assert found.startswith("c.yaml:3: trainer.type: the options of acme-odd/odd")
    assert message in found
