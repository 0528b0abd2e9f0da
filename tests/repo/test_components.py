"""What a component names as text fits together, as mypy sees it: options, product and protocol.

`Component` takes ``module:Class`` as text, so that nothing is imported before it is used. Here each
such text is written as the code that it stands for, and mypy checks that.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ale import hookspecs
from ale._registry import KINDS, Registry
from ale.plugin import Component

ROOT = Path(__file__).parents[2]
HEAD = """\
# mypy: disable-error-code="no-any-return"
from ale.plugin import BuildContext
from ale.protocols import *
"""


def written(kind: str, component: Component[Any, Any], number: int) -> Iterator[str]:
    """The code of one component."""
    hook = getattr(hookspecs, KINDS[kind])
    product = re.findall(r", (\w+)\]\]$", inspect.get_annotations(hook)["return"])[0]
    options = component.options
    # A preset's class is made when it is imported; what it inherits is written.
    classes = () if options is None else options.__mro__
    base = next((each for each in classes if each.__name__[0].isupper()), None)
    if base is not None:
        yield f"from {base.__module__} import {base.__name__} as Options{number}"
    kind_of_options = "None" if base is None else f"Options{number}"
    module, _, name = component._build.partition(":")
    yield f"from {module} import {name} as make{number}"
    makes = getattr(__import__(module, fromlist=[name]), name)
    taken = [each for each in ("options", "context") if each in inspect.signature(makes).parameters]
    yield f"def build{number}(options: {kind_of_options}, context: BuildContext) -> {product}:"
    yield f"    return make{number}({', '.join(f'{each}={each}' for each in taken)})"


def test_mypy_finds_nothing_wrong_in_what_components_name(tmp_path: Path) -> None:
    registry = Registry.installed()
    named = [
        (kind, each.component)
        for kind in KINDS
        for each in registry.registrations(kind)
        if isinstance(each.component._build, str)
    ]
    assert len(named) > 50
    lines = [line for i, pair in enumerate(named) for line in written(*pair, i)]
    code = tmp_path / "components.py"
    code.write_text(HEAD + "\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", str(code)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not checked.returncode, f"{checked.stdout}{checked.stderr}"
