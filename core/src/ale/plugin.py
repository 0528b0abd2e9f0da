"""How a package offers something to `ale`.

A package names one module under the entry-point group ``ale``; that module answers hooks of
`ale.hookspecs` with functions marked `hookimpl`, most of which return `Component`s.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pluggy
from attrs import field, frozen, has, validators

if TYPE_CHECKING:
    from ale.strict import Node

PROJECT = "ale"
hookimpl = pluggy.HookimplMarker(PROJECT)

OptionsT = TypeVar("OptionsT")
ProductT_co = TypeVar("ProductT_co", covariant=True)


def doc(text: str) -> dict[str, str]:
    """Metadata for a field of an options class: the line that docs, schema and errors show."""
    return {"doc": text}


# Bounds for options, under the names that the config's error messages use.
ge = validators.ge
gt = validators.gt
le = validators.le
lt = validators.lt


@frozen(kw_only=True)
class Probe:
    """Is a component usable on this machine?"""

    usable: bool
    reason: str
    """Why, in one line: what was found."""
    remedy: str | None = None
    """The command that would make it usable, where it is not."""
    facts: Mapping[str, str] = field(factory=dict)
    """What else `ale doctor` shows: versions, what is enforced."""

    @classmethod
    def of_package(cls, name: str, *, remedy: str) -> "Probe":
        """Usable where the distribution `name` is installed, say an SDK; it is not imported."""
        from importlib.metadata import PackageNotFoundError, version  # late: it takes a while

        try:
            found = version(name)
        except PackageNotFoundError:
            return cls(usable=False, reason=f"{name} is not installed", remedy=remedy)
        return cls(usable=True, reason=f"{name} {found}", facts={name: found})


@frozen
class Secret:
    """A value that must not be written anywhere. Its text forms never show it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "***"


def _random_id() -> str:
    return os.urandom(6).hex()


@frozen(kw_only=True)
class BuildContext:
    """What a component is built with besides its options.

    Clock, ids and seed come from here and nowhere else, so that a run can be repeated to the byte.
    """

    seed: int = 0
    run_id: str = ""
    run_directory: Path | None = None
    staleness: int = 0
    """``run.staleness``: above 0, the model samples while the trainer changes weights."""
    tags: Mapping[str, str] = field(factory=dict)
    """To be put on whatever could be left behind by a crash."""
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    """The environment to read secrets from."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    monotonic: Callable[[], float] = time.perf_counter
    """Seconds from an arbitrary start, for durations."""
    new_id: Callable[[], str] = _random_id

    def secret(self, variable: str) -> Secret | None:
        """The value of an environment variable, or None where it is not set."""
        value = self.environ.get(variable)
        return None if value is None else Secret(value)


def _attrs_class(_: object, __: object, value: Any) -> None:
    if has(value) if isinstance(value, type) else value is None or callable(value):
        return
    raise TypeError(f"'options' must be an attrs class, None, or a function, got {value!r}")


@frozen
class Component(Generic[OptionsT, ProductT_co]):
    """One named choice behind a door.

    Attributes:
        name: what a config writes after ``type:``; no spaces, no ``/``.
        options: an attrs class (keyword-only, all fields with `doc`), or None for none; where
            there are many, a function that imports the class: it is called when they are needed.
        build: makes the product from options and context; the place to import an SDK.
        summary: one line for ``ale plugins``.
        probe: is it usable here? Cheap; must not raise. None means always.
        priority: for sandboxes: ``type: auto`` takes the usable one with the highest; 0 never.
        auto_needs: options without which ``type: auto`` passes it over, such as ``image``.
        needs: sections of the config that must be there too, such as ``llm`` for an agent.
    """

    name: str = field(validator=[validators.instance_of(str), validators.matches_re(r"[^\s/]+")])
    _options: type[OptionsT] | Callable[[], type[OptionsT]] | None = field(validator=_attrs_class)
    build: Callable[[Any, BuildContext], ProductT_co] = field(validator=validators.is_callable())
    summary: str = field(kw_only=True, validator=validators.instance_of(str))
    probe: Callable[[], Probe] | None = field(
        default=None, kw_only=True, validator=validators.optional(validators.is_callable())
    )
    priority: int = field(default=0, kw_only=True)
    auto_needs: tuple[str, ...] = field(default=(), kw_only=True)
    needs: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def options(self) -> type[OptionsT] | None:
        """The class of its options, or None for none."""
        given = self._options
        return given if given is None or isinstance(given, type) else given()


@frozen(kw_only=True)
class Converted:
    """A config of another format, in the project's own words."""

    root: "Node"
    """The tree. A node keeps the file and line that it was written on, for messages."""
    environ: Mapping[str, Secret] = field(factory=dict, repr=False)
    """Variables for this run alone, over those of the process. Where the format has a key written
    in the file, the tree names such a variable (``api_key_env``), and the key is stored nowhere."""


@frozen(kw_only=True)
class ConfigFormat:
    """Another format of config files.

    Attributes:
        name: for messages; one word.
        reads: do the keys of this tree show that it is of the format? Never true of a tree that
            could be in the project's own: such a file is of another format only where ``--format``
            says so.
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
