"""How a package registers components, commands and formats with `ale`.

A package names one module under the entry-point group ``ale``. That module implements hooks of
`ale.hookspecs` with functions marked `hookimpl`, most of which return `Component`s.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pluggy
from attrs import field, fields, frozen, has, validators

if TYPE_CHECKING:
    from ale.strict import Node

PROJECT = "ale"
FUNCTION = "__ale_function__"
"""Attribute of a function that a decorator of `ale.functions` has made a component of."""
hookimpl = pluggy.HookimplMarker(PROJECT)

OptionsT = TypeVar("OptionsT")
ProductT_co = TypeVar("ProductT_co", covariant=True)


def doc(
    text: str,
    *,
    changeable: bool = False,
    component: str | None = None,
    named_by: str = "type",
) -> dict[str, Any]:
    """Metadata for a field of an options class: its description in docs, schema and errors.

    Args:
        text: the description.
        changeable: ``ale run --resume DIR --set`` may change it, because neither episodes, credits
            nor weights depend on it: an address, a number of retries.
        component: the option selects a component of this kind, such as ``objective``: it is written
            as a name, or as ``{type: NAME, option: value}``, and the component is built with it,
            so that ``options`` have the product. The field's type is `typing.Any`.
        named_by: another key than ``type`` that may have the component's name.
    """
    found = {"doc": text, "changeable": changeable}
    return found if component is None else {**found, "component": component, "named_by": named_by}


# Bounds for options; the config's error messages know their wording.
ge = validators.ge
gt = validators.gt
le = validators.le
lt = validators.lt
optional: Any = validators.optional  # mypy would take a field's type from a number's bounds


@frozen(kw_only=True)
class Probe:
    """Whether a component is usable on this machine."""

    usable: bool
    reason: str
    """Why, in one line."""
    remedy: str | None = None
    """The command that would make it usable, if it is not."""
    facts: Mapping[str, str] = field(factory=dict)
    """More for `ale doctor`: versions, enforced limits, notes."""

    def check(self) -> None:
        """Raise a `NotUsableError` with reason and remedy, unless it is usable."""
        if not self.usable:
            from ale.errors import NotUsableError  # late: it takes a while

            raise NotUsableError(
                "; to make it usable: ".join(filter(None, [self.reason, self.remedy]))
            )

    @classmethod
    def of_package(cls, name: str, *, remedy: str) -> "Probe":
        """Usable if the distribution `name`, such as an SDK, is installed; it is not imported."""
        from importlib.metadata import PackageNotFoundError, version  # late: it takes a while

        try:
            found = version(name)
        except PackageNotFoundError:
            return cls(usable=False, reason=f"{name} is not installed", remedy=remedy)
        return cls(usable=True, reason=f"{name} {found}", facts={name: found})


@frozen
class Secret:
    """A value that must not be written anywhere; `str` and `repr` do not show it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "***"


def _random_id() -> str:
    return os.urandom(6).hex()


@frozen(kw_only=True)
class BuildContext:
    """Everything that a component is built with in addition to its options.

    Components take clock, ids and seed from here only, so that a run is reproducible.
    """

    seed: int = 0
    run_id: str = ""
    run_directory: Path | None = None
    created: float | None = None
    """When the run began, seconds since the epoch, also after a resume; None outside a run."""
    staleness: int = 0
    """``run.staleness``: above 0, the model samples while the trainer updates the weights."""
    exceeds_staleness: bool = False
    """Slow groups of a stream may be learned from when they are older than that."""
    checking: bool = False
    """The config is only checked, as by `ale check` and before a launch: start no processes, and
    take no memory of a GPU."""
    tags: Mapping[str, str] = field(factory=dict)
    """Labels for resources that a crash could leave behind, such as containers."""
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    """The environment to read secrets from."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    monotonic: Callable[[], float] = time.perf_counter
    """Seconds from an arbitrary origin, for durations."""
    new_id: Callable[[], str] = _random_id

    def secret(self, variable: str) -> Secret | None:
        """The value of an environment variable, or None if it is not set."""
        value = self.environ.get(variable)
        return None if value is None else Secret(value)


_NAME: Any = [validators.instance_of(str), validators.matches_re(r"[^\s/]+")]


@frozen
class Benchmark:
    """A benchmark, or a format of task folders, that a task source reads, for ``ale eval``.

    Where the task source has options of these names, ``ale eval`` sets them: ``path``
    (``--data``), ``dataset`` and ``subset`` (``--dataset``), ``sample``, ``split`` and ``limit``,
    of which 0 is all.

    Attributes:
        name: what is typed, ``ale eval NAME``; no spaces, no ``/``.
        criterion: name of the criterion that grades its tasks; empty if each names its own.
        problems: number of problems in each split, as published; the default split comes first. A
            benchmark without splits has one. Empty where it is not known.
        needs: what the user has to provide, in a few words: ``--data mbpp.jsonl``, an extra.
        home: where it is published: a URL.
        tasks: options of the task source that select it, such as ``{"subset": "lite"}``.
        agent: the agent that it is run with by default, as on the command line: ``iflow``,
            ``iflow:max_steps=40``.
        sandbox: likewise.
        run: options of a config's section ``run`` that it needs, such as a longer time to start.
        folders: globs of file names, such as ``task.toml``; a folder that has one at any depth can
            be typed instead of the name. It is the option ``path``.
        groups: keys of a task's metadata by which results are shown too, such as ``level``.
        ready: whether nothing is missing here; None where only a run can tell. Must be fast.
    """

    name: str = field(validator=_NAME)
    criterion: str = field(default="", kw_only=True)
    problems: Mapping[str, int] = field(factory=dict, kw_only=True)
    needs: str = field(default="", kw_only=True)
    home: str = field(default="", kw_only=True)
    tasks: Mapping[str, Any] = field(factory=dict, kw_only=True)
    agent: str = field(default="single-shot", kw_only=True)
    sandbox: str = field(default="auto", kw_only=True)
    run: Mapping[str, Any] = field(factory=dict, kw_only=True)
    folders: tuple[str, ...] = field(default=(), kw_only=True)
    groups: tuple[str, ...] = field(default=(), kw_only=True)
    ready: Callable[[], bool] | None = field(default=None, kw_only=True)


@frozen(kw_only=True)
class Ranks:
    """The processes of a trainer that torchrun can start.

    Attributes:
        count: their number, for the options at hand.
        module: run by ``python -m`` in each of them, in front of `ale`'s arguments.
    """

    count: int
    module: str


def _is_attrs_class(value: Any) -> bool:
    return isinstance(value, type) and has(value)


def _is_name(value: Any) -> bool:
    module, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    return bool(module and colon and name)


def _has_type(options: Any) -> bool:
    return hasattr(fields(options), "type")


_TYPE = "an option can't be named 'type': in a config, this key names the component"


def _attrs_class(_: object, __: object, value: Any) -> None:
    if not (value is None or _is_attrs_class(value) or _is_name(value)):
        expected = "an attrs class, the name of one as 'module:Class', or None"
        raise TypeError(f"'options' must be {expected}, got {value!r}")
    if _is_attrs_class(value) and _has_type(value):
        raise TypeError(_TYPE)


def _callable(_: object, __: object, value: Any) -> None:
    if not (callable(value) or _is_name(value)):
        expected = "a function, or the name of a class or function as 'module:Class'"
        raise TypeError(f"'build' must be {expected}, got {value!r}")


# Thousands of tasks may have criteria of one kind: both are looked up once.


@cache
def _at(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(import_module(module), name)


@cache
def _taken(make: Callable[..., Any], *names: str) -> tuple[str, ...]:
    """Those of the names that are parameters."""
    parameters = signature(make).parameters
    return tuple(name for name in names if name in parameters)


@frozen
class Component(Generic[OptionsT, ProductT_co]):
    """A named component that a hook registers.

    Attributes:
        name: what a config writes after ``type:``; no spaces, no ``/``.
        options: an attrs class (keyword-only, all fields with `doc`, none named ``type``); its name
            as ``module:Class``, imported when it is needed, so that no command waits for the
            options of components that it does not use; or None for no options.
        build: makes the product: a function that is called with options and context; or the name,
            ``module:Class``, of a class or function, imported when it is needed and called with
            those of ``options`` and ``context`` that it has as parameters.
        summary: one line for ``ale plugins``.
        probe: whether it is usable here. Must be fast and not raise. None means always usable.
        priority: for sandboxes: ``type: auto`` chooses the usable one with the highest; 0 never.
        auto_needs: options without which ``type: auto`` skips it, such as ``image``.
        needs: sections that the config must have too, such as ``llm`` for an agent.
        ranks: for trainers: their processes, by options; None where torchrun can't start them.
        benchmarks: for task sources: what ``ale eval`` lists and runs.
    """

    name: str = field(validator=_NAME)
    _options: type[OptionsT] | str | None = field(validator=_attrs_class)
    _build: Callable[[Any, BuildContext], ProductT_co] | str = field(validator=_callable)
    summary: str = field(kw_only=True, validator=validators.instance_of(str))
    probe: Callable[[], Probe] | None = field(
        default=None, kw_only=True, validator=validators.optional(validators.is_callable())
    )
    priority: int = field(default=0, kw_only=True)
    auto_needs: tuple[str, ...] = field(default=(), kw_only=True)
    needs: tuple[str, ...] = field(default=(), kw_only=True)
    ranks: Callable[[Any], Ranks] | None = field(default=None, kw_only=True)
    benchmarks: tuple[Benchmark, ...] = field(
        default=(),
        kw_only=True,
        validator=validators.deep_iterable(
            validators.instance_of(Benchmark), validators.instance_of(tuple)
        ),
    )

    @property
    def options(self) -> type[OptionsT] | None:
        """The class of its options, or None for none.

        Raises:
            PluginError: it can't be imported, is no attrs class, or has an option named ``type``.
        """
        if not isinstance(self._options, str):
            return self._options
        found: type[OptionsT] = self._imported("options", self._options)
        wrong = None
        if not _is_attrs_class(found):
            wrong = f"the options of '{self.name}', {self._options}, are no attrs class"
        elif _has_type(found):
            wrong = f"'{self.name}': {_TYPE}"
        if wrong is not None:
            from ale.errors import PluginError  # late: it takes a while

            raise PluginError(wrong)
        return found

    def build(self, options: Any, context: BuildContext) -> ProductT_co:
        """Make the product.

        Raises:
            PluginError: what makes it can't be imported.
        """
        if not isinstance(self._build, str):
            return self._build(options, context)
        make: Callable[..., ProductT_co] = self._imported("build", self._build)
        given = {"options": options, "context": context}
        return make(**{name: given[name] for name in _taken(make, *given)})

    def _imported(self, part: str, named: str) -> Any:
        try:
            return _at(named)
        except (ImportError, AttributeError) as error:
            from ale.errors import PluginError

            message = f"'{part}' of '{self.name}' can't be imported from {named}: {error}"
            raise PluginError(message) from error


@frozen(kw_only=True)
class Converted:
    """A config converted from another format."""

    root: "Node"
    """The config. Each node has the file and line of the original, for messages."""
    environ: Mapping[str, Secret] = field(factory=dict, repr=False)
    """Environment variables for this run, which override those of the process. For an API key in
    the file, the tree names such a variable (``api_key_env``), and the key itself is not stored."""
    hint: str | None = None
    """A hint for a missing section that the format does not have, such as ``tasks``."""


@frozen(kw_only=True)
class ConfigFormat:
    """Another format of config files.

    Attributes:
        name: for messages; one word.
        reads: whether the keys of a tree identify the format. Must be False for a tree that could
            be in the project's own format; such a file needs ``--format``.
        convert: returns the config in the project's own format. Its second argument returns what
            the probe of a component found here, by kind and name. Raises `InputError` with every
            problem.
        keys: the dotted keys of the format, such as ``sandbox.backend``: ``--set`` of one of them
            is applied before the conversion, ``--set`` of any other key after it.
    """

    name: str
    reads: Callable[["Node"], bool] = field(validator=validators.is_callable())
    convert: "Callable[[Node, Callable[[str, str], Probe | None]], Converted]" = field(
        validator=validators.is_callable()
    )
    keys: Callable[[], Collection[str]] = field(default=tuple, validator=validators.is_callable())
