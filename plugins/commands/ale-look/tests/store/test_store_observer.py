"""The observer keeps the database up to date while the run is running."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ale.errors import NotUsableError
from ale.plugin import BuildContext
from ale.testing.observer import ObserverContract, ended, finished, notify, register, started
from ale.testing.waiting import wait_for
from ale_look.plugin import ale_observers
from ale_look.store import schema
from ale_look.store.database import open_database
from ale_look.store.options import StoreOptions


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """No update has to wait."""
    monkeypatch.setattr("ale_look.store.observer.EVERY_S", 0.0)


def build(environ: Any = None, **options: Any) -> object:
    (component,) = (each for each in ale_observers() if each.name == "store")
    return component.build(StoreOptions(**options), BuildContext(environ=environ or {}))


class TestStore(ObserverContract):
    @pytest.fixture
    def observer(self) -> object:
        return build()

    @pytest.mark.long
    async def test_holds_no_more_after_ten_thousand_episodes(
        self, observer: object, tmp_path: Path
    ) -> None:
        await super().test_holds_no_more_after_ten_thousand_episodes(observer, tmp_path)


def stored(where: str) -> list[tuple[Any, ...]]:
    database = open_database(where)
    with database.reading() as connection:
        columns = schema.runs.c.run_id, schema.runs.c.outcome, schema.runs.c.n_episodes
        found = [tuple(row) for row in connection.execute(select(*columns))]
    database.close()
    return found


@pytest.mark.parametrize("by_url", [False, True])
def test_a_running_run_is_in_the_database(
    tmp_path: Path, make_run: Any, attempt: Any, request: pytest.FixtureRequest, by_url: bool
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=0)
    where = str(tmp_path / "runs" / "index.sqlite")
    observer = build()
    if by_url:
        where = request.getfixturevalue("postgresql")
        observer = build({"MY_STORE": where}, url_env="MY_STORE")
    manager = register(observer)
    notify(manager, [started(tmp_path / "runs" / "r")])
    store.add_episode(attempt(0))
    notify(manager, [ended(0, 1.0)])
    wait_for(lambda: stored(where) == [("r", None, 1)], lambda: stored(where))
    store.add_episode(attempt(1))
    store.set_outcome({"outcome": "completed", "seconds": 1.0})
    store.close()
    notify(manager, [finished(tmp_path / "runs" / "r")])
    assert stored(where) == [("r", "completed", 2)]


def test_why_the_database_is_not_updated_is_said_once(
    tmp_path: Path, make_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "runs" / "r"
    make_run(run, n=1).close()
    (run / "episodes.jsonl").write_text("damaged\n")
    manager = register(build())
    notify(manager, [started(run), ended(0, 1.0), ended(1, 1.0), finished(run)])
    (warning,) = caplog.messages
    assert "was not updated: " in warning
    assert "episodes.jsonl:1: " in warning


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(NotUsableError, match="MY_STORE is not set"):
        build(url_env="MY_STORE")
