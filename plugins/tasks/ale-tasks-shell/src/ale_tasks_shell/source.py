"""The task source ``shell``: draws a sequence of steps, simulates it, and makes a task of it."""

from collections.abc import Iterator
from random import Random

from ale.errors import InputError, Problem
from ale.types import CriterionSpec, Task
from ale_tasks_shell import contents, script
from ale_tasks_shell.kinds import KINDS
from ale_tasks_shell.options import ShellTasksOptions
from ale_tasks_shell.planner import Move, Planner
from ale_tasks_shell.scene import ExhaustedError, Scene
from ale_tasks_shell.words import VOCABULARY

CHECK_TIMEOUT_S = 20.0
_SHORT = {
    "train": "train",
    "held_out_parameters": "parameters",
    "held_out_compositions": "compositions",
}
_DRAWS = 200


class ShellTasks:
    """Generates tasks one by one; holds none in memory.

    Raises:
        InputError: when made: the kinds can't make a task of this length in this split.
    """

    def __init__(self, options: ShellTasksOptions) -> None:
        self._options = options
        self._words = VOCABULARY[: options.words]
        compositions = options.split == "held_out_compositions"
        # In the table's order, so that the order of the option does not change the tasks.
        kinds = [kind for kind in KINDS if not options.kinds or kind.name in options.kinds]
        self._planner = Planner(kinds, held_out=compositions)
        given = options.length
        low, high = given if isinstance(given, tuple) else (given, given)
        start = self._planner.start
        self._lengths = [n for n in range(low, high + 1) if self._planner.choices(start, n)]
        if not self._lengths:
            raise InputError([_impossible(low, high, options)])

    def load(self) -> Iterator[Task]:
        """The tasks, in a fixed order. Task `i` depends on the options and `i` alone.

        Raises:
            InputError: the vocabulary is too small for such long tasks.
        """
        for i in range(self._options.count):
            yield self._task(i)

    def _task(self, i: int) -> Task:
        options = self._options
        # A generator of its own for each draw; only `random()` of it is used, because that alone is
        # promised to give the same numbers in every version of Python.
        for draw in range(_DRAWS):
            random = Random(f"{options.seed} {options.split} {i} {draw}").random  # noqa: S311
            held_out = options.split == "held_out_parameters"
            scene = Scene(random, self._words, held_out=held_out)
            try:
                return self._made(i, scene, self._sequence(scene))
            except ExhaustedError:
                continue
        hint = "increase tasks.words, or reduce tasks.length"
        message = f"{options.words} words are too few for task {i}"
        raise InputError.of(message, path="tasks.words", hint=hint)

    def _sequence(self, scene: Scene) -> list[Move]:
        left = self._lengths[scene.number(0, len(self._lengths) - 1)]
        state, moves = self._planner.start, []
        while left:
            choices = self._planner.choices(state, left)
            # First the kind, so that one with more types of content does not come more often.
            of_kind = choices[scene.number(0, len(choices) - 1)]
            move = of_kind[scene.number(0, len(of_kind) - 1)]
            moves.append(move)
            state, left = move.state, left - len(move.kind.commands)
        return moves

    def _made(self, i: int, scene: Scene, moves: list[Move]) -> Task:
        sentences: list[str] = []
        commands: list[str] = []
        if moves[0].given:
            scene.here = contents.give(scene, moves[0].given)
        given = scene.here
        for move in moves:
            names = move.kind.effect(scene, move.state.type)
            sentences.append(move.kind.goal.format_map(names))
            commands += [command.format_map(names) for command in move.kind.commands]
            if move is moves[0] and move.state.source:
                scene.source = given
        kinds = [move.kind.name for move in moves]
        options = self._options
        short = _SHORT[options.split]
        check = {"command": script.check(scene), "timeout_s": CHECK_TIMEOUT_S}
        return Task(
            id=f"{short}-{len(commands)}-seed{options.seed}-{i:05d}",
            goal="\n".join(sentences),
            origin="ale-tasks-shell",
            tags=tuple(dict.fromkeys(("shell", options.split, *kinds))),
            setup_steps=script.setup(scene),
            criteria=(CriterionSpec(type="command_exit_code", options=check),),
            solution=tuple(commands),
            metadata={
                "environment": "terminal",
                "split": options.split,
                "kinds": kinds,
                "commands": len(commands),
            },
        )


def _impossible(low: int, high: int, options: ShellTasksOptions) -> Problem:
    wanted = str(low) if low == high else f"{low} to {high}"
    kinds = ", ".join(options.kinds) if options.kinds else "all kinds"
    hint = "add kinds, or change the length"
    if options.split == "held_out_compositions":
        hint = "a composition takes at least two steps; add kinds, or increase the length"
    return Problem(
        message=f"no task of split '{options.split}' takes {wanted} commands with {kinds}",
        path="tasks.length",
        hint=hint,
    )
