"""The benchmarks that installed task sources declare."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from ale.errors import InputError, nearest
from ale.plugin import Benchmark, Component
from ale.runs import Registration, Registry


@frozen(kw_only=True)
class Offered:
    """A benchmark, and the task source that reads it."""

    benchmark: Benchmark
    component: Component[Any, Any]
    distribution: str
    criterion_installed: bool
    source_name: str
    """The task source's name for a config: short, unless two packages use it."""

    @property
    def full_name(self) -> str:
        """``distribution/name``, unique even if two packages use one name."""
        return f"{self.distribution}/{self.benchmark.name}"

    @property
    def source(self) -> str:
        """The task source's unique name, as in the manifest of a run."""
        return f"{self.distribution}/{self.component.name}"

    @property
    def missing(self) -> str:
        """A list of what has to be installed or given to run it; empty for nothing."""
        criterion = f"a package with the criterion {self.benchmark.criterion}"
        missing = [
            *([] if self.ready else [self.benchmark.needs]),
            *([] if self.criterion_installed else [criterion]),
        ]
        return "; ".join(filter(None, missing))

    @property
    def ready(self) -> bool:
        """Whether its problems are known to be here."""
        return self.benchmark.ready is not None and self.benchmark.ready()

    def has_option(self, name: str) -> bool:
        """Whether the task source has this option."""
        return has_option(self.component, name)


def has_option(component: Component[Any, Any], name: str) -> bool:
    """Whether a component has an option of this name."""
    cls = component.options
    return cls is not None and name in {option.name for option in attrs.fields(cls)}


def offered(registry: Registry) -> Sequence[Offered]:
    """Every benchmark, by name."""
    found = [
        offered_by(registry, source, benchmark)
        for source in registry.registrations("tasks")
        for benchmark in source.component.benchmarks
    ]
    return sorted(found, key=lambda each: (each.benchmark.name, each.distribution))


def offered_by(registry: Registry, source: Registration, benchmark: Benchmark) -> Offered:
    """A benchmark that this task source declares."""
    criteria = {"", *(each.component.name for each in registry.registrations("criterion"))}
    sources = Counter(each.component.name for each in registry.registrations("tasks"))
    return Offered(
        benchmark=benchmark,
        component=source.component,
        distribution=source.distribution,
        criterion_installed=benchmark.criterion in criteria,
        source_name=source.full_name
        if sources[source.component.name] > 1
        else source.component.name,
    )


def find(registry: Registry, name: str) -> Offered:
    """The benchmark of this name.

    Raises:
        InputError: no package declares it, or two do.
    """
    every = offered(registry)
    found = [each for each in every if name in (each.benchmark.name, each.full_name)]
    if len(found) == 1:
        return found[0]
    names = [each.benchmark.name for each in every]
    if found:
        owners = " or ".join(each.full_name for each in found)
        raise InputError.of(f"the benchmark '{name}' is declared twice: write {owners}")
    raise InputError.of(
        f"no benchmark '{name}'" + registry.suspects(),
        expected=f"one of {', '.join(names)}" if names else "none is installed",
        hint=nearest(name, names),
    )


def benchmark_of(registry: Registry, tasks: Mapping[str, Any]) -> Benchmark | None:
    """The benchmark that a section ``tasks`` of a stored config reads; None if it is none."""
    for each in offered(registry):
        given = each.benchmark.tasks
        if tasks.get("type") == each.source and all(tasks.get(key) == given[key] for key in given):
            return each.benchmark
    return None
