"""Find, load and look up plugins.

pluggy's own loader raises at the first broken package and skips the second of two packages with one
name. Here a package that fails is recorded with its traceback, and the others still load.
"""

import inspect
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import Attribute, field, frozen

import ale
from ale import _builtin, hookspecs
from ale._installed import installed
from ale.errors import PluginError
from ale.plugin import FUNCTION, PROJECT, Component, Probe

if TYPE_CHECKING:
    from ale.functions import Function

ENTRY_POINT_GROUP = "ale"

KINDS: Mapping[str, str] = {
    "tasks": "ale_task_sources",
    "sandbox": "ale_sandboxes",
    "llm": "ale_llms",
    "agent": "ale_agents",
    "criterion": "ale_criteria",
    "scorer": "ale_step_scorers",
    "chunker": "ale_chunkers",
    "credit": "ale_credit_schemes",
    "starts": "ale_starts",
    "trainer": "ale_trainers",
    "objective": "ale_objectives",
    "executor": "ale_executors",
    "launch": "ale_launchers",
    "middleware": "ale_middleware",
    "observer": "ale_observers",
}
"""Component kinds, as ``ale plugins`` names them, and the hook that registers each."""

GIVEN = "python"
"""Distribution of a component that `ale.run` was given as an object: ``python/mine``."""
_MERGED = {
    "ale-bench": "art",
    "ale-data": "dataset",
    "ale-figures": "charts forks statistics",
    "ale-grading": "answers signed-tests",
    "ale-look": "inspect results store",
    "ale-middleware": "hints skills",
    "ale-processes": "supervised torchrun",
    "ale-rows": "task-rows",
    "ale-sandboxing": "sandbox-container sandbox-container-testing sandbox-process sandbox-remote "
    "sandbox-shell",
    "ale-serving": "serve server",
    "ale-trackers": "observe-tensorboard observe-wandb tracking",
    "ale-workbench": "machine new sandboxes schema",
}
FORMER: Mapping[str, str] = {
    f"ale-{part}": package for package, parts in _MERGED.items() for part in parts.split()
}
"""Packages that have gone into another: what they registered is found by either full name."""
_PACKAGES = Path(__file__).with_name("_packages.json")
"""Components by kind, and commands, each with its package; written by ``nox -s reference``."""
_NOUNS = {
    "tasks": "task source",
    "credit": "credit scheme",
    "starts": "start scheme",
    "launch": "launcher",
}
"""The noun for one component in a message, for the kinds whose name is not such a noun."""


@frozen
class Registration:
    """A component and the package that registers it."""

    kind: str
    component: Component[Any, Any]
    distribution: str
    version: str

    @property
    def full_name(self) -> str:
        """``distribution/name``, unique even if two packages use one component name."""
        return f"{self.distribution}/{self.component.name}"

    def probe(self) -> Probe | None:
        """Is it usable on this machine? None without a probe; a failing probe means unusable."""
        if self.component.probe is None:
            return None
        try:
            found = self.component.probe()
        except Exception as error:
            return Probe(usable=False, reason=f"the probe of {self.full_name} failed: {error!r}")
        if not isinstance(found, Probe):
            return Probe(
                usable=False, reason=f"the probe of {self.full_name} gave {found!r}, not a Probe"
            )
        return found


@frozen(kw_only=True)
class FailedPackage:
    """A package that could not be loaded or broke its contract."""

    distribution: str
    entry_point: str
    message: str
    """The error in one line."""
    error: BaseException = field(repr=False)
    traceback: str = field(repr=False)


@frozen
class Package:
    """A plugin package as installed."""

    distribution: str
    version: str
    entry_point: str
    module: Any = field(repr=False)


_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


class _PluginManager(pluggy.PluginManager):
    """Looks only at the functions of a module that are marked as hooks: half of its time."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ModuleType):
            value = vars(plugin).get(name)
            if not inspect.isroutine(value) or not hasattr(value, f"{PROJECT}_impl"):
                return None
        return super().parse_hookimpl_opts(plugin, name)


class Registry:
    """The components, commands and formats of the installed packages."""

    def __init__(self) -> None:
        self.manager = _PluginManager(PROJECT)
        self.manager.add_hookspecs(hookspecs)
        self.packages: list[Package] = []
        self.failed: list[FailedPackage] = []
        self.files: dict[Path, str] = {}
        """Plugin files that a config has loaded, with their SHA-256."""
        self._functions: list[tuple[Package, Sequence[Function]]] = []
        self._registrations: dict[str, list[Registration]] = {}
        self._core = Package("ale-core", ale.__version__, "built in", _builtin)
        self.manager.register(_builtin, name="ale-core:built in")

    @classmethod
    def installed(cls) -> "Registry":
        """A registry of every package with an entry point in the group ``ale``."""
        registry = cls()
        for entry in installed(ENTRY_POINT_GROUP):
            try:
                module = entry.load()
            except BaseException as error:
                # SystemExit too: a package must not be able to end every command.
                if isinstance(error, KeyboardInterrupt):
                    raise
                registry._record_failure(entry.distribution, entry.name, "failed to load", error)
            else:
                registry.add(module, entry.distribution, entry.version, entry.name)
        return registry

    def add(
        self,
        module: ModuleType | object,
        distribution: str,
        version: str = "0",
        entry_point: str = "plugin",
    ) -> None:
        """Register one plugin module or object."""
        try:
            self.manager.register(module, name=f"{distribution}:{entry_point}")
            self._refuse_bad_hooks(module)
        except (pluggy.PluginValidationError, PluginError, ValueError) as error:
            if self.manager.is_registered(module):
                self.manager.unregister(module)
            self._record_failure(distribution, entry_point, "broke the contract of a hook", error)
        else:
            package = Package(distribution, version, entry_point, module)
            self.packages.append(package)
            self._functions.append((package, functions_in(module)))
            self._registrations.clear()

    def add_functions(self, functions: Sequence["Function"], distribution: str) -> None:
        """Register functions that no module has."""
        package = Package(distribution, "0", "given", None)
        self._functions.append((package, functions))
        self._registrations.clear()

    def _refuse_bad_hooks(self, module: object) -> None:
        for caller in self.manager.get_hookcallers(module) or []:
            if not caller.has_spec():
                from ale.errors import nearest

                hint = nearest(caller.name, [n for n in dir(hookspecs) if n.startswith("ale_")])
                raise PluginError(f"no such hook: {caller.name}" + (f"; {hint}" if hint else ""))
            (found,) = (each for each in caller.get_hookimpls() if each.plugin is module)
            # pluggy would accept it, but its body would never run.
            if any(is_kind(found.function) for is_kind in _NOT_PLAIN):
                raise PluginError(
                    f"{caller.name} must be a plain function: it is called, neither awaited "
                    "nor iterated"
                )

    def _record_failure(
        self, distribution: str, entry_point: str, message: str, error: BaseException
    ) -> None:
        # A validator of attrs puts the field and the value behind its message.
        of_attrs = any(isinstance(each, Attribute) for each in error.args)
        text = " ".join(str(error.args[0] if of_attrs else error).split())
        if isinstance(error, ModuleNotFoundError):
            text += successor(error.name or "")
        self.failed.append(
            FailedPackage(
                distribution=distribution,
                entry_point=entry_point,
                message=f"{message}: {type(error).__name__}: {text}",
                error=error,
                traceback="".join(traceback.format_exception(error)),
            )
        )

    def registrations(self, kind: str) -> Sequence[Registration]:
        """Every component of a kind, by name."""
        if kind not in self._registrations:
            self._registrations[kind] = sorted(
                self._ask(kind), key=lambda each: (each.component.name, each.full_name)
            )
        return self._registrations[kind]

    def names(self, kind: str) -> list[str]:
        """The name of every component of a kind."""
        return [each.component.name for each in self.registrations(kind)]

    def _ask(self, kind: str) -> Iterator[Registration]:
        for package, answer in [*self.answers(KINDS[kind]), *self._of_functions(kind)]:
            try:
                yield from _checked(kind, package, answer)
            except PluginError as error:
                self.record_broken_hook(package, KINDS[kind], error)

    def _of_functions(self, kind: str) -> Iterator[tuple[Package, Any]]:
        """The components that each package registers with the decorators of `ale.functions`."""
        for package, functions in self._functions:
            found = [each.component for each in functions if each.kind == kind]
            if found:
                yield package, found

    def answers(self, hook: str) -> Iterator[tuple[Package, Any]]:
        """The return value of each package for a hook without arguments; errors are recorded."""
        packages = {id(package.module): package for package in (self._core, *self.packages)}
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            package = packages[id(implementation.plugin)]
            try:
                answer = implementation.function()
            except Exception as error:
                self.record_broken_hook(package, hook, error)
            else:
                yield package, answer

    def record_broken_hook(self, package: Package, hook: str, error: Exception) -> None:
        """Record that a package broke the contract of a hook."""
        self._record_failure(package.distribution, package.entry_point, f"broke {hook}", error)

    def find(self, kind: str, name: str) -> Registration:
        """The component for ``type: name``.

        Raises:
            PluginError: no package registers it, or two do.
        """
        every, noun = self.registrations(kind), _NOUNS.get(kind, kind)
        package, slash, component = name.partition("/")
        now = f"{FORMER.get(package, package)}{slash}{component}" if slash else name
        found = [each for each in every if now in (each.component.name, each.full_name)]
        if len(found) == 1:
            return found[0]
        if found:
            owners = " or ".join(each.full_name for each in found)
            raise PluginError(f"{noun} '{name}' is registered twice: write {owners} to choose one")
        names = ", ".join(self.names(kind))
        known = f"installed: {names}" if names else "none is installed"
        known += successor(package) if slash else ""
        if name.startswith(f"{GIVEN}/"):
            known = "the run was given it in Python: ale.resume(directory, {...}) takes it again"
        raise PluginError(f"no {noun} '{name}'; {known}{self.suspects()}")

    def suspects(self) -> str:
        """The failed packages, one of which may register what is missing; a line each."""
        return "".join(
            f"\n{broken.distribution} may register it, but {broken.message} "
            f"(traceback: ale plugins {broken.distribution})"
            for broken in self.failed
        )


def successor(name: str) -> str:
    """End of an error about a package that has gone into another, by its name or its module's."""
    package = name.partition(".")[0].replace("_", "-")
    return f"; {package} is a part of {FORMER[package]} now" if package in FORMER else ""


def how_to_install(kind: str, name: str) -> str | None:
    """How to get what one of this repository's packages registers; None if it has no such name.

    Args:
        kind: one of `KINDS`, or ``command``.
    """
    packages = json.loads(_PACKAGES.read_text())
    package = packages.get(kind, {}).get(name)
    return None if package is None else f"pip install {package}; in a clone: pip install -e ."


def not_installed(kind: str, registry: "Registry") -> list[str]:
    """Packages of this repository that would register more components of a kind."""
    packages: dict[str, str] = json.loads(_PACKAGES.read_text()).get(kind, {})
    known = registry.names(kind)
    return sorted({package for name, package in packages.items() if name not in known})


def functions_in(module: object) -> list["Function"]:
    """The components that the decorators of `ale.functions` have made in a module, each once."""
    values = [*getattr(module, "__dict__", {}).values()]
    marks = [vars(value).get(FUNCTION) for value in values if inspect.isfunction(value)]
    return list({id(mark): mark for mark in marks if mark is not None}.values())


def _checked(kind: str, package: Package, answer: Any) -> Iterable[Registration]:
    if isinstance(answer, Component | str) or not isinstance(answer, Sequence):
        raise PluginError(f"expected a list of Component, got {answer!r}")
    names: set[str] = set()
    for component in answer:
        if not isinstance(component, Component):
            raise PluginError(f"expected a Component, got {component!r}")
        if component.name in names:
            raise PluginError(f"the name '{component.name}' is registered twice")
        names.add(component.name)
    return [
        Registration(kind, component, package.distribution, package.version) for component in answer
    ]
