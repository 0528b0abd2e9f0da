"""What the tests of both lists did, as a score."""

from collections.abc import Collection, Sequence

from ale.types import Score
from ale_tasks_swe.options import SweTestsOptions

SHOWN = 20
"""Names of each kind that are listed."""


def score_of(
    options: SweTestsOptions,
    *,
    passed: Collection[str],
    failed: Collection[str],
    restored: Sequence[str],
    output: str,
    void: str,
) -> Score:
    """1 where every test of both lists passed, else 0.

    Args:
        failed: those that are in neither did not end: not found, or the run was over before.
        restored: files of the tests that the agent had changed.
        output: of the tests.
        void: why no test counts as passed; empty where they do.
    """
    lists = {"FAIL_TO_PASS": options.fail_to_pass, "PASS_TO_PASS": options.pass_to_pass}
    resolved = not void and all(name in passed for names in lists.values() for name in names)
    parts = ["resolved" if resolved else "not resolved", *([void] if void else [])]
    parts += [_line(title, names, passed, failed) for title, names in lists.items()]
    if restored:
        parts.append(f"restored before the tests: {_some(restored)}")
    if not resolved:
        parts.append(output)
    return Score(
        criterion="swe_tests",
        passed=resolved,
        value=1.0 if resolved else 0.0,
        detail="\n".join(parts),
    )


def _line(
    title: str, names: Sequence[str], passed: Collection[str], failed: Collection[str]
) -> str:
    kinds: dict[str, list[str]] = {"passed": [], "failed": [], "missing": []}
    for name in names:
        kind = "passed" if name in passed else "failed" if name in failed else "missing"
        kinds[kind].append(name)
    text = f"{title}: {len(kinds['passed'])} of {len(names)} passed"
    return text + "".join(f"; {kind}: {_some(some)}" for kind, some in kinds.items() if some)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
