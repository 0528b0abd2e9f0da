"""Filters of `ale runs episodes` among a million episodes in SQLite, and an update of the database.

The filters are those of the command line, alone and together: common and rare values, ranges,
words, none that matches. Each is timed some times over, with another value where there are
several; what counts is the 95th percentile over all of them. The bare operation is SQLite's own
count over the same table. Text is that of one turn per episode.

An update without anything new, and one after one more episode, are compared with the first update,
in CPU time.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from ale._store import Redactor, RunDirectory
from ale.testing.builders import episode, turn
from ale_look.store import schema
from ale_look.store.database import Database, open_database
from ale_look.store.finding import Filters, find, sample
from ale_look.store.indexing import Indexer
from ale_look.store.listing import RunFilters, list_runs

EPISODES = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
P95_AIM_MS = 100.0
UPDATE_AIM_S = 0.1
RUNS, TASKS, MODELS, TOOLS, ERRORS = 1000, 2000, 8, 10, 500
YEAR = 365 * 86400.0
NOW = 1_800_000_000.0
WORDS = [f"word{i}" for i in range(5000)]
REPEATS = 8


def rows(rng: random.Random) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """All rows, in batches, with their table. Runs are spread over a year."""
    none = {"host": "", "outcome": "completed", "seconds": 1.0, "n_tasks": 100, "mean_reward": 0.5}
    counts = {"n_episodes": 1000, "n_broken": 10, "n_graded": 990, "n_succeeded": 300}
    yield (
        schema.runs,
        [
            {"id": i, "path": f"/runs/{i}", "run_id": f"run-{i}", "created": began(i), **none}
            | counts
            for i in range(RUNS)
        ],
    )
    yield schema.settings, [{"run": i, "key": "seed", "value": str(i)} for i in range(RUNS)]
    yield schema.tags, [{"run": i, "tag": "best"} for i in range(0, RUNS, 100)]
    yield (
        schema.tasks,
        [
            {"id": i, "sha256": str(i), "task_id": f"task-{i}", "origin": ""}
            | {"prompt": f"Rename the file {WORDS[i]} to {WORDS[-i]}. " + "Then say so. " * 20}
            for i in range(TASKS)
        ],
    )
    yield (
        schema.errors,
        [{"id": i, "sha256": str(i), "text": f"shell: exit code {i}"} for i in range(ERRORS)],
    )
    for first in range(0, EPISODES, 50_000):
        yield from batch(rng, range(first, min(EPISODES, first + 50_000)))


def began(run: int) -> float:
    """When a run was created."""
    return NOW - YEAR + run * YEAR / RUNS


def batch(rng: random.Random, numbers: range) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """The rows of some episodes."""
    same = {"split": "train", "start": "", "seed": 0, "stop": "finished", "sandbox": "local"}
    same |= {"n_turns": 1, "n_calls": 3, "n_errors": 0, "prompt_tokens": 9, "completion_tokens": 9}
    per_run = EPISODES // RUNS
    found: dict[Any, list[dict[str, Any]]] = {}
    for i in numbers:
        run = i // per_run
        reward = rng.choice([None, 0.0, 0.0, 1.0, rng.random()])
        made = {
            schema.episodes: {
                **{"id": i, "run": run, "episode_id": f"{i}", "task": rng.randrange(TASKS)},
                **{"task_id": "t", "step": i % 100, "rollout": i, "reward": reward},
                **{"model": f"model-{run % MODELS}", "started": began(run) + i % per_run},
                **{"seconds": 1.0, "details": "{}", "line_at": 0, **same},
            },
            schema.turns: {
                **{"id": i, "episode": i, "turn": 0, "model": "", "finish_reason": "stop"},
                **{"text": " ".join(rng.choices(WORDS, k=12)) + " done", "n_calls": 3},
                **{"n_errors": 0, "prompt_tokens": 9, "completion_tokens": 9, "seconds": 1.0},
            },
            schema.scores: {
                **{"episode": i, "position": 0, "criterion": f"check-{i % 50}", "weight": 1.0},
                **{"passed": reward == 1.0, "value": reward or 0.0, "detail": ""},
            },
        }
        for table, row in made.items():
            found.setdefault(table, []).append(row)
        for tool in {"shell", f"tool-{int(rng.expovariate(0.5)) % TOOLS}"}:
            row = {"episode": i, "tool": tool, "n_calls": 1, "n_errors": 0}
            found.setdefault(schema.tools, []).append(row)
        if i % 3 == 0:
            error = int(rng.paretovariate(0.5)) % ERRORS
            found.setdefault(schema.episode_errors, []).append({"episode": i, "error": error})
    yield from found.items()


def filters(rng: random.Random) -> dict[str, Callable[[], Filters]]:
    """Filters by name, each with a value at random."""

    def moment() -> float:
        return NOW - rng.random() * YEAR

    return {
        "none": Filters,
        "prompt, in all": lambda: Filters(prompt="then SAY so"),
        "prompt, in one": lambda: Filters(prompt=f"{rng.choice(WORDS[:TASKS])} to"),
        "prompt, in none": lambda: Filters(prompt="delete the folder"),
        "task": lambda: Filters(task=f"task-{rng.randrange(TASKS)}"),
        "model": lambda: Filters(model=f"model-{rng.randrange(MODELS)}"),
        "model, unknown": lambda: Filters(model="gpt"),
        "min reward": lambda: Filters(min_reward=rng.random()),
        "max reward": lambda: Filters(max_reward=rng.random()),
        "rewards, rare": lambda: Filters(min_reward=0.5, max_reward=0.5001),
        "broken": lambda: Filters(broken=True),
        "after": lambda: Filters(after=moment()),
        "before": lambda: Filters(before=moment()),
        "a second": lambda: Filters(after=(at := moment()), before=at + 1),
        "model, min reward, before": lambda: Filters(
            model=f"model-{rng.randrange(MODELS)}", min_reward=0.9999, before=moment()
        ),
        "all of the seed's": lambda: Filters(
            prompt=f"{rng.choice(WORDS[:TASKS])} to",
            model=f"model-{rng.randrange(MODELS)}",
            min_reward=0.2,
            max_reward=0.9,
            after=moment() - YEAR,
            before=NOW,
        ),
        "step": lambda: Filters(step=rng.randrange(100)),
        "step, unknown": lambda: Filters(step=1000),
        "stop": lambda: Filters(stop="finished"),
        "stop, unknown": lambda: Filters(stop="bored"),
        "split, in none": lambda: Filters(split="evaluation"),
        "tool, common": lambda: Filters(tool="shell"),
        "tool": lambda: Filters(tool=f"tool-{rng.randrange(TOOLS)}"),
        "error": lambda: Filters(error=f"exit code {rng.randrange(ERRORS)}"),
        "criterion failed": lambda: Filters(failed=f"check-{rng.randrange(50)}"),
        "tag": lambda: Filters(of=RunFilters(tags=["best"])),
        "setting": lambda: Filters(
            of=RunFilters(where=[("seed", str(rng.randrange(RUNS)))]), min_reward=1
        ),
        "text, a word": lambda: Filters(text=rng.choice(WORDS)),
        "text, in all": lambda: Filters(text="done"),
        "text, two words": lambda: Filters(text=" ".join(rng.choices(WORDS, k=2))),
    }


def measure(database: Database) -> tuple[list[float], float]:
    """Milliseconds of each query, printed by filter; and of the bare operation."""
    rng = random.Random(1)
    everything: list[float] = []
    print(f"{'milliseconds':<28}{'median':>8}{'slowest':>9}{'found':>7}")
    for name, make in filters(rng).items():
        taken, found = [], 0
        for order in ("newest", "newest", "newest", "oldest") * (REPEATS // 4):
            wanted = make()
            started = time.perf_counter()
            with database.reading() as connection:
                found = len(find(connection, wanted, order))
            taken.append(1000 * (time.perf_counter() - started))
        everything += taken
        print(f"{name:<28}{statistics.median(taken):>8.1f}{max(taken):>9.1f}{found:>7}")
    with database.reading() as connection:
        others: tuple[tuple[str, Callable[[], Sequence[object]]], ...] = (
            ("(all runs)", lambda: list_runs(connection, RunFilters())),
            (
                "(sample 100 of a model)",
                lambda: sample(connection, Filters(model="model-1"), 100, 0),
            ),
        )
        for name, ask in others:
            started = time.perf_counter()
            n = len(ask())
            print(f"{name:<28}{1000 * (time.perf_counter() - started):>8.1f}{'':>9}{n:>7}")
        started = time.perf_counter()
        connection.execute(text("SELECT count(*) FROM episodes NOT INDEXED WHERE seed = 1")).one()
    return everything, 1000 * (time.perf_counter() - started)


def update(folder: Path) -> tuple[float, float, float]:
    """CPU seconds of a first update of 20,000 episodes in 20 runs, of one without news, of one with
    one more episode."""
    turns = [turn("I look. " * 20, calls=[("shell", "{}")], observations=["x" * 1500])] * 5
    stores = []
    for run in range(20):
        config = {"chunker": {"type": "interaction"}}
        manifest = {"run_id": f"run-{run}", "n_tasks": 1, "config": config}
        store = RunDirectory.create(folder / f"run-{run}", manifest, Redactor({}))
        for number in range(1000):
            store.add_episode(episode(1.0, *turns, rollout=number))
        stores.append(store)
    database = open_database(str(folder / "index.sqlite"))
    seconds = []
    for _ in range(2):
        started = time.process_time()
        Indexer(database).update(folder)
        seconds.append(time.process_time() - started)
    stores[0].add_episode(episode(1.0, *turns, rollout=1000))
    started = time.process_time()
    assert Indexer(database).update(folder).episodes == 1
    return seconds[0], seconds[1], time.process_time() - started


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(str(Path(folder) / "million.sqlite"))
        started = time.perf_counter()
        for table, made in rows(random.Random(0)):
            with database.writing() as connection:
                connection.execute(insert(table), made)
        size = (Path(folder) / "million.sqlite").stat().st_size / 1e9
        spent = time.perf_counter() - started
        print(f"{EPISODES:,} episodes written in {spent:.0f} s, {size:.2f} GB")
        taken, bare = measure(database)
        first, nothing, one = update(Path(folder) / "runs")
    p95 = statistics.quantiles(taken, n=20)[-1]
    fast, prompt = p95 <= P95_AIM_MS, max(nothing, one) <= UPDATE_AIM_S
    print(f"20,000 episodes in 20 runs: first update {first:.1f} CPU s ({20_000 / first:,.0f}/s)")
    print(f"{'':<28}{'measured':>10}{'bare':>10}{'ratio':>8}  aim")
    print(
        f"{'filter, p95, ms':<28}{p95:>10.1f}{bare:>10.1f}{p95 / bare:>8.2f}"
        f"  at most {P95_AIM_MS:.0f} ms  {'ok' if fast else 'MISSED'}"
    )
    print(f"{'update, nothing new, CPU ms':<28}{1000 * nothing:>10.1f}{1000 * first:>10.1f}")
    print(
        f"{'update, one episode, CPU ms':<28}{1000 * one:>10.1f}{1000 * first:>10.1f}"
        f"{one / first:>8.4f}  at most {1000 * UPDATE_AIM_S:.0f} ms  {'ok' if prompt else 'MISSED'}"
    )
    return int(not (fast and prompt))


if __name__ == "__main__":
    sys.exit(main())
