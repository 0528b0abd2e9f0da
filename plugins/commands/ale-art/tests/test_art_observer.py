"""The observer keeps the contract of observers."""

import pytest

from ale.plugin import BuildContext
from ale.testing.observer import ObserverContract
from ale_art.plugin import ale_observers


class TestArt(ObserverContract):
    @pytest.fixture
    def observer(self) -> object:
        (component,) = ale_observers()
        return component.build(None, BuildContext())
