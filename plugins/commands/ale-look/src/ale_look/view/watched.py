"""Answers about one run, kept until its files change."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import InputError
from ale.files import open_file
from ale.runs import Registry, RunReader
from ale.text import visible
from ale.types import CreditedEpisode, Episode, Turn
from ale.values import NAME
from ale_look.inspect.fitting import fitted, has_whole_trace
from ale_look.inspect.kinds import names_of
from ale_look.inspect.report.gathering import Facts, Head
from ale_look.inspect.report.ratios import log_ratios
from ale_look.inspect.report.reading import readable
from ale_look.inspect.report.worth import pictures
from ale_look.store.indexing import stamps_of
from ale_look.view.episodes import about, judged, listed
from ale_look.view.following import Following
from ale_look.view.noting import notes_of, write_note
from ale_look.view.schemes import credit_under
from ale_look.view.spread import Spread
from ale_look.view.summary import summary
from ale_look.view.timeline import Timeline

TEXT = 20_000
"""Characters of one text of an episode, unless all of it is asked for."""
WHOLE = 1 << 31
TOKENS = 50_000
"""Tokens of an episode that are listed one by one."""


class Watched:
    """One run. Threads may ask at the same time: one of them reads, the others wait for it."""

    def __init__(self, key: str, path: Path) -> None:
        self._key = key
        self.path = path
        self._lock = threading.Lock()
        self._following = Following(path)
        self._spread = Spread(path, self._following.leave_out)
        self._timeline = Timeline(path, self._following.leave_out)
        self._scores = self._following.reader()
        """Keeps where the scores of each episode stand."""
        self._stamps: Mapping[str, Any] | None = None
        self._facts: Facts | None = None
        self._summary = b""
        self._worth: tuple[Any, Mapping[str, dict[str, Any]]] = (None, {})
        """The stamps of the files of values and episodes, and the pictures made of them."""

    def summary(self) -> bytes:
        """The run as a whole."""
        with self._lock:
            self._read()
            return self._summary

    def episodes(self, since: tuple[int, int] = (0, 0)) -> bytes:
        """The list of episodes, as columns: those after the first `n` of a list that is known.

        Args:
            since: the reading of the list, and how many of it are known. Another reading has
                another list, which is given whole.
        """
        with self._lock:
            facts, reading = self._read(), self._following.readings
            known = since[1] if since[0] == reading else 0
            rows = facts.heads[known:]
        return msgspec.json.encode(listed(rows, reading, known))

    def timeline(self) -> bytes:
        """When each episode began, and how its time was spent."""
        with self._lock:
            return msgspec.json.encode(self._timeline.update())

    def _read(self) -> Facts:
        """The facts as of now; with the lock."""
        stamps = stamps_of(self.path)
        if self._facts is None or stamps != self._stamps or self._facts.state == "running":
            self._facts = self._following.update()
            self._stamps = stamps
            made = summary(self._facts, self._spread.chart())
            self._summary = msgspec.json.encode({"key": self._key, **made})
        return self._facts

    def heads(self) -> Sequence[Head]:
        """The episodes."""
        with self._lock:
            return [*self._read().heads]

    def notes(self) -> bytes:
        """The notes of people on the episodes."""
        return msgspec.json.encode(notes_of(self._following.reader(), self.heads()))

    def write_note(self, body: bytes) -> bytes:
        """Write the note that a request has in its body; the notes as they are then.

        Raises:
            InputError: it is no note, or about what the run does not have.
            StoreError: it can't be written.
        """
        write_note(self._following.reader(), self.heads(), body)
        return self.notes()

    def episode(self, offset: int, *, whole: bool = False) -> bytes:
        """One episode, turn by turn.

        Args:
            offset: of its line.
            whole: give texts of any length.
        """
        run = self._following.reader()
        episode = _at(run, offset)
        step = self._learned_in(run, episode)
        ratios = log_ratios(self.path, {(episode.step if step is None else step, episode.id)})
        forks: Sequence[Any] = ()
        if episode.start:
            with self._lock:
                forks = self._read().forks.replayed(episode.task_id, episode.start)
        with self._lock:
            scored = self._scores.scores_of(episode)
        stored = None if step is None else _credited(run, step, episode.id)
        credited, scored, problems = fitted(episode, stored, scored)
        most = WHOLE if whole else TEXT
        made = readable(episode, credited, ratios.get(episode.id), forks, most)
        goal = _goal(run, episode)[:TEXT]
        valued = _values_stamp(self.path) is not None
        of = about(
            episode,
            goal,
            learned_in=step,
            valued=valued,
            names=names_of(run),
            problems=problems,
        )
        of |= judged(episode, credited, scored, most)
        return msgspec.json.encode({**made, **of, "offset": offset})

    def _learned_in(self, run: RunReader, episode: Episode) -> int | None:
        if run.manifest["config"].get("run", {}).get("schedule") == "stream":
            return run.index().learned_in(episode)
        return episode.step

    def tokens(self, offset: int) -> bytes:
        """The tokens of an episode by turn, as they were sampled."""
        episode = _at(run := self._following.reader(), offset)
        step = self._learned_in(run, episode)
        name = (episode.step if step is None else step, episode.id)
        ratios = log_ratios(self.path, {name}).get(episode.id, ())
        entropies = log_ratios(self.path, {name}, "entropies").get(episode.id, ())
        left, turns = TOKENS, []
        for number, turn in enumerate(episode.trajectory.turns):
            trace = turn.completion.tokens
            n = 0 if trace is None else min(left, len(trace.output_ids))
            left -= n
            turns.append(
                None
                if trace is None
                else {
                    "prompt": len(trace.prompt_ids),
                    "ids": trace.output_ids[:n],
                    "texts": _texts(turn, n),
                    "logprobs": trace.logprobs[:n],
                    "versions": trace.policy_versions[:n],
                    "ratios": ratios[number] if number < len(ratios) else None,
                    "entropies": entropies[number] if number < len(entropies) else None,
                    "left_out": len(trace.output_ids) - n,
                }
            )
        return msgspec.json.encode(turns)

    def worth(self, offset: int, registry: Registry) -> bytes:
        """V of an episode's states and its credit by scheme; empty where no value was measured."""
        run = self._following.reader()
        episode = _at(run, offset)
        with self._lock:
            stamps = (_values_stamp(self.path), stamps_of(self.path))
            if stamps != self._worth[0]:
                ids = {head.id for head in self._read().heads}
                self._worth = (stamps, pictures(run, ids, registry, plugin_files=False))
            return msgspec.json.encode(self._worth[1].get(episode.id, {}))

    def credit(self, offset: int, schemes: Sequence[str], registry: Registry) -> bytes:
        """The credit of an episode's chunks under other schemes, as `credit_under`.

        Raises:
            InputError: the episode gets no credit.
        """
        run = RunReader(self.path)
        episode = _at(run, offset)
        step = self._learned_in(run, episode)
        if episode.reward is None or episode.split != "train" or step is None:
            raise InputError.of("nothing learns from this episode, so it has no credit")
        return msgspec.json.encode(credit_under(run, episode, step, schemes, registry))


def _texts(turn: Turn, n: int) -> list[str] | None:
    """The text of each of a turn's first tokens; None where it is not stored."""
    trace = turn.completion.tokens
    if trace is None or trace.text_offsets is None or not has_whole_trace(turn):
        return None
    content, starts = turn.completion.message.content, trace.text_offsets
    ends = [*starts[1:], len(content)]
    return [visible(content[a:b]) for a, b in zip(starts[:n], ends, strict=False)]


def _values_stamp(path: Path) -> int | None:
    try:
        return (path / NAME).stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _at(run: RunReader, offset: int) -> Episode:
    path = run.episodes.path
    if not _begins_line(path, offset):
        raise InputError.of(f"no episode begins at byte {offset}", file=str(path))
    return run.episodes.at(offset)


def _begins_line(path: Path, offset: int) -> bool:
    """Addresses may be typed, or be of a run that was begun anew."""
    try:
        with open_file(path) as file:
            file.seek(max(0, offset - 1))
            before = b"\n" if offset == 0 else file.read(1)
            return before == b"\n" and bool(file.read(1))
    except (OSError, OverflowError, ValueError):
        return False


def _credited(run: RunReader, step: int, episode_id: str) -> CreditedEpisode | None:
    rows = run.credits(step)
    return next((row for row in rows if row.episode_id == episode_id), None)


def _goal(run: RunReader, episode: Episode) -> str:
    lines = run.tasks if episode.split == "train" else run.evaluation_tasks
    return next((task.goal for task in lines if task.id == episode.task_id), "")


class Kept:
    """The runs that were asked for last."""

    def __init__(self, path_of: Callable[[str], Path], most: int = 16) -> None:
        self.path_of = path_of
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, Watched] = {}

    def run(self, key: str) -> Watched:
        """The run of this key.

        Raises:
            InputError: there is none.
        """
        with self._lock:
            found = self._kept.pop(key, None) or Watched(key, self.path_of(key))
            self._kept[key] = found
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            return found
