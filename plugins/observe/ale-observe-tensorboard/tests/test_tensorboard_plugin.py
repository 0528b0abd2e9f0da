"""The plugin without the SDK."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from ale.errors import NotUsableError
from ale.plugin import BuildContext
from ale_observe_tensorboard.options import TensorBoardOptions
from ale_observe_tensorboard.plugin import ale_observers, probe


def absent(name: str) -> str:
    raise PackageNotFoundError(name)


def test_without_the_sdk_the_probe_gives_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.version", absent)
    found = probe()
    assert (found.usable, found.remedy) == (False, 'pip install "tensorboard>=2.16,<3"')


def test_without_the_sdk_building_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", absent)
    [component] = ale_observers()
    with pytest.raises(NotUsableError, match="tensorboard is not installed"):
        component.build(TensorBoardOptions(), BuildContext())


def test_with_the_sdk_the_probe_gives_its_version() -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
    assert probe().facts == {"tensorboard": version("tensorboard")}


def test_listing_and_probing_do_not_import_the_sdk() -> None:
    code = (
        "import sys, ale_observe_tensorboard.plugin as p\n"
        "[c] = p.ale_observers(); c.probe()\n"
        "late = ('tensorboard', 'ale_tracking')\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in late))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
