"""Runs that ale 0.1 stored (`data/run-0.1`) can still be read and credited again.

`scripted` has an export trainer and an evaluation; `starts` has tokens and an expert-guided start.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ale._store import Redactor, RunDirectory
from ale.runs import Crediting, RunReader, build_choice, parse_choice

STORED = Path(__file__).with_name("data") / "run-0.1"


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        (
            "scripted",
            {
                "evaluation-0-basics-rename-0",
                "0-basics-ls-0",
                "0-basics-ls-1",
                "evaluation-1-basics-rename-0",
            },
        ),
        ("starts", {"0-basics-ls-0", "0-basics-ls@p1of2-0"}),
    ],
)
def test_every_record_of_a_run_of_0_1_is_read(name: str, ids: set[str]) -> None:
    run = RunReader(STORED / name)
    episodes = list(run.episodes)
    assert {episode.id for episode in episodes} == ids
    trained = {episode.id for episode in episodes if episode.split == "train"}
    assert {row.episode_id for row in run.credits()} == trained
    assert [task.id for task in run.tasks] == ["basics-ls"]
    assert [event["event"] for event in run.events()][-1] == "run_finished"
    assert len(run.index()) == len(ids)


def test_an_expert_guided_episode_of_0_1_keeps_its_tokens_and_the_experts_next_action() -> None:
    episodes = {episode.id: episode for episode in RunReader(STORED / "starts").episodes}
    forced, sampled = episodes["0-basics-ls@p1of2-0"].trajectory.turns
    assert (forced.completion.forced, sampled.completion.forced) == (True, False)
    assert sampled.completion.tokens is not None
    assert len(sampled.completion.tokens.output_ids) == 8
    metadata = episodes["0-basics-ls@p1of2-0"].metadata
    assert (metadata["expert_turns"], metadata["expert_next"]["turn"]) == (2, 1)


@pytest.mark.parametrize("name", ["scripted", "starts"])
def test_a_run_of_0_1_is_credited_again(name: str, registry: Any) -> None:
    run = RunReader(STORED / name)
    (_, chunker), (_, scheme) = (
        build_choice(parse_choice(choice, option="--x"), kind, registry)
        for choice, kind in (("interaction", "chunker"), ("even", "credit"))
    )
    crediting = Crediting(
        chunker=chunker, chunker_name="interaction", scheme=scheme, scheme_name="even"
    )
    groups = list(crediting.groups(run, run.index(), 0))
    credits = {credit.episode_id: credit.weights for group in groups for credit in group.credits}
    rewards = {e.id: e.reward for e in run.episodes if e.split == "train"}
    assert {id: set(weights) for id, weights in credits.items()} == {
        id: {reward} for id, reward in rewards.items()
    }


def test_the_checkpoint_report_of_0_1_is_read(tmp_path: Path) -> None:
    shutil.copytree(STORED / "scripted", tmp_path / "run")
    directory = RunDirectory.resume(tmp_path / "run", Redactor({}))
    assert directory.checkpoints.newest() == 0
    assert directory.checkpoints.report(0).metrics["mean_reward"] == 1.0
    directory.close()
