"""The study compares what it says it compares: its cells are valid, its runs of one length."""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.runs import Registry, load_config

ROOT = Path(__file__).parents[2]
MODULES = ("plan", "measured", "data", "sweeps", "pages", "learning", "study")
NO_DATA = "*Not run yet.*\n"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "study"))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


def numbers(
    study: dict[str, ModuleType],
    after: float,
    *,
    greedy: float = 0.2,
    rollouts: tuple[int, ...] = (64,) * 12,
    seconds: float = 12.5,
) -> Any:
    """A run that was evaluated before the first and after the last of its steps."""
    evaluations = [
        study["measured"].Evaluated(
            step=step,
            temperature=temperature,
            repeats=None,
            graded=1000,
            succeeded=round(1000 * success),
            broken=0,
        )
        for step, sampled in ((0, 0.1), (12, after))
        for temperature, success in ((0.0, greedy), (1.0, sampled))
    ]
    return study["measured"].Numbers(
        training=0.3,
        peak=2.5,
        masked=0.0,
        clamped=0.25,
        clipped=0.0,
        masked_chunks=0.125,
        clamped_chunks=None,
        age=1.5,
        chunks=7.25,
        rollouts=rollouts,
        broken=1,
        seconds=seconds,
        evaluated=tuple(evaluations),
    )


def row(
    study: dict[str, ModuleType], label: str, *steps: tuple[int, ...], after: float, **options: Any
) -> Any:
    """A cell whose runs had so many rollouts in each step."""
    runs = {
        (seed, 0): numbers(study, after + 0.01 * seed, rollouts=rollouts)
        for seed, rollouts in enumerate(steps)
    }
    cell = study["plan"].Cell(label, (), **options)
    return study["measured"].Row(cell=cell, runs=runs, asked=5)


def test_runs_with_other_numbers_of_rollouts_are_not_compared(
    study: dict[str, ModuleType],
) -> None:
    plan = study["plan"].OBJECTIVES
    one = row(study, "one", (8, 8), (8, 8), after=0.2)
    assert study["measured"]._equal(plan, [one]) == 16
    # As many in all, but not in each step.
    other = row(study, "other", (8, 8), (4, 12), after=0.3)
    with pytest.raises(InputError, match=r"unequal numbers of rollouts.*16 in other, start and"):
        study["measured"]._equal(plan, [one, other])
    control = row(study, "a control", (8, 8), (4, 12), after=0.3, control=True)
    assert study["measured"]._equal(plan, [one, control]) == 16


def test_a_table_says_how_many_runs_there_are_and_what_differs(
    study: dict[str, ModuleType],
) -> None:
    rows = [
        row(study, "one", (8,), (8,), (8,), after=0.2),
        row(study, "other", (8,), (8,), after=0.5),
    ]
    table = study["measured"].Table(plan=study["plan"].OBJECTIVES, rows=rows, rollouts=8)
    first, second = list(study["pages"].markdown(table))[2:4]
    assert first.startswith("| one | 3 of 5 | 10.0% | 21.0% (18.5 to 23.5) |  |")
    # Start by start: both have risen alike, so that the difference has no spread.
    assert "| other | 2 of 5 |" in second
    # Of two runs all four choices of signs are equal or opposite: p = 2 / 4.
    assert "| +30.0 (+30.0 to +30.0), p 0.5 |" in second
    drawn = study["pages"].picture(table)
    assert drawn.count('class="run"') == 5
    assert drawn.count('class="mean"') == 2


def test_every_table_of_the_pages_is_made_from_the_data_in_the_repository(
    study: dict[str, ModuleType],
) -> None:
    plans = study["plan"].PLANS
    stored = study["data"].read(ROOT / "docs" / "study", plans)
    tables = list(study["study"]._tables(stored))
    swept = study["sweeps"].stored(ROOT / "docs" / "study" / "sweep.csv")
    assert {line.grid for line in swept} == {plan.name for plan in plans if plan.sweep}
    made = study["study"].pages(tables, swept)
    docs = ROOT / "docs"
    pictures = {docs / "study" / f"{each.plan.name}.svg" for each in tables if not each.plan.fixed}
    assert made.keys() == {docs / f"{each.plan.page}.md" for each in tables} | pictures
    for path, text in made.items():
        assert text == path.read_text(), f"python3 noxfile.py -s study -- --collect --docs: {path}"
    known = {table.plan.name for table in tables}
    for plan in plans:
        page = (ROOT / "docs" / f"{plan.page}.md").read_text()
        own = "primary" if plan.contrasts else ""
        more = [f"{plan.name}, described"] * bool(plan.described)
        for place in (", ".join(filter(None, (plan.name, own))), f"{plan.name}, curves", *more):
            begin = f"<!-- table {place} -->\n"
            assert page.count(begin) == 1, place
            shown = page.partition(begin)[2].partition("<!-- end -->")[0]
            assert (shown == NO_DATA) == (plan.name not in known), place


def steps_of(study: dict[str, ModuleType], *rates: float) -> Any:
    """A run with these success rates after 0, 2, 4, ... steps."""
    return evolve(
        numbers(study, 0.5),
        evaluated=tuple(
            study["measured"].Evaluated(
                step=2 * k,
                temperature=1.0,
                repeats=None,
                graded=100,
                succeeded=round(100 * rate),
                broken=0,
            )
            for k, rate in enumerate(rates)
        ),
    )


@pytest.fixture
def raced(study: dict[str, ModuleType]) -> Any:
    """Two cells with three runs of two starts; the second is faster, and both end alike."""
    cells = {"slow": (0.0, 0.0, 1.0), "fast": (0.0, 1.0, 1.0)}
    pairs = (("fast", "slow"),)
    plan = evolve(study["plan"].CREDIT, contrasts=pairs, described=(("slow", "fast"),))
    rows = [
        study["measured"].Row(
            cell=study["plan"].Cell(name, ()),
            runs={key: steps_of(study, *rates) for key in ((0, 0), (0, 1), (1, 0))},
            asked=4,
        )
        for name, rates in cells.items()
    ]
    return study["measured"].Table(plan=plan, rows=rows, rollouts=None)


def test_the_area_shows_speed_that_the_end_hides(study: dict[str, ModuleType], raced: Any) -> None:
    lines = list(study["learning"].markdown(raced))
    assert lines[0] == "| cell | starts | 0 | 2 | 4 | area | against the first |"
    assert lines[2].startswith("| slow | 2 | 0.0% | 0.0% | 100.0% | 25.0%")
    assert lines[3].startswith("| fast | 2 | 0.0% | 100.0% | 100.0% | 75.0%")


def test_runs_of_one_start_are_one_observation(study: dict[str, ModuleType], raced: Any) -> None:
    found = study["learning"].contrast(raced, "fast", "slow")
    assert found.differences == pytest.approx([0.5, 0.5])
    assert found.p == 0.5  # of two starts; three runs would have 0.25
    changes = raced.rows[1].changes(raced.rows[0], lambda run: run.success(1.0)[1])
    assert changes == pytest.approx([1.0, 1.0])
    text = "\n".join(study["learning"].primary(raced))
    assert "2 starts done." in text
    assert "| fast - slow | 2 | +50.0" in text


def test_nothing_is_compared_before_all_starts_of_a_fixed_plan_are_done(
    study: dict[str, ModuleType], raced: Any
) -> None:
    begun = study["study"].shown(raced)
    assert begun["credit, primary"] == ["2 of 24 starts done; no test is made yet."]
    assert "fast" not in str(begun)
    assert "slow" not in str(begun)
    done = study["study"].shown(evolve(raced, plan=evolve(raced.plan, starts=range(2))))
    assert "| fast - slow | 2 | +50.0" in str(done["credit, primary"])
    assert "| fast | 2 | 0.0% |" in str(done["credit, curves"])
    assert "| slow - fast | 2 | -50.0" in str(done["credit, described"])


def test_a_start_of_a_fixed_plan_counts_when_each_of_its_cells_is_done(
    study: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, module, run = study["plan"].CREDIT, study["study"], steps_of(study, 0.0, 1.0)
    whole = dict.fromkeys(((100, 0), (101, 0)), run)
    measures = [(cell, 24, whole) for cell in plan.cells[1:]]
    measures.append((plan.cells[0], 24, {(100, 0): run}))
    kept = module._whole(plan, measures)
    assert [list(runs) for _, _, runs in kept] == [[(100, 0)]] * 6
    monkeypatch.setattr(module, "DATA", tmp_path)
    study["data"].write(tmp_path, {plan.name: kept})
    assert module.left(plan, tmp_path / "runs") == list(range(101, 124))


def test_samples_can_get_as_old_as_a_plan_says(study: dict[str, ModuleType]) -> None:
    plans = [plan for plan in study["plan"].PLANS if plan.config == "stale"]
    assert [plan.name for plan in plans] == ["stale-4", "stale-8"]
    for plan in plans:
        path, staleness = ROOT / "configs" / "study" / "stale.yaml", int(plan.name[-1])
        config = load_config(path, Registry.installed(), plan.cells[0].overrides)
        assert config.run.staleness == staleness
        assert config.run.steps > staleness, "a sample of step n is at most n versions old"
        assert config.trainer.options.keep_versions > staleness


def pairs(row: Any, first: Any, of: str) -> list[float]:
    """The differences run by run."""
    return [getattr(run, of) - getattr(first.runs[key], of) for key, run in row.runs.items()]


def by_area(study: dict[str, ModuleType], tables: dict[str, Any], label: str) -> float:
    """The mean difference of IPA's parts to IPA, in points."""
    found: float = 100 * fmean(
        study["learning"].contrast(tables["parts"], label, "IPA").differences
    )
    return found


def test_what_the_text_says_is_in_the_data(study: dict[str, ModuleType]) -> None:
    """The numbers and verdicts of the page's sentences, beside those of its tables."""
    page = " ".join((ROOT / "docs" / "study.md").read_text().split())
    stored = study["data"].read(ROOT / "docs" / "study", study["plan"].PLANS)
    tables = {each.plan.name: each for each in study["study"]._tables(stored)}
    rows = {name: {row.cell.label: row for row in each.rows} for name, each in tables.items()}
    ps = {
        (name, of): {
            label: p
            for label, (_, p) in study["measured"]
            .p_values(each, lambda run, of=of: getattr(run, of))
            .items()
        }
        for name, each in tables.items()
        if each.plan.page == "study"
        for of in ("after", "greedy_after")
    }

    def mean(row: Any, temperature: float, which: int) -> float:
        return fmean(run.success(temperature)[which] for run in row.runs.values())

    def collapsed(row: Any) -> list[Any]:
        """Runs without a success at either temperature in the middle of training."""
        return [key for key, run in row.runs.items() if run.success(0)[1] == run.success(1)[1] == 0]

    objectives, parts, starts = rows["objectives"], rows["parts"], rows["starts"]
    ipa, baseline = objectives["IPA (Eq. 9)"], objectives["trajectory level (Eq. 6)"]
    # Objectives.
    assert f"does some {100 * mean(ipa, 1, 0):.0f}% of the tasks" in page
    assert (
        min(*ps["objectives", "after"].values(), *ps["objectives", "greedy_after"].values()) > 0.5
    )
    assert max(map(abs, pairs(baseline, ipa, "greedy_after"))) < 0.02
    assert max(map(abs, pairs(baseline, ipa, "after"))) < 0.11
    assert all(mean(row, 1, 2) > mean(row, 1, 1) for row in objectives.values())
    cispo, dr_grpo = objectives["CISPO"], objectives["Dr. GRPO"]
    assert f"greedily CISPO's falls from {mean(cispo, 0, 1):.1%} to {mean(cispo, 0, 2):.1%}" in page
    assert f"Dr. GRPO's from {mean(dr_grpo, 0, 1):.1%} to {mean(dr_grpo, 0, 2):.1%}" in page
    fallen = {label: n for label, row in objectives.items() if (n := len(collapsed(row)))}
    assert fallen == {"IPA (Eq. 9)": 1, "trajectory level (Eq. 6)": 1, "Dr. GRPO": 1}
    for label in fallen:
        for key in collapsed(objectives[label]):
            run = objectives[label].runs[key]
            assert run.greedy_after == run.after == 0
    # Parts.
    first, free = parts["IPA"], parts["failures weigh nothing"]
    controls = ("weight 1 for every episode", "more imitation", "failures weigh nothing")
    assert min(pairs(free, first, "after")) >= 0
    change = free.change(first, lambda run: run.after)
    assert f"end {100 * change.mean:.1f} points above failures that weigh" in page
    assert f"({100 * change.low:+.1f} to {100 * change.high:+.1f}), and" in page

    assert (
        f"and {by_area(study, tables, 'failures weigh nothing'):.1f} points above by area" in page
    )
    assert f"by area it is {-by_area(study, tables, 'gamma 0.5'):.1f} points behind" in page
    # With eight starts the smallest p is 2 / 256, by Holm nine times that.
    assert {f"{ps['parts', 'after'][label]:.2f}" for label in controls} == {"0.07"}
    assert (
        f"*Gamma 0.5 is worse at temperature 1* (p {ps['parts', 'after']['gamma 0.5']:.2g})" in page
    )
    *alike, one, two, three = sorted(pairs(free, first, "greedy_after"))
    assert alike == [0.0] * 13
    assert 0 < one < two == three == 1
    weighing = {label: row for label, row in parts.items() if label not in controls}
    fallen_alike = {(0, 1), (5, 1)}
    others = {"gamma 1", "gamma 0.5", "ratio of the trajectory"}
    for label, row in weighing.items():
        none = {key for key, run in row.runs.items() if run.greedy_after == run.after == 0}
        assert none == (fallen_alike | {(5, 0)} if label in others else fallen_alike), label
    *worse, same, also = sorted(pairs(parts["gamma 0.5"], first, "after"))
    assert max(worse) < same == also == 0
    assert min(p for of in ps.values() for p in of.values()) > 0.05, "nothing passes"
    # What mask and clamp act on.
    counted = {
        label: [run for run in row.runs.values() if run.masked_chunks is not None]
        for label, row in parts.items()
    }
    assert all(len(runs) == 6 for label, runs in counted.items() if label != "more imitation")
    clamped = [run.clamped_chunks for run in counted["IPA"]]
    assert f"changed the ratio of {fmean(clamped):.1%} of the chunks with a weight" in page
    assert f"from {min(clamped):.0%} to {max(clamped):.0%} in a run" in page
    whole = [run.clamped_chunks for run in counted["ratio of the trajectory"]]
    assert f"is the trajectory's, {fmean(whole):.1%}" in page
    assert max(run.masked_chunks for run in counted["IPA"]) < 1 / 2000
    strict = [run.masked_chunks for run in counted["H = 1.1"]]
    assert f"with H = 1.1 it left out {fmean(strict):.1%} of the chunks" in page
    assert f"were {fmean(run.age for run in counted['IPA']):.1f} versions behind" in page
    assert max(run.age for runs in counted.values() for run in runs if run.age) < 2
    # Where rollouts begin.
    anchors, beginning = starts["parallel anchors"], starts["at the beginning"]
    reached, other = mean(anchors, 0, 2), mean(beginning, 0, 2)
    assert f"greedily they reach {reached:.1%}, against {other:.1%}" in page
    rollback = starts["sequential rollback"]
    assert max(rollback.changes(beginning, lambda run: run.after)) < 0
    assert f"here {ps['starts', 'after']['sequential rollback']:.2g} after the correction" in page
    # One setting, three times.
    repeats = [ipa, first, starts["at the beginning"]]
    ends = [f"{fmean(row.runs[key].after for key in ipa.runs):.1%}" for row in repeats]
    assert f"at temperature 1 they ended at {ends[0]}, {ends[1]} and {ends[2]}, and seven" in page
    each = [[row.runs[key].after for row in repeats] for key in sorted(ipa.runs)]
    assert sum(len(set(of)) == 1 for of in each) == 7
    apart = max(each, key=lambda of: max(of) - min(of))
    assert "ended at {:.1%}, {:.1%} and {:.1%}".format(*apart) in page
    for key in ipa.runs:
        assert len({row.runs[key].greedy_after for row in repeats}) == 1


def test_one_evaluation_is_not_both_before_and_after(study: dict[str, ModuleType]) -> None:
    run = numbers(study, 0.5)
    assert (run.before, run.greedy_before) == (0.1, 0.2)
    last = evolve(run, evaluated=run.evaluated[2:])
    assert (last.before, last.greedy_before) == (None, None)
    assert (last.after, last.greedy_after) == (0.5, 0.2)


def test_a_step_without_an_update_makes_no_token_older(
    study: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the steps 0 to 3, the second made no version: at step 3 the newest is 2."""
    updates = [4.0, 0.0, 4.0]
    events = [
        {"event": "step_finished", "step": step, "metrics": {"updates": n}}
        for step, n in enumerate(updates)
    ]

    def episode(step: int, *versions: int, split: str = "train") -> Any:
        tokens = SimpleNamespace(policy_versions=versions)
        turn = SimpleNamespace(completion=SimpleNamespace(tokens=tokens, forced=False))
        return SimpleNamespace(step=step, split=split, trajectory=SimpleNamespace(turns=[turn]))

    episodes = [episode(0, 0), episode(2, 0, 1), episode(3, 0), episode(3, 2, split="evaluation")]
    run = SimpleNamespace(events=lambda: events, episodes=episodes)
    monkeypatch.setattr(study["measured"], "RunReader", lambda path: run)
    # 0; 1 and 0; 2.
    assert study["measured"]._age(Path(), 0) == 3 / 4
    assert study["measured"]._age(Path(), 3) == 2
    assert study["measured"]._age(Path(), 4) is None


@pytest.mark.parametrize(("start", "shown"), [(0, [0, 6, 12]), (6, [6, 12]), (12, [0, 6, 12])])
def test_a_run_of_demonstrations_alone_is_shown_from_its_first_evaluation(
    study: dict[str, ModuleType], start: int, shown: list[int]
) -> None:
    evaluated = [SimpleNamespace(step=step) for step in (0, 6, 12)]
    steps = dict.fromkeys(range(12), 64)
    run = SimpleNamespace(start=start, rollouts_by_step=steps, evaluated=evaluated)
    assert [one.step for one in study["measured"]._shown(run)] == shown


def test_the_data_gives_the_same_table_as_the_runs(
    study: dict[str, ModuleType], tmp_path: Path
) -> None:
    plan = study["plan"].BEGINNINGS
    measured = [
        (cell, 6, {(run, 1): numbers(study, 0.1 * n + 0.01 * run) for run in range(6)})
        for n, cell in enumerate(plan.cells)
    ]
    study["data"].write(tmp_path, {plan.name: measured})
    again = study["data"].read(tmp_path, study["plan"].PLANS)
    assert again == {plan.name: measured}
    lines = {
        "\n".join(study["pages"].markdown(study["measured"].table(plan, of)))
        for of in (measured, again[plan.name])
    }
    (text,) = lines
    assert "| greedy before | greedy after | against the first, greedy |" in text
    # Six runs each 10 points better: p = 2 / 64, by Holm three times that for three comparisons.
    assert "+10.0 (+10.0 to +10.0), p 0.094 |" in text


def test_new_runs_take_the_place_of_stored_ones_and_others_stay(
    study: dict[str, ModuleType],
) -> None:
    cell, other = study["plan"].BEGINNINGS.cells[:2]
    old, new = numbers(study, 0.1), evolve(numbers(study, 0.5), clamped_chunks=0.25)
    old = evolve(old, masked_chunks=None)
    stored = {"starts": [(cell, 10, {(0, 0): old, (1, 0): old}), (other, 10, {(0, 0): old})]}
    again = {"starts": [(cell, 5, {(0, 0): new}), (other, 5, {})]}
    found = study["data"].merged({**stored, "parts": []}, again)
    assert found == {
        "starts": [(cell, 10, {(0, 0): new, (1, 0): old}), (other, 10, {(0, 0): old})],
        "parts": [],
    }
    rows = study["measured"].table(study["plan"].BEGINNINGS, found["starts"]).rows
    table = study["measured"].Table(plan=study["plan"].BEGINNINGS, rows=rows, rollouts=768)
    lines = list(study["pages"].markdown(table))
    assert lines[0].endswith("| clipped | masked chunks | clamped chunks | age |")
    # The mean of those runs that have stored it.
    assert lines[2].endswith("| 0.0% | 12.5% (1 run) | 25.0% (1 run) | 1.5 |")
    assert lines[3].endswith("| 0.0% | - | - | 1.5 |")


def test_a_study_says_in_advance_what_it_will_take_and_leaves_out_what_is_too_long(
    study: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """40 runs of 20 minutes by two at a time: 6 h 40 min; of 30 minutes: 10 h, more than 8."""
    plan, module = study["plan"].BEGINNINGS, study["study"]
    monkeypatch.setattr(module, "DATA", tmp_path / "study")
    asked = argparse.Namespace(jobs=2, long=False)

    def affordable(seconds: float) -> list[Any]:
        run = numbers(study, 0.5, seconds=seconds)
        cells = [(cell, 10, {(0, 0): run}) for cell in plan.cells]
        study["data"].write(tmp_path / "study", {plan.name: cells})
        return list(module._affordable([plan], tmp_path / "runs", asked))

    assert affordable(1200.0) == [plan]
    assert "starts: 40 runs missing, about 6 h 40 min\n" in capsys.readouterr().out
    assert affordable(1800.0) == []
    assert "about 10 h 0 min; left out, --long runs it" in capsys.readouterr().out
    asked.long = True
    assert affordable(1800.0) == [plan]
    objectives = study["plan"].OBJECTIVES
    # Six cells of five starts and two seeds, and of each three rates with two more seeds.
    assert module.missing(objectives, tmp_path / "runs") == (6 * 5 * 2 + 6 * 3 * 2, None)


@pytest.mark.parametrize(("outcome", "completed"), [("completed", True), ("interrupted", False)])
def test_a_warm_start_that_was_interrupted_is_not_taken_for_a_whole_one(
    study: dict[str, ModuleType], tmp_path: Path, outcome: str, completed: bool
) -> None:
    manifest = {
        "schema": 1,
        "run_id": "warm",
        "config": {"chunker": {"type": "interaction"}},
        "n_tasks": 1,
        "outcome": {"outcome": outcome, "seconds": 1.0},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert study["study"].is_completed(tmp_path) is completed


def test_tables_go_between_their_marks_and_a_table_without_a_place_is_an_error(
    study: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "docs" / "study.md"
    page.parent.mkdir()
    places = ("objectives", "objectives, curves", "objectives, sweep")
    marks = "".join(f"<!-- table {place} -->\nold\n<!-- end -->\n" for place in places)
    page.write_text(f"Before.\n\n{marks}\nAfter.\n")
    monkeypatch.setattr(study["study"], "ROOT", tmp_path)
    monkeypatch.setattr(study["study"], "DATA", page.parent / "study")
    rows = [row(study, "one", (8,), (8,), after=0.2)]
    made = [
        study["measured"].Table(plan=study["plan"].OBJECTIVES, rows=rows, rollouts=8),
        study["measured"].Table(plan=study["plan"].PARTS, rows=rows, rollouts=8),
    ]
    swept = [
        study["sweeps"].Tried(
            grid="objectives",
            cell="one",
            value=f"trainer.lr={rate}",
            seed=seed,
            greedy=greedy,
            after=0.5,
            chosen=rate == "3e-4",
        )
        for rate, greedy in (("1e-4", 0.25), ("3e-4", 1.0))
        for seed in (1000, 1001)
    ]
    study["sweeps"].write(tmp_path / "sweep.csv", swept)
    assert study["sweeps"].stored(tmp_path / "sweep.csv") == swept
    found = study["study"].pages(made[:1], swept)
    lines = found[page].splitlines()
    assert lines[:3] == ["Before.", "", "<!-- table objectives -->"]
    assert lines[3] == "![Success after training](study/objectives.svg)"
    assert lines[7].startswith("| one | 2 of 5 |")
    assert lines[-6:] == [
        "| trainer.lr | 1e-4 | 3e-4 |",
        "|---|---:|---:|",
        "| one | 37.5% | **75.0%** |",
        "<!-- end -->",
        "",
        "After.",
    ]
    assert found[page.parent / "study" / "objectives.svg"].startswith("<svg")
    with pytest.raises(InputError, match="no place for the table 'parts'"):
        study["study"].pages(made, [])


@pytest.mark.long
def test_every_cell_of_the_study_is_valid(study: dict[str, ModuleType], workshop: Any) -> None:
    for plan in study["plan"].PLANS:
        config = str(ROOT / "configs" / "study" / f"{plan.config}.yaml")
        cells = [part for cell in plan.cells for part in ("--cell", "; ".join(cell.overrides))]
        done = workshop.succeeds("ablate", config, *cells, "--dry-run", timeout_s=600)
        assert f"{len(plan.cells)} cells x 5 seeds" in done.text
