"""What the page of `ale view` waits for: a search among 100,000 episodes, and an episode of 10 MB.

A search is the first answer over all runs of a folder, with the excerpts of its turns, for words
and filters that are common, rare, and match nothing; each is asked some times over with another
value, and what counts is the 95th percentile. The bare operation is the database's query alone.
An episode is read, made readable and encoded; the bare operation is reading its line as JSON.
"""

import random
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import insert

from ale._store import Redactor, RunDirectory
from ale.testing.builders import episode, turn
from ale_look.store.database import Database, open_database
from ale_look.store.finding import Filters, find
from ale_look.view.catalog import Catalog
from ale_look.view.searching import search
from ale_look.view.watched import Watched

EPISODES = 100_000
SEARCH_AIM_MS = 500.0
EPISODE_AIM_MS = 1000.0
REPEATS = 5
TURNS, SEEN = 105, 100_000
store: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bench_store.py")))


class Runs(Catalog):
    """The runs of the database, which have no directories."""

    def find(self) -> Mapping[str, Path]:
        """Every run by its number."""
        self._paths = {str(i): Path(f"/runs/{i}") for i in range(store["RUNS"])}
        return self._paths


def fill(database: Database) -> None:
    """Write the rows of `bench_store`."""
    store["rows"].__globals__["EPISODES"] = EPISODES
    for table, made in store["rows"](random.Random(0)):
        with database.writing() as connection:
            connection.execute(insert(table), made)


def asked(rng: random.Random) -> list[dict[str, str]]:
    """What somebody may enter."""
    word, other = rng.choices(store["WORDS"], k=2)
    return [
        {},
        {"q": "done"},
        {"q": word},
        {"q": f"{word} {other}"},
        {"q": f'"{word} done"'},
        {"q": "nowhere"},
        {"q": "done", "min_reward": "1", "order": "oldest"},
        {"q": word, "tool": "shell", "max_reward": "0"},
        {"tool_failed": "shell"},
        {"error": f"exit code {rng.randrange(store['ERRORS'])}"},
        {"failed": f"check-{rng.randrange(50)}", "order": "worst"},
        {"run": str(rng.randrange(store["RUNS"])), "q": "done"},
    ]


def time_searches(catalog: Catalog) -> tuple[list[float], float]:
    """Milliseconds of each search, and of the bare query of words that all episodes have."""
    rng, taken = random.Random(1), []
    for _ in range(REPEATS):
        for each in asked(rng):
            started = time.perf_counter()
            search(catalog, each)
            taken.append(1000 * (time.perf_counter() - started))
    with catalog.database.reading() as connection:
        started = time.perf_counter()
        find(connection, Filters(text="done"), limit=50)
        return taken, 1000 * (time.perf_counter() - started)


def time_episode(folder: Path) -> tuple[float, float]:
    """Milliseconds until an episode of 10 MB can be sent, and of reading its line."""
    turns = [turn(f"Turn {n}.", calls=[("shell", "{}")], observations=["x" * SEEN])
             for n in range(TURNS)]  # fmt: skip
    manifest = {"run_id": "large", "n_tasks": 1, "config": {"chunker": {"type": "interaction"}}}
    run = RunDirectory.create(folder / "large", manifest, Redactor({}))
    run.add_episode(episode(1.0, *turns))
    run.close()
    line = (folder / "large" / "episodes.jsonl").read_bytes()
    assert len(line) > 10_000_000
    bare, whole = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        msgspec.json.decode(line)
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        Watched("large", folder / "large").episode(0)
        whole.append(time.perf_counter() - started)
    return 1000 * max(whole), 1000 * statistics.median(bare)


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as name:
        database = open_database(str(Path(name) / "index.sqlite"))
        fill(database)
        taken, bare = time_searches(Runs(Path("/runs"), database))
        whole, line = time_episode(Path(name))
    p95 = statistics.quantiles(taken, n=20)[-1]
    print(f"{'':<28}{'measured':>10}{'bare':>10}{'ratio':>8}  aim")
    fine = True
    for what, measured, least, aim in (
        ("search, p95, ms", p95, bare, SEARCH_AIM_MS),
        ("episode of 10 MB, ms", whole, line, EPISODE_AIM_MS),
    ):
        ok = measured <= aim
        fine = fine and ok
        said = "ok" if ok else "MISSED"
        print(
            f"{what:<28}{measured:>10.1f}{least:>10.1f}{measured / least:>8.2f}"
            f"  at most {aim:.0f} ms  {said}"
        )
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
