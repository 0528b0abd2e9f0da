"""Terminal-Bench 1's parsers: from what its tests print to which of them passed."""

import re
from collections.abc import Callable, Mapping

Results = Mapping[str, bool]
Parser = Callable[[str], Results]

_SUMMARY = re.compile(r"=+\s*short test summary info\s*=+", re.IGNORECASE)
_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])"
)
_GOOD = {"PASSED", "XFAIL", "SKIPPED"}
_BAD = {"FAILED", "XPASS", "ERROR"}


class UnparsableError(Exception):
    """The output holds no results; says what was looked for."""


def shown(output: str) -> str:
    """As a terminal shows it: without colours and other codes. The harness reads its screen."""
    return _CODES.sub("", output)


def pytest_results(output: str) -> Results:
    """Every line of every ``short test summary info``.

    A test that failed anywhere has failed, whatever is printed of it elsewhere: code under test
    may print as well.

    Raises:
        UnparsableError: there is no summary, or no test in it.
    """
    found = _SUMMARY.search(output)
    if found is None:
        raise UnparsableError("the tests printed no 'short test summary info'")
    results: dict[str, bool] = {}
    for line in output[found.end() :].splitlines():
        status, rest = [*line.split(maxsplit=1), "", ""][:2]
        status = status.strip(":")
        name = _name(status, rest)
        if name and status in _GOOD | _BAD:
            results[name] = results.get(name, True) and status in _GOOD
    if not results:
        raise UnparsableError("there is no test in the 'short test summary info'")
    return results


def _name(status: str, rest: str) -> str:
    if status == "FAILED":
        rest = rest.rsplit(" - ", 1)[0]
    return rest.strip().split("::", 1)[-1]


def _between(name: str, good: str, *, needed: bool) -> Parser:
    """One verdict between two marks.

    Args:
        needed: without the marks there is no verdict, else a failure: the harness sees the whole
            screen then, which is more than the verdict.
    """
    start, end = f"{name} results starts here", f"{name} results ends here"

    def parse(output: str) -> Results:
        if start not in output or end not in output:
            if needed:
                raise UnparsableError(f"the tests printed no '{start}' and '{end}'")
            return {"tests": False}
        block = output.split(start, 1)[-1].rsplit(end, 1)[0].strip()
        return {"tests": block == good}

    return parse


def _swelancer(output: str) -> Results:
    text = output.lower()
    if "swe lancer success" in text:
        return {"tests": True}
    failed = "swe lancer failure" in text
    return {"tests": not failed and "user_tool" in text and "completed" in text}


PARSERS: Mapping[str, Parser] = {
    "pytest": pytest_results,
    "swebench": _between("SWEBench", "PASSED", needed=True),
    "sweperf": _between("SWE-Perf", "PASSED", needed=True),
    "mlebench": _between("MLEBench", "ALL TESTS PASSED", needed=False),
    "swelancer": _swelancer,
}
"""By the name that a task.yaml gives."""
