"""For the tests of a remote sandbox: a fake service's sandboxes, and what a network does to calls.

`boxes.Box` is one sandbox of a fake service on this machine; `faults.FaultProbes` are tests over
the fixtures ``service``, ``make`` and ``backend``, for an adapter's own test files::

    class TestFaults(FaultProbes): ...
"""

import pkgutil
import sys

if "pytest" in sys.modules:  # before the first of them is imported, and once
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    )
