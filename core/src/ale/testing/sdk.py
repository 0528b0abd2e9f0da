"""Promises of a plugin whose SDK is imported late and may be missing.

```python
class TestSdk(SdkContract):
    plugin, sdk, remedy = my_plugin, "wandb", 'pip install "wandb>=0.30,<1"'

    @pytest.fixture
    def component(self) -> Component[Any, Any]:
        return my_plugin.ale_observers()[0]
```
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import pytest

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe

_PROBED = """
import importlib, sys
plugin = importlib.import_module(sys.argv[1])
for hook in [value for name, value in vars(plugin).items() if name.startswith("ale_")]:
    if callable(hook):
        [component.probe() for component in hook()]
print(sys.argv[2] in sys.modules)
"""


def _absent(name: str) -> str:
    raise PackageNotFoundError(name)


class SdkContract:
    """The plugin works without its SDK, says how to install it, and imports it only to build."""

    plugin: ModuleType
    """The module that contains the hooks."""
    sdk: str
    """Name of the SDK's distribution and of its module."""
    remedy: str
    """The command that installs it."""

    @pytest.fixture
    def component(self) -> Component[Any, Any]:
        """The component; its options need no values."""
        raise NotImplementedError("override the fixture 'component'")

    @staticmethod
    def _probe(component: Component[Any, Any]) -> Probe:
        assert component.probe is not None
        return component.probe()

    def test_without_the_sdk_the_probe_gives_the_command_that_installs_it(
        self, component: Component[Any, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.metadata.version", _absent)
        found = self._probe(component)
        assert (found.usable, found.remedy) == (False, self.remedy)

    def test_without_the_sdk_it_can_not_be_built(
        self, component: Component[Any, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.metadata.version", _absent)
        with pytest.raises(NotUsableError, match=f"{self.sdk} is not installed") as refused:
            component.build(component.options and component.options(), BuildContext())
        assert self.remedy in str(refused.value)

    def test_with_the_sdk_the_probe_gives_its_version(self, component: Component[Any, Any]) -> None:
        pytest.importorskip(self.sdk, reason=f"{self.sdk} is not installed here")
        assert self._probe(component).facts == {self.sdk: version(self.sdk)}

    def test_listing_and_probing_do_not_import_the_sdk(self) -> None:
        arguments = ["-c", _PROBED, self.plugin.__name__, self.sdk]
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"
