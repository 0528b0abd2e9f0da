"""A function is a plugin: decorators that make a component of a plain function.

In a file that a config names under ``plugins``, in a package's plugin module, or in a notebook,
whose functions are given to `ale.run`. The options of the component are the function's keyword-only
parameters, with their types and defaults; its summary is the first line of the docstring.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_loader
from numbers import Real
from pathlib import Path
from types import MappingProxyType, ModuleType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import field, frozen

from ale.errors import ChunkError, GradingError, InputError, PluginError
from ale.plugin import FUNCTION, BuildContext, Component
from ale.protocols import AgentContext, Sandbox, Terms, Tokens
from ale.strict import NameOrPath, from_plain, structure
from ale.types import (
    Chunk,
    Credit,
    Group,
    Limits,
    Score,
    Stop,
    Task,
    Trajectory,
    whole_turn,
)

__all__ = [
    "Answer",
    "Function",
    "agent",
    "chunker",
    "credit",
    "criterion",
    "function_of",
    "objective",
    "tasks",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
SOURCE = "__ale_source__"
"""Attribute of the module of a plugin file that has its source, in bytes."""


@frozen(kw_only=True)
class Answer:
    """The end of an episode, as a criterion grades it."""

    text: str
    """The last message of the model; empty if it gave none."""
    task: Task
    trajectory: Trajectory
    sandbox: Sandbox
    """Still open, as the agent left it. What is in it is hostile."""


@frozen(kw_only=True)
class Function:
    """A function that is registered as a component.

    Attributes:
        kind: as ``ale plugins`` names it: ``criterion``, ``credit``, ...
        component: with the options of the function's keyword-only parameters.
    """

    kind: str
    component: Component[Any, Any]


@frozen(kw_only=True)
class _Kind:
    """The form of the functions of a kind."""

    form: str
    """The nearest right form, for messages."""
    given: int
    """Number of positional parameters."""
    asynchronous: tuple[bool, ...]
    """Whether it may be ``async def``, or may not be."""
    product: Callable[..., Any]
    """Makes the component's product of a function, its options and what its decorator says."""


class _Criterion:
    """Grades by a function of an `Answer`."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options
        if _is_async(function):  # another one has no use of the sandbox
            self.needs_workspace = True

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """The function's number as a score. One that is not asynchronous runs in a thread."""
        last = trajectory.turns[-1:]
        text = "".join(turn.completion.message.content for turn in last)
        answer = Answer(text=text, task=task, trajectory=trajectory, sandbox=sandbox)
        call = partial(self._function, answer, **self._options)
        found = await (call() if _is_async(self._function) else asyncio.to_thread(call))
        if isinstance(found, Score):
            return found
        name = self._function.__name__
        if not isinstance(found, Real):
            expected = "a number from 0 to 1, True or False, or an ale.types.Score"
            raise GradingError(f"{name} returned {found!r}; expected {expected}")
        return Score(criterion=name, passed=found == 1, value=float(found))


class _Credit:
    """Assigns what a function of a `Group` returns."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    def assign(self, group: Group) -> Sequence[Credit]:
        """The function's weights as credits, one per rollout."""
        found = list(self._function(group, **self._options))
        if all(isinstance(each, Credit) for each in found):
            return found
        name, sizes = self._function.__name__, [len(each.chunks) for each in group.rollouts]
        if [len(each) for each in found] != sizes:
            raise PluginError(
                f"{name} returned {found!r}; expected a list for each rollout of the group, with a "
                f"number for each of its chunks, of which there are {sizes}"
            )
        return [
            _weighted(rollout.episode.id, rollout.episode.reward, name, tuple(map(float, weights)))
            for rollout, weights in zip(group.rollouts, found, strict=True)
        ]


def _weighted(episode: str, reward: float | None, name: str, weights: tuple[float, ...]) -> Credit:
    """The credit of an episode whose reward is that of its last chunk."""
    rewards = (*(0.0 for _ in weights[1:]), reward or 0.0) if weights else ()
    nothing = None if any(weights) else "every weight is 0"
    return Credit(
        episode_id=episode,
        scheme=name,
        rewards=rewards,
        returns=tuple(reward or 0.0 for _ in weights),
        weights=weights,
        skipped=nothing,
    )


_LIMITS = tuple(Limits.__annotations__)


class _Agent:
    """Acts as a function of an `AgentContext` does."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        self.limits = Limits(**{key: options[key] for key in _LIMITS if key in options})
        self._function = function
        self._options = options

    async def run(self, context: AgentContext) -> Stop:
        """Run the function; it has finished if it returns nothing."""
        found = await self._function(context, **self._options)
        if found is None:
            return Stop(reason="finished")
        if not isinstance(found, Stop):
            name = self._function.__name__
            raise PluginError(f"{name} returned {found!r}; expected an ale.types.Stop or None")
        return found


class _Tasks:
    """Loads what a function returns or yields."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    def load(self) -> Iterable[Task]:
        """The function's tasks, in its order."""
        found: Iterable[Task] = self._function(**self._options)
        return found


class _Chunker:
    """Splits by a function of a `Trajectory`."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """The function's chunks; a list of turn numbers is a chunk of these turns."""
        found = list(self._function(trajectory, **self._options))
        if all(isinstance(each, Chunk) for each in found):
            return found
        name, turns = self._function.__name__, trajectory.turns
        if [turn for each in found for turn in each] != list(range(len(turns))):
            raise ChunkError(
                f"{name} returned {found!r}; expected lists of turn numbers that hold "
                f"0 to {len(turns) - 1} once and in order, or a list of ale.types.Chunk"
            )
        return [
            Chunk(index=i, kind=name, spans=tuple(whole_turn(turn, turns[turn]) for turn in each))
            for i, each in enumerate(found)
        ]


class _Objective:
    """The loss that a function gives, and imitation."""

    reference_model = None

    def __init__(
        self,
        function: Any,
        options: Mapping[str, Any],
        *,
        needs_reference: bool = False,
        needs_entropy: bool = False,
        normaliser: str = "trajectories",
    ) -> None:
        self.needs_reference = needs_reference
        self.needs_entropy = needs_entropy
        self.normaliser = normaliser
        self._function = function
        self._options = options

    def evaluate(self, tokens: Tokens, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        """The function's loss, and what demonstrations teach beside it."""
        found = self._function(tokens, logp, old_logp, entropy, **self._options)
        terms = found if isinstance(found, Terms) else Terms(loss=found)
        loss = terms.loss
        if getattr(loss, "shape", None) != () or (logp.requires_grad and not loss.requires_grad):
            name = self._function.__name__
            raise PluginError(
                f"{name} returned {found!r}; expected a loss, a tensor of shape () with a gradient "
                "by logp, or an ale.Terms with one"
            )
        imitation = -(tokens.imitation * logp).sum()
        measured = {
            "reinforcement": loss.detach(),
            "ratio": (logp.detach() - old_logp).exp(),
            "mismatch": (old_logp - tokens.behaviour_logp).exp(),
        }
        missing = {name: each for name, each in measured.items() if getattr(terms, name) is None}
        return attrs.evolve(terms, loss=loss + imitation, imitation=imitation.detach(), **missing)

    def __reduce__(self) -> Any:
        """For processes that train beside this one: a function of a plugin file goes as its source.

        Raises:
            PluginError: other processes can't import the function.
        """
        module, name = sys.modules[self._function.__module__], self._function.__qualname__
        if module.__name__ == "__main__" or "<locals>" in name:
            raise PluginError(
                f"{name} is not in a file that other processes can import, and is needed in each "
                "process that trains: write it into a file and name it under 'plugins'"
            )
        marks = {
            "needs_reference": self.needs_reference,
            "needs_entropy": self.needs_entropy,
            "normaliser": self.normaliser,
        }
        source = getattr(module, SOURCE, None)
        file = None if source is None else (module.__file__, source)
        return _again, (module.__name__, file, name, dict(self._options), marks)


def _again(
    module: str,
    file: tuple[str, bytes] | None,
    name: str,
    options: Mapping[str, Any],
    marks: Mapping[str, Any],
) -> _Objective:
    """The objective that was sent to this process."""
    from importlib import import_module

    if file is not None and module not in sys.modules:
        module_of_source(module, *file)
    return _Objective(getattr(import_module(module), name), options, **marks)


def module_of_source(name: str, path: str, source: bytes) -> ModuleType:
    """Run the source of a plugin file as a module. Raises whatever it does.

    Args:
        name: in `sys.modules`, in which attrs and dataclasses look for the module of a class.
        path: of the file; it need not be there.
    """
    spec = spec_from_loader(name, None, origin=path)
    assert spec is not None
    module = module_from_spec(spec)
    module.__file__ = path
    setattr(module, SOURCE, source)
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - the user's own file
    except BaseException:
        del sys.modules[name]
        raise
    return module


_SIMPLE = (bool, int, float, str, Path, NameOrPath, Any, type(None))
_CONTAINERS = (tuple, list, Sequence, dict, Mapping, Union, UnionType)
_EITHER = (False, True)
KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "criterion": _Kind(
            form="def {name}(answer: ale.Answer, *, option: int = 1) -> float",
            given=1,
            asynchronous=_EITHER,
            product=_Criterion,
        ),
        "credit": _Kind(
            form="def {name}(group: ale.Group, *, option: int = 1) -> list[list[float]]",
            given=1,
            asynchronous=(False,),
            product=_Credit,
        ),
        "agent": _Kind(
            form="async def {name}(context: ale.AgentContext, *, option: int = 1) -> ale.Stop",
            given=1,
            asynchronous=(True,),
            product=_Agent,
        ),
        "tasks": _Kind(
            form="def {name}(*, option: int = 1) -> Iterable[ale.Task]",
            given=0,
            asynchronous=(False,),
            product=_Tasks,
        ),
        "chunker": _Kind(
            form="def {name}(trajectory: ale.Trajectory, *, option: int = 1) -> list[list[int]]",
            given=1,
            asynchronous=(False,),
            product=_Chunker,
        ),
        "objective": _Kind(
            form="def {name}(tokens: ale.Tokens, logp, old_logp, entropy, *, option: int = 1)"
            " -> torch.Tensor",
            given=4,
            asynchronous=(False,),
            product=_Objective,
        ),
    }
)


def criterion(name: str | FunctionT | None = None) -> Any:
    """Register a function of an `Answer` as a criterion.

    It returns a number from 0 to 1, or True or False, or a `Score`. An exception breaks the
    episode, which then has no reward: give what the agent did wrong a 0 instead. It may be
    ``async def``, which it must be to use the sandbox; otherwise it is called in a thread.

    Args:
        name: for ``type:``; default: the function's.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate("criterion", name)


def credit(name: str | FunctionT | None = None) -> Any:
    """Register a function of a `Group` as a credit scheme.

    It returns, for each rollout, a weight for each of its chunks; or a list of `Credit`.

    Args:
        name: for ``type:``; default: the function's.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate("credit", name)


def agent(name: str | FunctionT | None = None) -> Any:
    """Register an asynchronous function of an `AgentContext` as an agent.

    It appends each turn to ``context.recorder`` and returns a `Stop`, or None if it has finished;
    `ale.agents.EpisodeLoop` does so. Options with names of `Limits`, such as ``max_turns`` and
    ``time_limit_s``, are the agent's limits: ``context.limits`` has the stricter of them and the
    task's.

    Args:
        name: for ``type:``; default: the function's.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate("agent", name)


def tasks(name: str | FunctionT | None = None) -> Any:
    """Register a function that returns or yields tasks as a task source.

    Args:
        name: for ``type:``; default: the function's.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate("tasks", name)


def chunker(name: str | FunctionT | None = None) -> Any:
    """Register a function of a `Trajectory` as a chunker.

    It returns a list of turn numbers for each chunk, such as ``[[0, 1], [2]]``; or a list of
    `Chunk`.

    Args:
        name: for ``type:``; default: the function's.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate("chunker", name)


def objective(
    name: str | FunctionT | None = None,
    *,
    needs_reference: bool = False,
    needs_entropy: bool = False,
    normaliser: str = "trajectories",
) -> Any:
    """Register a function of `Tokens` and log-probabilities as an objective.

    It is called with what `ale.protocols.Objective.evaluate` is, and returns the loss, a tensor of
    shape (), or `Terms` with more to measure. Imitation of demonstrations is added to it.

    Args:
        name: for ``trainer: {objective: NAME}``; default: the function's.
        needs_reference: it uses ``tokens.reference_logp``, of the policy at the start of the run.
        needs_entropy: it uses ``entropy``, which is None otherwise.
        normaliser: what ``tokens.weight`` is divided by: see `ale.protocols.Objective`.

    Raises:
        PluginError: the function has another form, or an option without a type.
    """
    return _decorate(
        "objective",
        name,
        needs_reference=needs_reference,
        needs_entropy=needs_entropy,
        normaliser=normaliser,
    )


def _decorate(kind: str, name: Any, **marks: Any) -> Any:
    """The decorator of a kind, or what it makes of the function that was given for the name."""

    def decorate(function: Any, name: str | None = None) -> Any:
        setattr(function, FUNCTION, made(kind, function, name, **marks))
        return function

    if name is None or isinstance(name, str):
        return partial(decorate, name=name)
    return decorate(name)


def function_of(value: object) -> Function | None:
    """The component as which a decorator has registered a function; None if none has."""
    found = getattr(value, FUNCTION, None) if inspect.isfunction(value) else None
    return found if isinstance(found, Function) else None


def made(kind: str, function: Any, name: str | None = None, **marks: Any) -> Function:
    """A function as a component of a kind.

    Args:
        kind: one of `KINDS`.
        function: not a class, and no method of one.
        name: default: the function's.
        marks: what its decorator says besides.

    Raises:
        PluginError: it has another form than functions of this kind.
    """
    if not inspect.isfunction(function):
        raise PluginError(f"@ale.{kind} is for functions, and {function!r} is none")
    shape, named = KINDS[kind], name or function.__name__
    options = _options(kind, function)

    def build(options: Any, context: BuildContext) -> Any:
        chosen = {} if options is None else attrs.asdict(options, recurse=False)
        return shape.product(function, chosen, **marks)

    lines = (inspect.getdoc(function) or "").strip().splitlines()
    summary = lines[0] if lines else f"The function {function.__name__}."
    try:
        component: Component[Any, Any] = Component(named, options, build, summary=summary)
    except (ValueError, TypeError) as error:
        raise PluginError(f"@ale.{kind} of {function.__name__}: {error.args[0]}") from error
    return Function(kind=kind, component=component)


def _options(kind: str, function: Any) -> type | None:
    """A class of the keyword-only parameters; None without any.

    Raises:
        PluginError: the function has another form.
    """
    shape = KINDS[kind]
    refused = partial(_refused, kind, function)
    if _is_async(function) not in shape.asynchronous:
        raise refused("it must be 'async def'" if shape.asynchronous[0] else "it can't be async")
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except NameError as error:
        raise refused(f"the type of a parameter is not known: {error}") from error
    free = [
        each.name for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if free:
        raise refused(f"'{free[0]}' takes anything: name each option")
    positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    if len(positional) > shape.given:
        extra = positional[shape.given]
        raise refused(f"'{extra}' is no keyword-only parameter: options stand behind a '*'")
    if len(positional) < shape.given:
        raise refused("it has no parameter for what it is given")
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    fields = {each.name: _option(each, refused) for each in keywords}
    if not fields:
        return None
    made = attrs.make_class(f"{function.__name__}_options", fields, frozen=True, kw_only=True)
    made.__doc__ = function.__doc__
    return made


def _option(parameter: inspect.Parameter, refused: Callable[[str], PluginError]) -> Any:
    """The field of an option; its default has its type."""
    name, type_, default = parameter.name, parameter.annotation, parameter.default
    if type_ is parameter.empty:
        guess = "int" if default in (parameter.empty, None) else type(default).__name__
        raise refused(f"option '{name}' has no type: write '{name}: {guess}'")
    if not _readable(type_):
        written = type_.__name__ if isinstance(type_, type) else type_
        raise refused(f"option '{name}' can't be of type {written}")
    if default is parameter.empty:
        return field(type=type_)
    one = attrs.make_class("One", {name: field(type=type_)}, kw_only=True)
    try:
        structure(from_plain({name: default}), one)
    except InputError as error:
        raise refused(f"the default of {error.problems[0]}") from error
    return field(type=type_, default=default)


def _readable(type_: Any) -> bool:
    """Can a config hold it? As of `ale.strict.structure`."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in _CONTAINERS:
        return all(each is ... or _readable(each) for each in arguments)
    return origin is Literal or type_ in _SIMPLE or attrs.has(type_)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _refused(kind: str, function: Any, why: str) -> PluginError:
    form = KINDS[kind].form.format(name=function.__name__)
    return PluginError(f"@ale.{kind} of {function.__name__}: {why}; the form is: {form}")
