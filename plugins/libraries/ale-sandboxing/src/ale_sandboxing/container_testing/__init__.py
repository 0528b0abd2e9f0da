"""What container sandboxes are tested for beyond the contract of all sandboxes.

Classes of tests, for an adapter's own test files; `fixtures` has what they ask for::

    class TestAttacks(AttackProbes):
        container_image = BUSYBOX
"""

import pkgutil
import sys

if "pytest" in sys.modules:  # benchmarks need the images alone
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    )
