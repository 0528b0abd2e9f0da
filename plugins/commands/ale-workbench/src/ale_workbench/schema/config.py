"""The schema of a config, with the options of every package that is installed."""

from collections import Counter
from typing import Any
from urllib.parse import quote

from ale.runs import (
    PARTS,
    EvaluationOptions,
    LaunchOptions,
    Registry,
    RunOptions,
    SandboxRequirements,
)
from ale_workbench.schema.options import Schema, needs, properties
from ale_workbench.schema.stored import DRAFT

VERSION = 1
TITLE = f"A config of `ale run`, version {VERSION}"
SELECTING = (*PARTS, "launch")
COMMON: dict[str, type] = {"sandbox": SandboxRequirements, "launch": LaunchOptions}
IN_OPTIONS = {"objective": "preset"}
"""Kinds that options of other components select, and another key for the name."""
REQUIRED = ("tasks", "agent")
DEFAULTS = {"sandbox": "auto", "chunker": "interaction", "credit": "ipa", "executor": "local"}
"""Sections that need no ``type``."""
AUTOMATIC = "auto"


def config_schema(registry: Registry) -> dict[str, Any]:
    """The schema (draft 2020-12) of a config file of these packages.

    A file that extends another may lack required values, which the other may have. Problems that
    only a run can find (a missing folder, options that exclude each other) are left to `ale check`.
    """
    every = (*SELECTING, "middleware", "scorer", "observer", *IN_OPTIONS)
    kinds = {kind: _Kind(registry, kind) for kind in every}
    sections = {name: kinds[name].section for name in SELECTING}
    tasks, added, observer = kinds["tasks"], kinds["middleware"], kinds["observer"]
    scorer = kinds["scorer"]
    return {
        "$schema": DRAFT,
        "$id": f"urn:ale:config:{VERSION}",
        "title": TITLE,
        "type": "object",
        "properties": {
            "extends": _EXTENDS,
            "plugins": _PLUGINS,
            **sections,
            "evaluation": {
                "description": "Evaluation of the policy on other tasks during training.",
                "type": ["object", "null"],
                "properties": {
                    "tasks": {**tasks.section, "type": "object"},
                    **properties(EvaluationOptions),
                },
                "additionalProperties": False,
            },
            "middleware": {
                "description": "What is added to the first messages of each conversation.",
                "type": ["array", "null"],
                "items": {"allOf": [{**added.section, "type": "object"}, added.whole]},
            },
            "scorers": {
                "description": "Scorers of the chunks of each graded episode, in this order.",
                "type": ["array", "null"],
                "items": {"allOf": [{**scorer.section, "type": "object"}, scorer.whole]},
            },
            "observers": {
                "description": "Progress, trackers and reports.",
                "type": ["array", "null"],
                "items": {"allOf": [{**observer.section, "type": "object"}, observer.whole]},
            },
            "run": {
                "description": "Options of the run itself.",
                "type": ["object", "null"],
                "properties": properties(RunOptions),
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
        "if": {"not": {"required": ["extends"]}},
        "then": _whole(kinds),
        "$defs": {
            **{name: made for kind in kinds.values() for name, made in kind.definitions()},
            **{kind: kinds[kind].option(other) for kind, other in IN_OPTIONS.items()},
        },
    }


_EXTENDS: Schema = {
    "description": "Files that this one overrides, relative to it.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


_PLUGINS: Schema = {
    "description": "Python files with hook implementations, relative to this file.",
    "type": ["array", "null"],
    "items": {"type": "string"},
}


def _whole(kinds: "dict[str, _Kind]") -> Schema:
    """Requirements of a config that extends no other."""
    needed = [made for name in SELECTING for made in kinds[name].needed_sections()]
    return {
        "required": list(REQUIRED),
        "properties": {
            **{name: kinds[name].whole for name in SELECTING},
            "evaluation": {"required": ["tasks"], "properties": {"tasks": kinds["tasks"].whole}},
        },
        **({"allOf": needed} if needed else {}),
    }


class _Kind:
    """The components of one kind."""

    def __init__(self, registry: Registry, kind: str) -> None:
        self._kind = kind
        self._registrations = registry.registrations(kind)
        self._owners = Counter(registration.component.name for registration in self._registrations)

    def definitions(self) -> list[tuple[str, Schema]]:
        """The options of each component, under the name of its definition."""
        return [
            (self._key(registration), self._options(registration))
            for registration in self._registrations
        ]

    @property
    def section(self) -> Schema:
        """Allowed values of a section; required ones may be in a file that it extends."""
        chosen = [
            {"if": self._is(registration), "then": self._options_of(registration)}
            for registration in self._registrations
        ]
        return {
            "type": ["object", "null"],
            "properties": {
                "type": {"description": self._summaries(), "enum": self._all_names()},
            },
            **({"allOf": chosen} if chosen else {}),
        }

    def option(self, other: str) -> Schema:
        """Allowed values of an option that selects a component: its name, or a mapping.

        Args:
            other: another key than ``type`` for the name; what stands beside it is not described.
        """
        names = {"enum": self._all_names()}
        old = {"type": "object", "required": [other], "properties": {other: names}}
        return {"anyOf": [names, self.section, old]}

    @property
    def whole(self) -> Schema:
        """Requirements of a section in a config that extends no other."""
        rules = [
            {"if": self._is(registration), "then": needed}
            for registration in self._registrations
            if (needed := _needed(registration))
        ]
        made: Schema = {"type": "object"} if self._kind in REQUIRED else {}
        if self._kind not in DEFAULTS:
            made["required"] = ["type"]
        else:
            untyped = {"not": {"required": ["type"]}}
            rules += [
                {"if": untyped, "then": self._options_of(registration)}
                for registration in self._registrations
                if registration.component.name == DEFAULTS[self._kind]
            ]
        return {**made, "allOf": rules} if rules else made

    def needed_sections(self) -> list[Schema]:
        """Sections that are required because a component needs them."""
        return [
            {
                "if": {
                    "required": [self._kind],
                    "properties": {self._kind: self._is(registration)},
                },
                "then": {
                    "required": list(registration.component.needs),
                    "properties": {
                        name: {"type": "object"} for name in registration.component.needs
                    },
                },
            }
            for registration in self._registrations
            if registration.component.needs
        ]

    def _key(self, registration: Any) -> str:
        return f"{self._kind}:{registration.distribution}:{registration.component.name}"

    def _options_of(self, registration: Any) -> Schema:
        return {"$ref": "#/$defs/" + quote(self._key(registration))}

    def _options(self, registration: Any) -> Schema:
        cls = registration.component.options
        common = properties(COMMON[self._kind]) if self._kind in COMMON else {}
        return {
            "description": registration.component.summary,
            "properties": {"type": True, **({} if cls is None else properties(cls)), **common},
            "additionalProperties": False,
        }

    def _names(self, registration: Any) -> list[str]:
        name = registration.component.name
        return (
            [registration.full_name] if self._owners[name] > 1 else [name, registration.full_name]
        )

    def _all_names(self) -> list[str]:
        short, full = [], []
        for registration in self._registrations:
            *first, last = self._names(registration)
            short += first
            full.append(last)
        automatic = [AUTOMATIC] if self._kind == "sandbox" else []
        return [*automatic, *short, *full]

    def _is(self, registration: Any) -> Schema:
        names = {"enum": self._names(registration)}
        return {"type": "object", "required": ["type"], "properties": {"type": names}}

    def _summaries(self) -> str:
        components = (registration.component for registration in self._registrations)
        return "\n".join(f"{each.name}: {each.summary}" for each in components)


def _needed(registration: Any) -> Schema:
    cls = registration.component.options
    return {} if cls is None else needs(cls)
