"""``ale data values``: a run of rollouts after prefixes, and the file of values that it leaves."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

import ale
from ale.errors import InputError, StoreError
from ale.runs import SUCCESS, RunReader
from ale.text import counted
from ale.values import NAME, EpisodeValues, Measured, Values, read_values, write_values
from ale_starts.options import PrefixOptions
from ale_starts.prefixes import Prefixed, chosen, prefixed, values_of

FOLDER = "value_rollouts"
"""The run of rollouts, in the directory of the run whose episodes are valued. (``values`` has what
a trainer's critic wrote.)"""
_DROPPED = ("trainer", "credit", "chunker", "evaluation", "starts")


@frozen(kw_only=True)
class Valuation:
    """A valuation of stored episodes."""

    run: RunReader
    rollouts: int
    options: PrefixOptions
    model: Path | None = None
    concurrency: int | None = None
    report: Any = field(default=print, repr=False)

    @property
    def folder(self) -> Path:
        """The directory of the run of rollouts."""
        return self.run.path / FOLDER

    @property
    def file(self) -> Path:
        """The file of values."""
        return self.run.path / NAME

    def carry_out(self) -> str:
        """Sample what is missing, write the file, and describe it.

        Raises:
            InputError: the run can't be valued; or another valuation of it has been begun.
            StoreError: the file can't be written.
        """
        of = prefixed(chosen(self.run, self.options), self.options.check)
        if not of:
            message = "the run has no graded episode of the policy alone to value"
            raise InputError.of(message, file=str(self.run.path))
        config = self._config()
        measured = identified(config, self.rollouts)
        if (self.folder / "manifest.json").exists():
            self._check_begun(measured, config)
            done = ale.resume(self.folder, report=self.report)
        else:
            self._write(Values(measured=measured, episodes={}))
            done = ale.run(config, directory=self.folder, report=self.report)
        counts = self._counts(done)
        if done.state != "completed":
            return f"{done.state}: the same command continues"
        found = list(values_of(of, counts))
        self._write(Values(measured=measured, episodes={e.episode_id: e for e in found}))
        return "\n".join(self._described(of, found))

    def _config(self) -> dict[str, Any]:
        config = dict(self.run.manifest["config"])
        if config.get("trainer") and self.model is None:
            raise InputError.of(
                "this run trains its policy: say which version's values are measured",
                path="--model",
                hint=f"ale model {self.run.path} --out FOLDER exports one; then --model FOLDER",
            )
        if "llm" not in config:
            message = "the episodes of this run have no model that could continue them"
            raise InputError.of(message, file=str(self.run.path))
        for section in _DROPPED:
            config.pop(section, None)
        if self.model is not None:
            llm = {name: value for name, value in config["llm"].items() if name != "tiny"}
            config["llm"] = {**llm, "model": str(self.model.resolve())}
        options = self.options
        config["starts"] = {
            "type": "prefixes",
            "run": str(self.run.path.resolve()),
            "episodes": options.episodes,
            "per_task": options.per_task,
            "step": options.step,
            "check": options.check,
        }
        kept = {"seed", "concurrency", "deterministic", "retries"}
        run = {name: value for name, value in config.get("run", {}).items() if name in kept}
        if self.concurrency is not None:
            run["concurrency"] = self.concurrency
        # A state that can't be reached breaks its rollouts alone.
        config["run"] = {**run, "rollouts": self.rollouts, "stop_after_broken": None}
        shown = [e for e in config.get("observers", ()) if str(e["type"]).endswith("console")]
        config["observers"] = shown
        return config

    def _check_begun(self, measured: Measured, config: Mapping[str, Any]) -> None:
        """Refuse to mix the rollouts of two valuations."""
        begun = read_values(self.file).measured
        stored = RunReader(self.folder).manifest["config"]["starts"]
        wanted = {k: v for k, v in config["starts"].items() if k not in ("type", "run")}
        other = [
            *(
                name
                for name in Measured.__annotations__
                if getattr(begun, name) != getattr(measured, name)
            ),
            *(name for name, value in wanted.items() if stored.get(name) != value),
        ]
        if other:
            raise InputError.of(
                f"{self.folder} holds the rollouts of another valuation: {', '.join(other)} differ",
                file=str(self.file),
                hint=f"remove {self.folder} and {self.file.name} to begin anew",
            )

    def _counts(self, done: RunReader) -> Mapping[tuple[str, str], tuple[int, int]]:
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for episode in done.episodes:
            if episode.reward is not None:
                won, n = found.get((episode.task_id, episode.start), (0, 0))
                key = (episode.task_id, episode.start)
                found[key] = (won + (episode.reward == SUCCESS), n + 1)
        return found

    def _write(self, values: Values) -> None:
        try:
            write_values(self.file, values)
        except OSError as error:
            raise StoreError(f"{self.file} can't be written: {error.strerror}") from error

    def _described(self, of: Sequence[Prefixed], found: Sequence[EpisodeValues]) -> Iterator[str]:
        states = {
            (each.task_id, state): n
            for each in found
            for state, n in zip(each.states, each.trials, strict=True)
        }
        yield (
            f"{self.file}: {counted(len(found), 'episode')}, {counted(len(states), 'state')}, "
            f"{counted(sum(states.values()), 'rollout')}"
        )
        if left := len(of) - len(found):
            yield f"left out: {counted(left, 'episode')} with a state whose rollouts all broke"
        by_id = {each.episode_id: each for each in found}
        changed = [
            each.episode.id
            for each in of
            if each.episode.id in by_id
            and by_id[each.episode.id].successes[-1] != (each.episode.reward == SUCCESS)
        ]
        if changed:
            yield (
                f"graded otherwise when replayed: {', '.join(changed[:5])}"
                f"{', ...' if len(changed) > 5 else ''}: their states were not restored exactly"
            )
        yield f"next: ale show credit {self.run.path} --against values"


def identified(config: Mapping[str, Any], rollouts: int) -> Measured:
    """The identity of the policy, the tokenizer and the sandbox of a config, as hashes.

    A model in a folder is known by its files, any other by its options and the run's seed, from
    which a tiny one is made.
    """
    llm = config["llm"]
    folder = Path(str(llm.get("model") or ""))
    files = sorted(each for each in folder.iterdir() if each.is_file()) if folder.is_dir() else []
    described = {**llm, "model": "" if files else llm.get("model")}
    seed = None if files else config["run"].get("seed", 0)
    tokenizer = [each for each in files if "token" in each.name or "vocab" in each.name]
    return Measured(
        rollouts=rollouts,
        policy=_digest([repr(sorted(described.items())), repr(seed)], files),
        tokenizer=_digest([], tokenizer) if tokenizer else "",
        sandbox=_digest([repr(sorted((config.get("sandbox") or {}).items()))], []),
    )


def _digest(texts: Sequence[str], files: Sequence[Path]) -> str:
    known = hashlib.sha256()
    for text in texts:
        known.update(f"{text}\n".encode())
    for file in files:
        with file.open("rb") as opened:
            known.update(f"{file.name}\n".encode())
            known.update(hashlib.file_digest(opened, "sha256").digest())
    return known.hexdigest()
