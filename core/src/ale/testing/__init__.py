"""For authors of plugins: a contract kit for each kind of component, fakes and builders.

Derive a test class from the kit of your component and override its fixture.
pytest and pytest-asyncio are needed: ``pip install ale-core[testing]``.
"""

import sys

if "pytest" in sys.modules:  # the scripted server and the fakes also work without pytest
    sys.modules["pytest"].register_assert_rewrite(
        "ale.testing.agent",
        "ale.testing.chunker",
        "ale.testing.credit",
        "ale.testing.criterion",
        "ale.testing.executor",
        "ale.testing.launcher",
        "ale.testing.llm",
        "ale.testing.middleware",
        "ale.testing.observer",
        "ale.testing.sandbox",
        "ale.testing.sdk",
        "ale.testing.starts",
        "ale.testing.tasks",
        "ale.testing.trainer",
    )
