"""`report.html`: contents, no loaded resources, and escaped text."""

import base64
import hashlib
import json
import math
import re
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import Result

from ale.errors import InputError, StoreError
from ale.runs import Registry, RunReader
from ale.testing.builders import episode, turn
from ale.testing.credit import known_worth
from ale.types import Episode, Failure, Score
from ale.values import NAME, read_values, write_values
from ale_figures.charts.testing import ReadPage
from ale_look.inspect.report.gathering import Sums
from ale_look.view.pages import static_files
from ale_look.view.single import write_report

Ale = Callable[..., Result]
Write = Callable[..., Path]

LOADING = {"src", "href", "action", "data", "poster", "srcset", "background", "xlink:href"}


class Page(ReadPage):
    """A report with the answers that are embedded in it."""

    @property
    def answers(self) -> dict[str, Any]:
        """What is embedded, by address."""
        return {
            attributes["data-path"] or "": json.loads(text)
            for attributes, text in self.scripts
            if attributes.get("type") == "application/json"
        }

    @property
    def run(self) -> dict[str, Any]:
        """The run as a whole."""
        (found,) = (each for path, each in self.answers.items() if re.match(r"run/[^/]+$", path))
        return dict(found)

    @property
    def tiles(self) -> list[str]:
        """Label, value and note of each number at the top."""
        return [" ".join(tile.values()) for tile in self.run["tiles"]]

    @property
    def charts(self) -> dict[str, Any]:
        """The charts by title."""
        found = self.run["charts"]
        every = [*found["results"], *found["learning"], *found["more"]]
        return {chart["title"]: chart for chart in every}

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """What is embedded to be opened."""
        return [each for path, each in self.answers.items() if "/episode/" in path]

    @property
    def worth(self) -> dict[int, dict[str, Any]]:
        """Values and credit of episodes, by their offset."""
        parts = {path.split("/worth/")[1]: e for path, e in self.answers.items() if "worth" in path}
        return {int(name.removesuffix(".json")): each for name, each in parts.items()}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The list of episodes."""
        (found,) = (e for path, e in self.answers.items() if path.endswith("/episodes.json"))
        columns = found["columns"]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, values, strict=True)) for values in rows]


@pytest.fixture(scope="module")
def trained(write_trained: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 steps with its report."""
    path = write_trained(tmp_path_factory.mktemp("runs") / "trained")
    write_report(RunReader(path), path / "report.html", episodes=60, megabytes=8)
    return path


def page_of(path: Path, **limits: Any) -> Page:
    """The report of a run, read again."""
    target = path / "report.html"
    write_report(RunReader(path), target, **{"episodes": 200, "megabytes": 8.0, **limits})
    return Page(target.read_text())


def test_a_report_has_the_parts_and_the_outcome_of_the_run(trained: Path) -> None:
    page = Page((trained / "report.html").read_text())
    run, text = page.run, "\n".join(page.tiles)
    outcome = run["outcome"]
    assert (run["run_id"], outcome["name"], outcome["time"]) == (
        "trained", "completed", "5 min 12 s"
    )  # fmt: skip
    assert {("llm", "policy"), ("credit", "ipa"), ("trainer", "policy")} < {
        *map(tuple, run["parts"])
    }
    for expected in ("success held out, step 35", "over 40 steps"):
        assert expected in text
    rewards = [e.reward for e in RunReader(trained).episodes if e.split == "train"]
    graded = [reward for reward in rewards if reward is not None]
    assert f"{graded.count(1.0):,} of {len(graded):,}" in text
    broken = sum(e.broken for e in RunReader(trained).episodes)
    assert f"{broken} broken" in text


def test_curves_are_drawn_of_episodes_and_of_every_metric(trained: Path) -> None:
    page = Page((trained / "report.html").read_text())
    plots = page.charts
    assert [*plots][:2] == ["Success", "Mean reward"]
    known = ("Loss", "Entropy", "KL start", "Gradient norm", "Ratio", "Ratio, min and max")
    assert {*known, "Masked fraction", "Learning rate", "Tokens per second"} < {*plots}
    assert {"Seconds", "Seconds episodes", "Zeta of theta"} < {*plots}
    assert page.run["charts"]["constants"] == [["chunks_empty", 0.0], ["updates", 4.0]]
    spent = {series["name"] for series in plots["Seconds"]["series"]}
    of_the_run = {"evaluation", "rollouts", "crediting", "training", "hand over", "checkpoint"}
    assert spent == {"the trainer's step", *of_the_run, "idle"}
    assert plots["Entropy"]["xs"] == list(range(40))
    assert len(plots["Gradient norm"]["xs"]) == 39, "a step whose norm was NaN is left out"
    assert "1 value not finite, left out" in plots["Gradient norm"]["note"]
    own, held_out = plots["Success"]["series"]
    assert (own["name"], held_out["name"]) == ("training tasks", "held-out tasks")
    assert [step for step, y in enumerate(held_out["ys"]) if y is not None][:3] == [0, 5, 10]
    assert all(
        low <= y <= high for low, y, high in zip(own["low"], own["ys"], own["high"], strict=True)
    )
    assert [series["name"] for series in plots["Ratio"]["series"]] == ["p50, band p05 to p95"]


def test_success_of_experts_and_from_expert_starts_is_counted_apart(
    write: Write, tmp_path: Path
) -> None:
    answer = turn("said by the expert")
    forced = evolve(answer, completion=evolve(answer.completion, forced=True))
    own = [episode(0.0, turn("tried"), rollout=i) for i in range(3)]
    later = episode(1.0, forced, turn("then tried"), episode_id="later")
    demo = episode(1.0, forced, episode_id="demo")
    rows = [*own, evolve(later, start="solution-2/4"), evolve(demo, start="demo")]
    page = page_of(write(tmp_path / "run", [*rows, *(evolve(e, step=1) for e in rows)]))
    assert "0 of 6" in "\n".join(page.tiles)
    kinds = {each["kind"] for each in page.episodes}
    assert sorted(kinds) == ["demonstration", "expert start", "training"]
    (start,) = [each for each in page.run["starts"] if each["start"] == "solution-2/4"]
    assert (start["task"], start["success"], start["n"], start["broken"]) == ("demo", 1.0, 2, 0)


def test_a_huge_reward_has_few_digits_on_the_page(write: Write, tmp_path: Path) -> None:
    score = Score(criterion="size", passed=False, value=1e308, unbounded=True)
    run = write(tmp_path / "run", [evolve(episode(1e308, turn("big")), scores=(score,))])
    (tile,) = [each for each in page_of(run).run["tiles"] if each["label"] == "mean reward"]
    assert tile["value"] == "1e+308"


def test_an_evaluation_after_the_last_step_is_no_further_step(write: Write, tmp_path: Path) -> None:
    rows = [episode(0.0, turn("tried"), episode_id=f"own {i}") for i in range(3)]
    rows = [evolve(each, step=i) for i, each in enumerate(rows)]
    held_out = evolve(episode(0.0, turn("tried")), split="evaluation", id="held out", step=3)
    page = page_of(write(tmp_path / "run", [*rows, held_out]))
    assert "over 3 steps; none broken" in "\n".join(page.tiles)


def test_evaluations_at_several_temperatures_are_shown_apart(write: Write, tmp_path: Path) -> None:
    rows = [
        evolve(
            episode(reward, turn("tried"), episode_id=f"{step} {temperature}"),
            split="evaluation",
            step=step,
            temperature=temperature,
        )
        for step in (0, 5)
        for temperature, reward in ((0.0, 1.0), (None, 0.0))
    ]
    page = page_of(write(tmp_path / "run", rows))
    text = "\n".join(page.tiles)
    assert "success held out, greedy, step 5 100.0%" in text
    assert "success held out, step 5 0.0%" in text
    names = [series["name"] for series in page.charts["Success"]["series"]]
    assert names == ["held-out tasks", "held-out tasks, greedy"]


def test_pass_at_k_and_the_majority_are_shown_of_several_samples(
    write: Write, tmp_path: Path
) -> None:
    rows = [
        evolve(
            episode(reward, turn("tried"), episode_id=f"{task}{i}", task_id=task),
            split="evaluation",
            rollout=i,
        )
        for task, rewards in {"a": [1.0, 0.0, 1.0], "b": [0.0, 0.0, 1.0]}.items()
        for i, reward in enumerate(rewards)
    ]
    text = "\n".join(page_of(write(tmp_path / "run", rows)).tiles)
    assert "success held out, step 0 50.0% 3 of 6; 9.5 to 90.5" in text, "as of two trials"
    assert "pass@3 held out, step 0 100.0% in 50.0% more than half of the samples" in text


def rollouts(start: str, *answers: str, won: int, of: int) -> list[Episode]:
    """Episodes that began after an expert's turns."""
    made = []
    for i in range(of):
        turns = [turn(each) for each in answers]
        forced = [evolve(t, completion=evolve(t.completion, forced=True)) for t in turns]
        name = f"0-t@{start}-{i}"
        one = episode(float(i < won), *forced, turn("tried <b>"), episode_id=name, task_id="t")
        made.append(evolve(one, start=start, rollout=i))
    return made


def test_crucial_forks_are_marked_in_a_table_and_on_the_turns_that_were_replayed(
    write: Write, tmp_path: Path
) -> None:
    rows = [
        *rollouts("", won=0, of=12),
        *rollouts("p1of4", "make <i>", won=12, of=12),
        *rollouts("p3of4", "make <i>", "cd", "test", won=11, of=12),
    ]
    page = page_of(write(tmp_path / "run", rows))
    run = page.run
    assert (run["n_forks"], run["n_crucial"], run["n_harmful"]) == (2, 1, 0)
    crucial, other = run["forks"]
    for fork, verdict, before, after, message in (
        (crucial, "crucial", 0, 12, "make <i>"), (other, "", 12, 11, "cd; test")
    ):  # fmt: skip
        assert (fork["task"], fork["expert"], fork["verdict"]) == ("t", "of 4 turns", verdict)
        assert (fork["before"]["succeeded"], fork["after"]["succeeded"]) == (before, after)
        assert (fork["before"]["n"], fork["after"]["n"], fork["message"]) == (12, 12, message)
    assert (crucial["turns"], other["turns"]) == ("0", "1 to 2")
    assert crucial["p"] == pytest.approx(3.7e-7, rel=0.01)
    chunks = {e["start"]: [chunk.get("forks") for chunk in e["chunks"]] for e in page.episodes}
    first = [["0", 0, 12, 12, 12, 3.7e-07, True]]
    second = [["1 to 2", 12, 12, 11, 12, 1.0, False]]
    assert chunks == {"": [None], "p1of4": [first, None], "p3of4": [first, second, second, None]}


def test_without_two_states_to_compare_there_are_no_forks(write: Write, tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "run", rollouts("p1of4", "make", won=1, of=2)))
    assert page.run["forks"] == []


def test_tasks_and_causes_of_broken_episodes_are_in_tables(trained: Path) -> None:
    page = Page((trained / "report.html").read_text())
    rows = [task["id"] for task in page.run["tasks"]]
    assert rows == [*(f"files-{i:02d}" for i in range(12)), *(f"held-{i:02d}" for i in range(4))]
    broken = sum(e.reward is None for e in RunReader(trained).episodes)
    (cause,) = page.run["causes"]
    assert cause["n"] == broken, "one cause, whatever the port"
    assert cause["message"].startswith("sandbox: SandboxError: no answer on port")


def test_a_task_without_a_reward_has_no_value_to_sort_by(write: Write, tmp_path: Path) -> None:
    failure = Failure(stage="sandbox", kind="SandboxError", message="no image")
    broken = evolve(episode(None, episode_id="broken", task_id="broken"), failure=failure)
    rows = [episode(-2.0, turn("tried"), episode_id="worst", task_id="worst"), broken]
    page = page_of(write(tmp_path / "run", rows, credited=False))
    (row,) = [task for task in page.run["tasks"] if task["id"] == "broken"]
    cells = [row[name] for name in ("success", "n", "reward", "turns", "broken")]
    assert cells == [None, 0, None, None, 1]


def test_the_file_loads_nothing_and_runs_one_script_only(trained: Path) -> None:
    text = (trained / "report.html").read_text()
    page = Page(text)
    loaded = {value for _, a in page.tags for key, value in a.items() if key in LOADING}
    assert all((value or "").startswith(("#", "data:")) for value in loaded), loaded
    assert not any(key.startswith("on") for _, a in page.tags for key in a)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.S))
    assert not re.search(r"@import|url\(|https?:", style)
    (script,) = [text for a, text in page.scripts if a.get("type") != "application/json"]
    # Preact has a case for `dangerouslySetInnerHTML`, which no module of the page uses.
    own = script.replace(static_files()["preact-htm.js"].decode()[:9000], "")
    assert not re.search(r"outerHTML|insertAdjacent|document\.write", own)
    assert "dangerouslySetInnerHTML" not in "".join(
        data.decode() for name, data in static_files().items() if name != "preact-htm.js"
    )
    # The names of elements' kinds: they are not loaded.
    names = {"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}
    found = {*re.findall(r"https?:[^ \"]+", script)}
    assert {each for each in found if not each.startswith("http://www.w3.org/")} <= names
    (policy,) = [a["content"] or "" for _, a in page.tags if a.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_an_episode_is_embedded_turn_by_turn_with_chunks_credit_and_tokens(trained: Path) -> None:
    page = Page((trained / "report.html").read_text())
    rows = {row.episode_id: row for row in RunReader(trained).credits()}
    whole = {e.id: e for e in RunReader(trained).episodes}
    assert len(page.episodes) == 60
    compared = [made for made in page.episodes if made["id"] in rows]
    assert len(compared) > 30
    for made in compared:
        row, source = rows[made["id"]], whole[made["id"]]
        assert [chunk["w"] for chunk in made["chunks"]] == pytest.approx(
            row.credit.weights, abs=1e-6
        )
        assert [chunk["n"] for chunk in made["chunks"]] == [
            span.tokens[1] - span.tokens[0]
            for chunk in row.chunks
            for span in chunk.spans
            if span.tokens
        ]
        for drawn, turn_ in zip(made["turns"], source.trajectory.turns, strict=True):
            assert (
                "".join(t for p in drawn["parts"] for t in p["tok"])
                == turn_.completion.message.content
            )
        assert [part["k"] for part in made["turns"][0]["parts"]] == [0, 1], "cut in two"


def test_ratios_of_the_trainer_are_included(write_trained: Write, tmp_path: Path) -> None:
    path = write_trained(tmp_path / "run", steps=2)
    source = next(
        e for e in RunReader(path).episodes if e.split == "train" and e.reward is not None
    )
    sizes = [
        len(t.completion.tokens.output_ids) for t in source.trajectory.turns if t.completion.tokens
    ]
    row = {"episode_id": source.id, "log_ratios": [[0.1] * size for size in sizes]}
    (path / "ratios").mkdir()
    (path / "ratios" / "00000.jsonl").write_text(json.dumps(row) + "\n")
    (made,) = [e for e in page_of(path).episodes if e["id"] == source.id]
    assert {chunk["rho"] for chunk in made["chunks"]} == {1.1052}
    assert {value for t in made["turns"] for p in t["parts"] for value in p["lr"]} == {0.1}
    row["log_ratios"] = [None, *([None, *[0.3] * (size - 1)] for size in sizes[1:])]
    (path / "ratios" / "00000.jsonl").write_text(json.dumps(row) + "\n")
    (made,) = [e for e in page_of(path).episodes if e["id"] == source.id]
    assert [chunk.get("rho") for chunk in made["chunks"]][::2] == [None, 1.3499]
    assert all("lr" not in part for part in made["turns"][0]["parts"])
    assert made["turns"][1]["parts"][0]["lr"][:2] == [None, 0.3]
    for damaged in (b"[]\n", b'"\xff"\n'):
        (path / "ratios" / "00000.jsonl").write_bytes(damaged)
        with pytest.raises(InputError, match=r"00000\.jsonl:1"):
            page_of(path)


@pytest.fixture
def measured(write: Write, tmp_path: Path) -> Path:
    """A run with measured values of the states of its 64 episodes of four chunks."""
    groups, values = known_worth(rollouts=32, seed=0)
    path = write(tmp_path / "run", [r.episode for group in groups for r in group.rollouts])
    write_values(path / NAME, values)
    return path


def test_values_of_states_are_drawn_above_the_credit_of_the_chunks_between_them(
    measured: Path, registry: Registry
) -> None:
    known = read_values(measured / NAME).episodes
    page = page_of(measured, registry=registry)
    assert len(page.worth) == 64
    for episode_ in page.episodes:
        of, each = known[episode_["id"]], page.worth[episode_["offset"]]
        rates = [won / n for won, n in zip(of.successes, of.trials, strict=True)]
        assert each["values"] == pytest.approx(rates, abs=1e-4)
        assert each["trials"] == list(of.trials)
        bars = dict(each["bars"])
        assert list(bars) == ["worth", "scaled"]
        assert bars["worth"] == pytest.approx([b - a for a, b in pairwise(rates)], abs=2e-4)
        assert bars["scaled"] == [episode_["reward"]] * 4


def test_nothing_is_drawn_without_values_or_without_a_scheme(
    measured: Path, registry: Registry
) -> None:
    values = (measured / NAME).read_bytes()
    (measured / NAME).unlink()
    assert page_of(measured, registry=registry).worth == {}
    (measured / NAME).write_bytes(values)
    assert page_of(measured, registry=Registry()).worth == {}


def test_a_damaged_file_of_values_is_named_with_its_line(
    measured: Path, registry: Registry
) -> None:
    with (measured / NAME).open("a") as file:
        file.write("{}\n")
    with pytest.raises(InputError, match=r"values\.jsonl:66"):
        page_of(measured, registry=registry)


def test_hostile_text_is_escaped_everywhere(write: Write, hostile: str, tmp_path: Path) -> None:
    answer = turn(hostile, calls=[(hostile, hostile)], observations=[hostile], errors=[hostile])
    score = Score(criterion=hostile, passed=False, value=0.0, detail=hostile)
    made = evolve(episode(0.0, answer, task_id=hostile), scores=(score,), start=hostile)
    failure = Failure(stage="sandbox", kind=hostile, message=hostile, traceback=hostile)
    broken = evolve(episode(None, task_id="b"), failure=failure)
    later = [evolve(e, id=f"1{e.id}", step=1) for e in (made, broken)]
    metrics = {hostile: 1.0, f"{hostile}.p05": 1.0, f"{hostile}.p95": 2.0}
    path = write(
        tmp_path / "run",
        [made, broken, *later],
        manifest={
            "run_id": hostile,
            "seed": hostile,
            "created": hostile,
            "versions": {hostile: hostile},
        },
        events=[
            ("step_finished", {"step": 0, "metrics": metrics}),
            ("step_finished", {"step": 1, "metrics": metrics}),
            ("reported", {"message": hostile}),
        ],
    )
    page = page_of(path)
    assert "img" not in {tag for tag, _ in page.tags}
    assert len(page.scripts) == 5 + 4 + 2 + 1, (
        "about, the run, its list, notes, timeline; the episodes; credit of the graded; the own"
    )
    assert not any(key.startswith("on") for _, a in page.tags for key in a)
    visible = hostile.replace("\u202e", "\u27e8U+202E\u27e9").replace("\x1b", "\u241b")
    (first,) = [e for e in page.episodes if e["id"] == made.id and e["id"][0] != "1"]
    (part,) = first["turns"][0]["parts"]
    assert part["text"] == visible
    assert part["calls"][0] == {
        "name": visible, "args": visible, "seen": visible, "s": 0.0, "error": visible
    }  # fmt: skip


def test_included_episodes_are_bounded_and_counted(write_trained: Write, tmp_path: Path) -> None:
    path = write_trained(tmp_path / "run", steps=8)
    few = page_of(path, episodes=10)
    assert len(few.episodes) == 10
    every = sum(1 for _ in RunReader(path).episodes)
    assert (len(few.rows), few.answers["about.json"]["one"]["episodes"]) == (10, every)
    small = page_of(path, megabytes=0.05)
    size = sum(len(text) for a, text in small.scripts if "/episode/" in (a.get("data-path") or ""))
    assert 0.5 * 50_000 < size <= 50_000
    assert page_of(path, episodes=0).episodes == []


def test_a_long_text_keeps_its_beginning_and_its_end(write: Write, tmp_path: Path) -> None:
    long = "begin" + "x" * 50_000 + "end"
    (made,) = page_of(write(tmp_path / "run", [episode(1.0, turn(long))])).episodes
    text = made["turns"][0]["parts"][0]["text"]
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "characters left out" in text
    assert len(text) < 6100


@pytest.mark.parametrize(
    "episodes",
    [
        [],
        [evolve(episode(None), failure=Failure(stage="setup", kind="E", message="m"))],
        [episode(0.25, turn("half a pair: \ud800"))],
        [episode(1.0, turn("not credited", tokens=3))],
    ],
    ids=["no episode", "broken only", "half a surrogate pair", "one step"],
)
def test_any_run_has_a_report(write: Write, tmp_path: Path, episodes: list[Episode]) -> None:
    page = page_of(write(tmp_path / "run", episodes, credited=False))
    assert len(page.episodes) == len(episodes)
    assert page.run["outcome"]["name"] == "interrupted"
    assert page.run["charts"] is None


def test_memory_does_not_grow_with_the_run(write: Write, tmp_path: Path) -> None:
    def peak(number: int) -> int:
        rows = (episode(1.0, turn("x" * 50_000), task_id=f"t{i}") for i in range(number))
        path = write(tmp_path / str(number), list(rows), credited=False)
        run = RunReader(path)
        tracemalloc.start()
        write_report(run, path / "report.html", episodes=5, megabytes=1)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(200) - peak(20) < 180 * 3000, "a few facts of each, not its 50,000 characters"


def test_the_command_writes_the_file_and_prints_its_path(
    write_trained: Write, ale: Ale, tmp_path: Path
) -> None:
    path = write_trained(tmp_path / "run", steps=2)
    done = ale("report", str(path), "--episodes", "3")
    assert done.exit_code == 0, done.output
    assert re.fullmatch(rf"{re.escape(str(path))}/report\.html  \d+\.\d kB\n", done.output)
    assert len(Page((path / "report.html").read_text()).episodes) == 3
    other = tmp_path / "elsewhere.html"
    ale("report", str(path), "--out", str(other))
    assert other.stat().st_size > 10_000
    assert not list(path.glob(".*partial"))


def test_the_earlier_name_of_the_option_is_refused_with_the_new_one(ale: Ale) -> None:
    refused = ale("report", "run", "--output", "page.html")
    assert refused.exit_code == 2
    assert re.search(r"No such option:? '?--output'?.*--out\b", refused.output), refused.output


def test_a_place_that_cannot_be_written_is_named(
    write_trained: Write, ale: Ale, tmp_path: Path
) -> None:
    path = write_trained(tmp_path / "run", steps=1)
    (tmp_path / "file").touch()
    error = ale("report", str(path), "--out", str(tmp_path / "file" / "r.html")).exception
    assert isinstance(error, StoreError)
    assert "file/r.html" in str(error)


def test_the_interval_of_a_mean_counts_tasks() -> None:
    """0, 0.5, 1 and 0.5 in all four rollouts: s is 0.4082, t(3) is 3.182, and 3.182 s / 2 0.6496.

    With one rollout each it is the same; and where tasks do not differ, that of 16 rollouts.
    """
    rewards = [0.0, 0.5, 1.0, 0.5]
    for rollouts in (1, 4):
        sums = Sums()
        for i, reward in enumerate(rewards * rollouts):
            sums.add(episode(10 * reward, task_id=str(i % 4)))
        assert sums.mean_reward() == pytest.approx((5, -1.496, 11.496), abs=1e-3)
    same = Sums()
    for i in range(16):
        same.add(episode(10 * rewards[i // 4], task_id=str(i % 4)))
    half = 1.96 * math.sqrt(200 / 15 / 16)
    assert same.mean_reward() == pytest.approx((5, 5 - half, 5 + half), abs=1e-3)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((0.0, 1.0), (0.5, 0.0, 1.0)),
        ((7.0, -3.0), (2.0, -7.8, 11.8)),
        ((7.0, 7.0), (7.0, 7.0, 7.0)),
    ],
)
def test_a_mean_is_bounded_by_0_and_1_only_where_the_rewards_are(
    rewards: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    sums = Sums()
    for reward in rewards:
        alone = Sums()
        alone.add(episode(reward))
        sums = sums.merged([alone])
    assert sums.mean_reward() == pytest.approx(expected, abs=1e-3)


def test_tokens_that_were_given_to_the_model_are_not_generated() -> None:
    sampled = turn("Mine.", tokens=3)
    forced = evolve(sampled, completion=evolve(sampled.completion, forced=True))
    sums = Sums()
    sums.add(episode(1.0, forced, sampled))
    assert (sums.turns, sums.tokens, sums.sampled) == (2, 3, 1)


def test_the_interval_of_a_mean_of_large_rewards_is_exact() -> None:
    """1, 2 and 3 and 2: s is 0.8165, and 1.96 s / 2 is 0.8002; so it is far from zero."""
    parts = [Sums(), Sums()]
    for i, reward in enumerate((1, 2, 3, 2)):
        parts[i % 2].add(episode(1e9 + reward))
    found = Sums().merged(parts).mean_reward()
    assert found is not None
    assert found == pytest.approx((1e9 + 2, 1e9 + 1.1998, 1e9 + 2.8002), abs=1e-3, rel=0)
