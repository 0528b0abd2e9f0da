"""For authors of plugins: a contract kit for each kind of component, fakes and builders.

Derive a test class from the kit of your component and override its fixture.
It is a package of its own, for which pytest and pytest-asyncio are there: ale-testing.
"""

import pkgutil
import sys

if "pytest" in sys.modules:  # the scripted server and the fakes also work without pytest
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    )
