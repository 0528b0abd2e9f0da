"""The plugin without the SDK."""

from typing import Any

import pytest

from ale.plugin import Component
from ale.testing.sdk import SdkContract
from ale_trackers import plugin as observer


class TestSdk(SdkContract):
    plugin, sdk, remedy = observer, "tensorboard", 'pip install "tensorboard>=2.16,<3"'

    @pytest.fixture
    def component(self) -> Component[Any, Any]:
        (component,) = (each for each in observer.ale_observers() if each.name == "tensorboard")
        return component
