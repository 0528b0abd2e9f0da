"""17 tasks as public collections have them: honest and hostile solutions of each.

By a reviewer who had not seen the judge, written down before any was run in one, and not changed
since. Where the tests run in the agent's container as it is, doing nothing gets 0 and every
solution here 1. `python -m tests.study.unseen` runs them.
"""

from collections.abc import Mapping

from .first_rows import LINT, MAKE_CHECK, REPORT, SCRUB, SERVER, SLUGIFY, SWE, WORDFREQ
from .row import Row
from .second_rows import ANSWER, BACKUP, CONVERT, PACKAGE, PERL, PROFILE, SITE, SPEED, UNITTEST

ROWS: Mapping[str, Row] = {
    "slugify": SLUGIFY,
    "wordfreq": WORDFREQ,
    "make-check": MAKE_CHECK,
    "scrub": SCRUB,
    "swe": SWE,
    "report": REPORT,
    "lint": LINT,
    "server": SERVER,
    "backup": BACKUP,
    "site": SITE,
    "perl": PERL,
    "convert": CONVERT,
    "answer": ANSWER,
    "package": PACKAGE,
    "unittest": UNITTEST,
    "speed": SPEED,
    "profile": PROFILE,
}
