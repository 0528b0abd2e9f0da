"""The options of each preset as a component: a module attribute by the preset's name.

They are `ObjectiveOptions` whose preset is given by the name of the component.
"""

from functools import cache

import attrs

from ale_trainer_policy.options import PRESETS, ObjectiveOptions


@cache
def __getattr__(name: str) -> type[ObjectiveOptions]:
    if name not in PRESETS:
        raise AttributeError(f"there is no preset '{name}'")
    preset = {"preset": attrs.field(default=name, init=False, type=str)}
    bases = (ObjectiveOptions,)
    made: type[ObjectiveOptions] = attrs.make_class(
        name, preset, bases, frozen=True, kw_only=True, slots=True
    )
    made.__doc__ = f"The parts of {name}; null keeps the preset's."
    return made
