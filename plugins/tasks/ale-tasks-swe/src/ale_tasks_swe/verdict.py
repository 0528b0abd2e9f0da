"""What the tests of both lists did, as a score."""

from collections.abc import Collection, Sequence

from attrs import frozen

from ale.types import Score
from ale_tasks_swe.options import SweTestsOptions

SHOWN = 20
"""Names of each kind that are listed."""


@frozen(kw_only=True)
class Verdict:
    """Which tests passed, failed, or did not end: not found, or the run was over before."""

    options: SweTestsOptions
    passed: Collection[str]
    failed: Collection[str]
    output: str
    void: str = ""
    """Why no test counts as passed; empty where they do."""

    def score(self, restored: Sequence[str]) -> Score:
        """1 where every test of both lists passed, else 0.

        Args:
            restored: files of the tests that the agent had changed.
        """
        options = self.options
        lists = {"FAIL_TO_PASS": options.fail_to_pass, "PASS_TO_PASS": options.pass_to_pass}
        resolved = not self.void and all(
            name in self.passed for names in lists.values() for name in names
        )
        parts = ["resolved" if resolved else "not resolved"]
        if self.void:
            parts.append(self.void)
        parts += [self._line(title, names) for title, names in lists.items()]
        if restored:
            parts.append(f"restored before the tests: {_some(restored)}")
        if not resolved:
            parts.append(self.output)
        return Score(
            criterion="swe_tests",
            passed=resolved,
            value=1.0 if resolved else 0.0,
            detail="\n".join(parts),
        )

    def _line(self, title: str, names: Sequence[str]) -> str:
        passed = [name for name in names if name in self.passed]
        failed = [name for name in names if name in self.failed and name not in self.passed]
        missing = [name for name in names if name not in self.passed and name not in self.failed]
        text = f"{title}: {len(passed)} of {len(names)} passed"
        kinds = {"passed": passed, "failed": failed, "missing": missing}
        return text + "".join(f"; {kind}: {_some(some)}" for kind, some in kinds.items() if some)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
