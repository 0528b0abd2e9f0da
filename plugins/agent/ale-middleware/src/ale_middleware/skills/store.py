"""The store: one SQLite file with skills, where they came from, and what they were worth."""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from ale.errors import InputError, StoreError, nearest
from ale.learning import ORIGIN, Origin
from ale.runs import RunReader
from ale.types import Episode
from ale_figures.statistics import Estimate, estimate

VERSION = 1
SAME = 0.6
"""Share of their words that two skills have in common from which they are one."""
_SCHEMA = """
create table skills (
    id text primary key, text text not null, goal text not null, run text not null,
    episode text not null, added real not null, retired text
);
create table asked (run text not null, episode text not null, primary key (run, episode));
create table evidence (
    skill text not null references skills, run text not null, part text not null,
    difference real not null, primary key (skill, run, part)
);
create virtual table words using fts5 (id unindexed, text, goal, tokenize = 'porter unicode61');
"""
_ACCEPTED = "create table if not exists accepted (skill text primary key, reason text not null);"
"""Added after stores were first written: one that lacks it has no skill that was accepted, and gets
it with the first. To open a store writes nothing."""
_WORD = re.compile(r"\w{3,}")


@frozen(kw_only=True)
class Skill:
    """One skill."""

    id: str
    text: str
    goal: str
    """Of the task that it was learned from; it is found by these words too."""
    run: str = ""
    """Where it came from, by `name_of`; empty for one that a person wrote."""
    episode: str = ""
    retired: str | None = None
    """Why it is no longer used."""
    accepted: str | None = None
    """Why a proposal may be used: measured, or by hand."""

    @property
    def pending(self) -> bool:
        """Was it proposed by a model, and neither measured to help nor accepted by a person?"""
        return bool(self.run) and self.accepted is None


@frozen(kw_only=True)
class Evidence:
    """What a skill was worth in one group of rollouts."""

    part: str
    """The group: step, task and start."""
    difference: float
    """Mean reward with the skill less that without it."""


class Store:
    """An open store. One writer at a time; any number of readers."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open it.

        Raises:
            InputError: there is none, or the file is something else.
        """
        if not create and not path.exists():
            hint = "ale skills add and ale skills propose make one"
            raise InputError.of("no such file", file=str(path), hint=hint)
        self.path = path
        # Autocommit: transactions are written out below. Readers of a proxy ask from one thread.
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
        except sqlite3.OperationalError as error:
            raise InputError.of(str(error), file=str(path)) from None
        self._db.row_factory = sqlite3.Row
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise InputError.of(f"not a store: {error}", file=str(path)) from None

    def _prepare(self) -> None:
        (version,) = self._db.execute("pragma user_version").fetchone()
        (tables,) = self._db.execute("select count(*) from sqlite_master").fetchone()
        if version == 0 and tables == 0:
            self._db.executescript(
                f"begin; {_SCHEMA} {_ACCEPTED} pragma user_version = {VERSION}; commit;"
            )
        elif version != VERSION:
            message = f"version {version}; this version of ale-middleware reads {VERSION}"
            raise sqlite3.DatabaseError(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction. Raises `StoreError` where it can't be written; nothing is then."""
        try:
            self._db.execute("begin immediate")
            yield
            self._db.execute("commit")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise StoreError(f"{self.path} can't be written: {error}") from error

    def skills(self, *, retired: bool = False) -> list[Skill]:
        """All that are used, or with those that are not, oldest first."""
        which = "" if retired else "where retired is null"
        has_accepted = "select 1 from sqlite_master where name = 'accepted'"
        known = self._db.execute(has_accepted).fetchone() is not None
        accepted = "accepted" if known else "(select null as skill, null as reason)"
        rows = self._db.execute(
            "select id, text, goal, run, episode, retired, reason as accepted "  # noqa: S608
            f"from skills left join {accepted} on id = skill {which} order by added, id"
        )
        return [Skill(**row) for row in rows]

    def same_as(self, text: str) -> Skill | None:
        """A skill, used or retired, that says the same."""
        return next((s for s in self.skills(retired=True) if _alike(text, s.text)), None)

    def add(self, text: str, goal: str, *, run: str = "", episode: str = "", at: float) -> Skill:
        """Add a skill; one that says the same is returned in its place.

        Args:
            at: seconds since the epoch.

        Raises:
            InputError: the text has no word.
            StoreError: it can't be written.
        """
        if not any(map(str.isalnum, text)):
            raise InputError.of("the text of a skill has no word")
        if known := self.same_as(text):
            return known
        identity = hashlib.sha256(text.encode()).hexdigest()[:10]
        skill = Skill(id=identity, text=text, goal=goal, run=run, episode=episode)
        with self._writing():
            self._db.execute(
                "insert into skills values (?, ?, ?, ?, ?, ?, null)",
                (skill.id, text, goal, run, episode, at),
            )
            self._db.execute("insert into words values (?, ?, ?)", (skill.id, text, goal))
        return skill

    def retire(self, id: str, reason: str | None) -> None:
        """Use a skill no longer; None: use it again.

        Raises:
            InputError: there is no such skill.
        """
        self._check(id)
        with self._writing():
            self._db.execute("update skills set retired = ? where id = ?", (reason, id))

    def accept(self, id: str, reason: str) -> None:
        """Use a proposal everywhere, and not only where skills are measured.

        Raises:
            InputError: there is no such skill, or it is retired.
        """
        self._check(id)
        if id not in {skill.id for skill in self.skills()}:
            hint = f"ale skills retire --undo {id} uses it again"
            raise InputError.of(f"skill '{id}' is retired", file=str(self.path), hint=hint)
        with self._writing():
            self._db.execute(_ACCEPTED)
            self._db.execute("insert or replace into accepted values (?, ?)", (id, reason))

    def _check(self, id: str) -> None:
        known = [skill.id for skill in self.skills(retired=True)]
        if id not in known:
            raise InputError.of(f"no skill '{id}'", file=str(self.path), hint=nearest(id, known))

    def was_asked(self, run: str, episode: str) -> bool:
        """Was a model asked for a skill from this episode before?"""
        query = "select 1 from asked where run = ? and episode = ?"
        return self._db.execute(query, (run, episode)).fetchone() is not None

    def set_asked(self, run: str, episode: str) -> None:
        """Note that a model was asked for a skill from this episode."""
        with self._writing():
            self._db.execute("insert or ignore into asked values (?, ?)", (run, episode))

    def set_evidence(self, skill: str, run: str, evidence: Sequence[Evidence]) -> None:
        """Store what a skill was worth in a run, in place of what was known of it and that run."""
        with self._writing():
            # Earlier versions named a run by its id alone.
            same = (skill, run, run.rpartition("~")[0])
            self._db.execute("delete from evidence where skill = ? and run in (?, ?)", same)
            self._db.executemany(
                "insert into evidence values (?, ?, ?, ?)",
                [(skill, run, each.part, each.difference) for each in evidence],
            )

    def worth(self, skill: str) -> Estimate | None:
        """Mean difference over all groups, with its 95% interval; None without any."""
        query = "select difference from evidence where skill = ? order by run, part"
        return estimate([difference for (difference,) in self._db.execute(query, (skill,))])

    def fitting(self, goal: str, *, top_k: int, threshold: float) -> list[Skill]:
        """The skills for a task, best first, by BM25 over their words and those of their origin.

        Args:
            threshold: least share of the goal's words that a skill has.
        """
        asked = words(goal)
        if not asked:
            return []
        query = " OR ".join(f'"{word}"' for word in sorted(asked))
        ranked = self._db.execute(
            "select id from words where words match ? order by bm25(words), id", (query,)
        )
        used = {skill.id: skill for skill in self.skills()}
        found = (used[id] for (id,) in ranked.fetchall() if id in used)
        near = (
            s for s in found if len(asked & words(f"{s.text} {s.goal}")) >= threshold * len(asked)
        )
        return [*islice(near, top_k)]


def name_of(run: RunReader) -> str:
    """A run's name in the store; runs of the same id, as of the same folder's name, differ."""
    manifest: Mapping[str, Any] = run.manifest
    return f"{manifest['run_id']}~{manifest.get('uid') or manifest.get('created', '')}"


def identity_of(run: str, episode: Episode) -> tuple[str, str]:
    """The run, by `name_of`, and the id of an episode; of a copy that a loop took, the original's.

    Args:
        run: that has it.
    """
    if ORIGIN not in episode.metadata:
        return run, episode.id
    origin = Origin(**episode.metadata[ORIGIN])
    return f"{origin.run}~{origin.uid}", origin.episode


def words(text: str) -> frozenset[str]:
    """The words of a text that say something: of three letters or more."""
    return frozenset(_WORD.findall(text.lower()))


def _alike(text: str, other: str) -> bool:
    """By all words: the names of commands are short, and say what a skill is about."""
    one, two = (frozenset(re.findall(r"\w+", each.lower())) for each in (text, other))
    return len(one & two) >= SAME * len(one | two)
