"""Collecting and scoring."""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError, PluginError
from ale.runs import Registry, RunReader, add_note
from ale.testing.builders import episode, turn
from ale.types import Episode, Note, replace
from ale_rows import (
    DpoRow,
    EpisodeRow,
    RlRow,
    ScoredRow,
    SftRow,
    collect,
    collecting,
    found_runs,
    make_dpo,
    make_sft,
    read_rows,
    report_path,
    score,
)
from ale_rows.stored import EpisodeHead


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_collect_copies_the_graded_training_episodes(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    report = collect([run(*some)], tmp_path / "raw.jsonl")
    rows = list(read_rows(tmp_path / "raw.jsonl", EpisodeRow))
    assert {row.run for row in rows} == {"a"}
    assert [row.episode for row in rows] == some[:4]
    assert report.read == 6
    assert report.written == 4
    assert dict(report.dropped) == {
        "broken, so without a reward: SandboxError (sandbox)": 1,
        "of the split 'evaluation'": 1,
    }


def test_collect_can_include_all_episodes(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    report = collect([run(*some)], tmp_path / "raw.jsonl", split="all", broken=True)
    assert report.written == 6
    report = collect([tmp_path / "runs"], tmp_path / "raw.jsonl", split="evaluation")
    assert [row.episode for row in read_rows(tmp_path / "raw.jsonl", EpisodeRow)] == [some[5]]


def test_rows_are_sorted_by_step_task_and_rollout(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    collect([run(*reversed(some))], tmp_path / "raw.jsonl")
    rows = read_rows(tmp_path / "raw.jsonl", EpisodeRow)
    assert [row.episode for row in rows] == some[:4]


def test_every_temperature_of_an_evaluation_is_collected(tmp_path: Path, run: Any) -> None:
    evaluated = [
        replace(episode(), id=f"{step}-{how}", split="evaluation", step=step, temperature=how)
        for step in (0, 3)
        for how in (None, 0.0, 0.5)
    ]
    report = collect([run(*reversed(evaluated))], tmp_path / "raw.jsonl", split="evaluation")
    rows = read_rows(tmp_path / "raw.jsonl", EpisodeRow)
    assert [row.episode for row in rows] == evaluated
    assert report.read == 6


def test_what_a_branch_copied_is_collected_once(tmp_path: Path, run: Any) -> None:
    """The branch's own episode may have the origin's times: the runs may be deterministic."""
    copied, later, own = (
        replace(episode(), id=f"{step}-demo-0", step=step, started_at=at)
        for step, at in ((0, "10:00"), (1, "10:01"), (1, "10:01"))
    )
    origin, branch = run(copied, later), run(copied, own, name="b")
    manifest = json.loads((branch / "manifest.json").read_text())
    manifest["branched_from"] = {"run": f"/moved/since/{origin.name}", "steps": 1}
    (branch / "manifest.json").write_text(json.dumps(manifest))
    report = collect([branch, origin], tmp_path / "raw.jsonl")
    rows = [(row.run, row.episode) for row in read_rows(tmp_path / "raw.jsonl", EpisodeRow)]
    assert rows == [("b", own), ("a", copied), ("a", later)]
    assert report.read == 4
    assert dict(report.dropped) == {
        "copied when their run branched from another one: collected with that": 1
    }
    assert collect([branch], tmp_path / "raw.jsonl").written == 2, "its origin is not collected"


def test_the_origin_of_several_branches_is_read_once_for_them(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [run(episode(), name=name) for name in "abc"]
    for branch in paths[1:]:
        manifest = json.loads((branch / "manifest.json").read_text())
        manifest["branched_from"] = {"run": str(paths[0]), "steps": 1}
        (branch / "manifest.json").write_text(json.dumps(manifest))
    read: list[str] = []
    heads = collecting._heads

    def counted(reader: RunReader) -> list[tuple[EpisodeHead, int]]:
        read.append(reader.path.name)
        return heads(reader)

    monkeypatch.setattr(collecting, "_heads", counted)
    assert collect(paths, tmp_path / "raw.jsonl").written == 1
    assert read == ["a", "b", "a", "c"]


def test_a_folder_is_searched_for_runs_without_duplicates(tmp_path: Path, run: Any) -> None:
    paths = [run(name="b", folder="runs/x"), run(name="a"), run(name="c", folder="runs/x/y")]
    found = found_runs([tmp_path / "runs", paths[0]])
    assert found == [paths[1], paths[0], paths[2]]


def test_two_runs_with_one_id_are_rejected(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    one, other = run(*some), run(*some, folder="copied")
    with pytest.raises(InputError, match="both the run 'a'"):
        collect([one, other], tmp_path / "raw.jsonl")
    assert not (tmp_path / "raw.jsonl").exists()


def test_an_output_never_overwrites_its_run(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    path = run(*some)
    for out in (path, tmp_path / "runs"):
        with pytest.raises(InputError, match="is a folder"):
            collect([tmp_path / "runs"], out)
    assert (path / "episodes.jsonl").exists()


def test_what_is_no_run_is_skipped_by_name(
    tmp_path: Path, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(name="a")
    (tmp_path / "index.sqlite").write_bytes(b"")
    assert found_runs([path, tmp_path / "index.sqlite"]) == [path]
    assert f"skipped {tmp_path}/index.sqlite: not a run" in capsys.readouterr().err


def test_a_file_is_rejected_as_a_run(tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").write_text("")
    with pytest.raises(InputError, match="a file, not a run directory"):
        collect([tmp_path / "raw.jsonl"], tmp_path / "out.jsonl")


def test_a_folder_without_runs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        collect([tmp_path / "nope"], tmp_path / "raw.jsonl")


def test_an_episode_of_a_newer_schema_is_refused(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    path = run(*some) / "episodes.jsonl"
    path.write_text(path.read_text().replace('"schema":1', '"schema":7', 1))
    with pytest.raises(InputError, match="schema 7"):
        collect([path.parent], tmp_path / "raw.jsonl")


@pytest.fixture
def raw(tmp_path: Path, run: Any, some: Sequence[Episode]) -> Path:
    collect([run(*some)], tmp_path / "raw.jsonl", split="all", broken=True)
    return tmp_path / "raw.jsonl"


def test_the_baseline_is_the_mean_reward_of_the_file(
    tmp_path: Path, raw: Path, registry: Registry
) -> None:
    report = score(raw, tmp_path / "scored.jsonl", registry)
    rows = list(read_rows(tmp_path / "scored.jsonl", ScoredRow))
    assert report.notes["mean reward"] == 2.5 / 4
    assert {row.batch.mean_reward for row in rows} == {2.5 / 4}
    for row in rows:
        given = zip(row.credit.weights, row.credit.rewards, strict=True)
        assert all(weight == reward - 2.5 / 4 for weight, reward in given)


def test_equal_rewards_have_exactly_their_mean(
    tmp_path: Path, run: Any, registry: Registry
) -> None:
    equal = [episode(0.3, turn("Done."), rollout=number) for number in range(12)]
    collect([run(*equal)], tmp_path / "equal.jsonl")
    score(tmp_path / "equal.jsonl", tmp_path / "scored.jsonl", registry)
    rows = list(read_rows(tmp_path / "scored.jsonl", ScoredRow))
    assert {row.credit.weights for row in rows} == {(0.0,)}


def test_broken_and_evaluation_episodes_are_counted_and_not_scored(
    tmp_path: Path, raw: Path, registry: Registry
) -> None:
    report = score(raw, tmp_path / "scored.jsonl", registry)
    assert report.read == 6
    assert report.written == 4
    assert sorted(report.dropped) == [
        "broken, so without a reward: SandboxError (sandbox)",
        "of an evaluation: held out",
    ]
    assert json.loads(report_path(tmp_path / "scored.jsonl").read_text())["dropped"] == dict(
        report.dropped
    )


def test_a_scored_row_is_the_episode_with_chunks_and_credit(
    tmp_path: Path, raw: Path, registry: Registry, some: Sequence[Episode]
) -> None:
    score(raw, tmp_path / "scored.jsonl", registry, chunker="ale-lite", scheme="ipa-lite:scale=2")
    first = next(read_rows(tmp_path / "scored.jsonl", ScoredRow))
    assert first.episode == some[0]
    assert (first.chunker, first.scheme) == ("ale-lite", "ipa-lite:scale=2")
    assert first.credit.scheme == "ipa-lite:scale=2"
    assert first.credit.rewards == (2 / 5, 4 / 5, 6 / 5, 8 / 5, 2.0)
    assert [chunk.index for chunk in first.chunks] == [0, 1, 2, 3, 4]


def test_the_runs_own_chunker_and_scheme_are_taken_and_several_are_refused(
    tmp_path: Path, raw: Path, registry: Registry
) -> None:
    out = tmp_path / "scored.jsonl"

    def rows(*crediting: object) -> None:
        lines = [json.loads(line) for line in raw.read_text().splitlines()]
        made = zip(lines, itertools.cycle(crediting), strict=False)
        texts = [json.dumps({**row, "crediting": given}) + "\n" for row, given in made]
        raw.write_text("".join(texts))

    def names() -> tuple[str, str]:
        first = next(read_rows(out, ScoredRow))
        return first.chunker, first.scheme

    own = {"chunker": {"type": "turns"}, "credit": {"type": "ipa-lite", "scale": 3.0}}
    rows(own)
    score(raw, out, registry)
    assert names() == ("turns", "ipa-lite")
    assert next(read_rows(out, ScoredRow)).credit.rewards == (1.0, 2.0, 3.0)
    score(raw, out, registry, chunker="whole")
    assert names() == ("whole", "ipa-lite")
    rows(None)
    score(raw, out, registry)
    assert names() == ("ale-lite", "ipa-lite")
    rows(own, {**own, "chunker": {"type": "whole"}})
    with pytest.raises(InputError, match=r"differ in .chunker.: whole, turns\n.*--chunker"):
        score(raw, out, registry)
    score(raw, out, registry, chunker="twos")
    assert names() == ("twos", "ipa-lite")


def test_collected_rows_have_the_chunker_and_the_scheme_of_their_run(
    tmp_path: Path, run: Any
) -> None:
    folder = run(episode(1.0, turn("Done.")))
    config = RunReader(folder).manifest["config"]
    collect([folder], tmp_path / "one.jsonl")
    (row,) = read_rows(tmp_path / "one.jsonl", EpisodeRow)
    assert row.crediting == {"chunker": config["chunker"]}  # this run has no scheme


def test_chunker_and_scheme_may_come_from_a_config(
    tmp_path: Path, raw: Path, registry: Registry
) -> None:
    chosen = {"type": "ipa-lite", "scale": 3.0}
    score(raw, tmp_path / "scored.jsonl", registry, chunker={"type": "turns"}, scheme=chosen)
    first = next(read_rows(tmp_path / "scored.jsonl", ScoredRow))
    assert first.chunker == "turns"
    assert first.credit.rewards == (1.0, 2.0, 3.0)


def test_the_rows_of_a_group_need_not_be_adjacent(
    tmp_path: Path, raw: Path, registry: Registry
) -> None:
    score(raw, tmp_path / "one.jsonl", registry)
    mixed = raw.read_text().splitlines()
    raw.write_text("\n".join(mixed[i] for i in (3, 5, 1, 2)) + "\n")
    score(raw, tmp_path / "other.jsonl", registry)
    one, other = (
        {row.episode.id: row.credit.rewards for row in read_rows(tmp_path / name, ScoredRow)}
        for name in ("one.jsonl", "other.jsonl")
    )
    assert one == other


def test_duplicate_episodes_are_rejected(tmp_path: Path, raw: Path, registry: Registry) -> None:
    raw.write_text(raw.read_text() * 2)
    with pytest.raises(InputError, match="is there twice"):
        score(raw, tmp_path / "scored.jsonl", registry)


def test_a_scheme_that_returns_nan_is_named(tmp_path: Path, raw: Path, registry: Registry) -> None:
    with pytest.raises(PluginError, match="credit scheme 'wrong'"):
        score(raw, tmp_path / "scored.jsonl", registry, scheme="wrong")
    assert [path.name for path in tmp_path.iterdir() if "scored" in path.name] == []


def test_an_output_that_is_the_input_is_refused(raw: Path, registry: Registry) -> None:
    before = raw.read_bytes()
    with pytest.raises(InputError, match="can't be written at the same time"):
        score(raw, raw, registry)
    assert raw.read_bytes() == before


def test_an_empty_file_gives_an_empty_file(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "raw.jsonl").write_text("")
    assert score(tmp_path / "raw.jsonl", tmp_path / "scored.jsonl", registry).written == 0
    assert list(read_rows(tmp_path / "scored.jsonl", ScoredRow)) == []


def refusal(path: Path, kind: type[Any]) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path, kind))
    return str(caught.value)


def test_a_row_of_another_kind_is_refused_with_the_command_that_makes_the_right_one(
    raw: Path,
) -> None:
    found = refusal(raw, ScoredRow)
    assert f"{raw}:1" in found
    assert "a row of kind 'episode', expected 'scored'" in found
    assert "ale data score writes such rows" in found
    sft = raw.with_name("sft.jsonl")
    make_sft(raw, sft)
    with pytest.raises(InputError) as refused:
        make_sft(sft, raw.with_name("again.jsonl"))
    found = str(refused.value)
    assert "a row of kind 'sft', expected 'scored' or 'episode'" in found
    assert "ale data score or ale data collect writes such rows" in found


@pytest.mark.parametrize(
    ("schema", "reason"),
    [("2", "written by a newer version"), ("0", "none before 1"), ('"1"', "none before 1")],
)
def test_a_row_of_another_version_is_refused_with_the_reason(
    raw: Path, schema: str, reason: str, registry: Registry
) -> None:
    raw.write_text(raw.read_text().replace('"schema":1', f'"schema":{schema}', 1))
    assert reason in refusal(raw, EpisodeRow)
    with pytest.raises(InputError, match=reason):
        score(raw, raw.with_name("scored.jsonl"), registry)


def test_a_line_of_a_run_directory_is_recognised(run: Any, some: Sequence[Episode]) -> None:
    assert "collect it first" in refusal(run(*some) / "episodes.jsonl", EpisodeRow)


def test_a_damaged_line_is_named(raw: Path, registry: Registry) -> None:
    text = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join([*text[:2], text[2].replace('"turns":[', '"turns":7,"x":['), *text[3:]]))
    assert f"{raw}:3: episode.trajectory.turns" in refusal(raw, EpisodeRow)
    with pytest.raises(InputError, match=r"raw.jsonl:3: episode.trajectory.turns"):
        score(raw, raw.with_name("scored.jsonl"), registry)
    raw.write_text("".join([*text[:4], text[4][:50]]))
    assert f"{raw}:5" in refusal(raw, EpisodeRow)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row["chunks"].pop(), "the chunks do not fit the episode: "),
        (lambda row: row["chunks"][0].update(index=9), "not in the order of their indices"),
        (lambda row: row["chunks"][0]["spans"][0].update(turn=99), "do not fit the episode"),
        (lambda row: row["credit"]["returns"].pop(), "rewards, .* returns and .* weights for"),
    ],
)
def test_a_scored_row_whose_parts_do_not_fit_is_named(
    raw: Path, registry: Registry, change: Callable[[Any], object], message: str
) -> None:
    scored = raw.with_name("scored.jsonl")
    score(raw, scored, registry)
    row = json.loads(scored.read_text().partition("\n")[0])
    change(row)
    scored.write_text(json.dumps(row) + "\n")
    assert re.search(rf"{scored}:1: .*{message}", refusal(scored, ScoredRow))


def test_a_conversation_with_a_weight_too_few_is_named(raw: Path) -> None:
    sft = raw.with_name("sft.jsonl")
    make_sft(raw, sft)
    first, _, rest = sft.read_text().partition("\n")
    row = json.loads(first)
    row["loss_weights"].pop()
    sft.write_text(json.dumps(row) + "\n" + rest)
    n = len(row["messages"])
    assert f"{sft}:1: {n - 1} loss_weights for {n} messages" in refusal(sft, SftRow)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nope.jsonl", RlRow)


def said(path: Path, name: str, verdict: Any, **fields: Any) -> None:
    at = {"at": 9e9, "episode": name, "verdict": verdict, **fields}
    add_note(path, Note(id=f"{len(RunReader(path).notes)}", **at))


def test_a_verdict_of_a_person_is_the_reward(
    tmp_path: Path, run: Any, some: Sequence[Episode], registry: Registry
) -> None:
    path = run(*some)
    first, second, third, other, broke, held = (each.id for each in some)
    said(path, first, "bad")
    said(path, second, "good", label="it is right all the same")
    said(path, third, "good", turn=0)
    said(path, other, "good", by="Ada")
    said(path, other, "bad", by="Bob")
    said(path, broke, "good")
    said(path, held, "good")
    raw = tmp_path / "raw.jsonl"
    report = collect([path], raw, verdicts=True)
    rows = list(read_rows(raw, EpisodeRow))
    expected = [replace(some[0], reward=0.0), replace(some[1], reward=1.0)]
    assert [row.episode for row in rows] == expected, "nothing else of them has changed"
    assert dict(report.dropped) == {
        "of the split 'evaluation'": 1,
        "without a verdict": 1,
        "people disagree: one says good, another one bad": 1,
        "broken, so without a reward: SandboxError (sandbox)": 1,
    }
    assert (report.notes["marked good"], report.notes["marked bad"]) == (1, 1)
    make_sft(raw, tmp_path / "sft.jsonl")
    assert [row.episode for row in read_rows(tmp_path / "sft.jsonl", SftRow)] == [second]
    make_dpo(raw, tmp_path / "dpo.jsonl", pairing="same-prompt")
    (pair,) = read_rows(tmp_path / "dpo.jsonl", DpoRow)
    assert (pair.chosen_from.episode, pair.rejected_from.episode) == (second, first)
    assert (pair.chosen_from.value, pair.rejected_from.value) == (1.0, 0.0)
    assert score(raw, tmp_path / "scored.jsonl", registry).notes["mean reward"] == 0.5


def test_a_verdict_gives_a_reward_to_what_has_none(tmp_path: Path, run: Any) -> None:
    path = run(replace(episode(None), failure=None))
    said(path, RunReader(path).episodes[0].id, "good")
    collect([path], tmp_path / "raw.jsonl", verdicts=True)
    (row,) = read_rows(tmp_path / "raw.jsonl", EpisodeRow)
    assert row.episode.reward == 1.0


def test_an_incomplete_note_is_named_and_broken_episodes_get_no_verdict(
    tmp_path: Path, run: Any
) -> None:
    path = run(episode())
    with (path / "notes.jsonl").open("wb") as file:
        file.write(b'{"schema":1')
    report = collect([path], tmp_path / "raw.jsonl", verdicts=True)
    assert any(f"({path / 'notes.jsonl'}:1)" in line for line in report.lines())
    with pytest.raises(InputError, match="broke"):
        collect([path], tmp_path / "raw.jsonl", verdicts=True, broken=True)
