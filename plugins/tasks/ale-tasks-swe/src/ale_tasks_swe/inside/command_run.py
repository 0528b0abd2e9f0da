"""How a child of `ale_grading.signed_tests` runs a test command; it follows that child's own text.

The command's JUnit report is believed as it is. Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Iterator, Tuple  # noqa: UP035
from xml.etree import ElementTree

if TYPE_CHECKING:  # in the sandbox they are there: their text comes before this one
    from ale_grading.signed_tests.inside.child import Plan, Reports


def run(plan: Plan, unit: Plan, modules: object, reports: Reports) -> None:
    """Run the command, and report the listed tests that its report has."""
    report = os.path.join(plan["folder"], "home", "report.xml")
    environment = dict(os.environ, REPORT=report)
    subprocess.run(["/bin/sh", "-c", unit["command"]], env=environment, check=False)
    try:
        found = dict(cases(ElementTree.parse(report).getroot()))  # noqa: S314
    except (OSError, ElementTree.ParseError) as error:
        print("the test command wrote no JUnit report to $REPORT:", error)
        return
    for index, name in enumerate(unit["tests"]):
        if name in found:
            (reports.passed if found[name] else reports.failed)(index)


def cases(report: ElementTree.Element) -> Iterator[Tuple[str, bool]]:  # noqa: UP006
    """Every name that a test case may have in a list, and whether it passed."""
    for case in report.iter("testcase"):
        passed = not any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        name, group = case.get("name", ""), case.get("classname", "")
        names = [name, *(f"{prefix}::{name}" for prefix in (group, case.get("file")) if prefix)]
        if group:
            names += [f"{group}.{name}", f"{name} ({group})", *node_ids(group, name)]
        yield from ((each, passed) for each in names)


def node_ids(group: str, name: str) -> Iterator[str]:
    """As pytest names a test of the class ``tests.test_a.TestB``: by file, then class."""
    parts = group.split(".")
    for cut in range(1, len(parts) + 1):
        yield "::".join(["/".join(parts[:cut]) + ".py", *parts[cut:], name])
