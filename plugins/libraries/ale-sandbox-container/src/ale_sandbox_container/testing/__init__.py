"""What every container backend is probed for beyond the contract of sandboxes.

Classes of tests over two fixtures, for an adapter's own test files::

    class TestAttacks(AttackProbes): ...

- ``make(**options)``: builds a backend on a real engine, with an image that has busybox or more,
  and with a tag of the test's own (so that two runs do not see each other's sandboxes).
- ``box``: an open sandbox of ``make()``.

They need no test framework but one that runs async methods.
"""

import pkgutil
import sys

if "pytest" in sys.modules:  # before the first of them is imported, and once
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    )
