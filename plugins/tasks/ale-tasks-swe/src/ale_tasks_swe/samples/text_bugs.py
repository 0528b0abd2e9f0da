"""Samples that read and write text."""

from ale_tasks_swe.samples.bug import Bug

RANGES = Bug(
    name="ranges",
    issue="""`parse` leaves out the last page

`ranges.parse("2-4")` gives `[2, 3]`, although the end belongs to a range: `[2, 3, 4]` is right.
Ranges that run backwards ("4-2") should raise `ValueError`; today they give an empty list.""",
    files={
        "ranges/__init__.py": (
            '"""Lists of page numbers, such as 1-3,7."""\n\n'
            "from ranges.parsing import parse\nfrom ranges.writing import write\n\n"
            '__all__ = ["parse", "write"]\n'
        ),
        "ranges/parsing.py": '''"""Reads page numbers."""


def parse(text):
    """The numbers in a text such as "1-3,7", in the order of the text."""
    numbers = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not dash:
            numbers.append(int(first))
            continue
        numbers.extend(range(int(first), int(last)))
    return numbers
''',
        "ranges/writing.py": '''"""Writes page numbers."""


def write(numbers):
    """The shortest text for some numbers."""
    runs = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
''',
    },
    tests={
        "tests/test_ranges.py": """import pytest

from ranges import parse, write


@pytest.mark.parametrize("text, numbers", [("7", [7]), ("3, 1", [3, 1])])
def test_parse(text, numbers):
    assert parse(text) == numbers


def test_parse_refuses_words():
    with pytest.raises(ValueError):
        parse("one")


def test_write():
    assert write([3, 1, 2, 7]) == "1-3,7"
""",
    },
    fix={
        "ranges/parsing.py": (
            (
                "        numbers.extend(range(int(first), int(last)))\n",
                "        if int(last) < int(first):\n"
                '            raise ValueError(f"{part.strip()!r} runs backwards")\n'
                "        numbers.extend(range(int(first), int(last) + 1))\n",
            ),
        ),
    },
    fixed_tests={
        "tests/test_ranges.py": (
            ('("3, 1", [3, 1])])', '("3, 1", [3, 1]), ("2-4, 9", [2, 3, 4, 9])])'),
            (
                "def test_write():\n",
                "def test_parse_refuses_backwards():\n"
                "    with pytest.raises(ValueError):\n"
                '        parse("4-2")\n\n\n'
                "def test_round_trip():\n"
                '    assert write(parse("1-3,5-9")) == "1-3,5-9"\n\n\n'
                "def test_write():\n",
            ),
        ),
    },
    fail_to_pass=(
        "tests/test_ranges.py::test_parse[2-4, 9-numbers2]",
        "tests/test_ranges.py::test_parse_refuses_backwards",
        "tests/test_ranges.py::test_round_trip",
    ),
    pass_to_pass=(
        "tests/test_ranges.py::test_parse[7-numbers0]",
        "tests/test_ranges.py::test_parse[3, 1-numbers1]",
        "tests/test_ranges.py::test_parse_refuses_words",
        "tests/test_ranges.py::test_write",
    ),
)

SLUGS = Bug(
    name="slugs",
    issue="""Two different titles get the same slug

`Slugs.make` promises a new slug for every title, but the third of three equal titles gets the
slug of the second: "a", "a-2", "a-2". Titles without a letter or digit get an empty slug;
"untitled" is expected.""",
    files={
        "src/slugs/__init__.py": '''"""Names for addresses, made from titles."""

import re
import unicodedata


def slug(title):
    """Lower-case letters and digits of a title, joined by dashes."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


class Slugs:
    """Gives each title a slug of its own."""

    def __init__(self):
        self._given = set()

    def make(self, title):
        """A slug that was not given before."""
        made = slug(title)
        if made in self._given:
            made += "-2"
        self._given.add(made)
        return made
''',
    },
    tests={
        "tests/conftest.py": (
            "import pytest\n\nfrom slugs import Slugs\n\n\n"
            "@pytest.fixture\ndef slugs():\n    return Slugs()\n"
        ),
        "tests/test_slug.py": """from slugs import slug


def test_slug():
    assert slug("Crème brûlée, twice!") == "creme-brulee-twice"


def test_other_titles_have_other_slugs(slugs):
    assert [slugs.make("a"), slugs.make("b")] == ["a", "b"]
""",
    },
    fix={
        "src/slugs/__init__.py": (
            (
                '.strip("-")\n',
                '.strip("-") or "untitled"\n',
            ),
            (
                "        made = slug(title)\n        if made in self._given:\n"
                '            made += "-2"\n',
                "        first = made = slug(title)\n        number = 1\n"
                "        while made in self._given:\n            number += 1\n"
                '            made = f"{first}-{number}"\n',
            ),
        ),
    },
    fixed_tests={},
    new_tests={
        "tests/test_unique.py": """import pytest

from slugs import slug


@pytest.mark.parametrize("times", [3, 12])
def test_equal_titles(slugs, times):
    assert len({slugs.make("a") for _ in range(times)}) == times


def test_a_number_that_a_title_has_already(slugs):
    assert [slugs.make(t) for t in ("a", "a 2", "a")] == ["a", "a-2", "a-3"]


def test_untitled():
    assert slug("!?") == "untitled"


def test_two_equal_titles(slugs):
    assert [slugs.make("a"), slugs.make("a")] == ["a", "a-2"]
""",
    },
    fail_to_pass=(
        "tests/test_unique.py::test_equal_titles[3]",
        "tests/test_unique.py::test_equal_titles[12]",
        "tests/test_unique.py::test_a_number_that_a_title_has_already",
        "tests/test_unique.py::test_untitled",
    ),
    pass_to_pass=(
        "tests/test_unique.py::test_two_equal_titles",
        "tests/test_slug.py::test_slug",
        "tests/test_slug.py::test_other_titles_have_other_slugs",
    ),
)

TABLE = Bug(
    name="table",
    issue="""Cells with quotes are lost in a round trip

`table.dumps([["a", 'say "hi"']])` can't be read back: `loads` stops at the first quote. A quote in
a quoted cell has to be doubled when it is written, and two quotes in a quoted cell are one when it
is read. A quoted cell may also hold line breaks.""",
    files={
        "table/__init__.py": (
            '"""Tables as comma-separated text."""\n\n'
            "from table.reader import loads\nfrom table.writer import dumps\n\n"
            '__all__ = ["dumps", "loads"]\n'
        ),
        "table/reader.py": '''"""Reads tables."""


def loads(text):
    """The rows of a text, each a list of cells."""
    return [_row(line) for line in text.splitlines()]


def _row(line):
    cells, cell, quoted = [], "", False
    for character in line:
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            cells.append(cell)
            cell = ""
        else:
            cell += character
    return [*cells, cell]
''',
        "table/writer.py": '''"""Writes tables."""


def dumps(rows):
    """Rows as text; cells with commas, quotes or line breaks are quoted."""
    return "".join(",".join(map(_cell, row)) + "\\n" for row in rows)


def _cell(text):
    if any(special in text for special in ',"\\n'):
        return f'"{text}"'
    return text
''',
    },
    tests={
        "tests/test_table.py": """import unittest

import table


class TableTest(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(table.dumps([["a", "b"], ["c", ""]]), "a,b\\nc,\\n")
        self.assertEqual(table.loads("a,b\\nc,\\n"), [["a", "b"], ["c", ""]])

    def test_comma(self):
        self.assertEqual(table.loads(table.dumps([["a,b", "c"]])), [["a,b", "c"]])
""",
    },
    fix={
        "table/reader.py": (
            (
                "    return [_row(line) for line in text.splitlines()]\n\n\ndef _row(line):\n"
                '    cells, cell, quoted = [], "", False\n    for character in line:\n'
                "        if character == '\"':\n            quoted = not quoted\n",
                '    rows, cells, cell, quoted, before = [], [], "", False, ""\n'
                "    for character in text:\n"
                "        if character == '\"':\n"
                "            if not quoted and before == '\"':\n"
                "                cell += character\n"
                "            quoted = not quoted\n"
                '        elif character == "\\n" and not quoted:\n'
                "            rows.append([*cells, cell])\n"
                '            cells, cell = [], ""\n',
            ),
            (
                "            cell += character\n    return [*cells, cell]\n",
                "            cell += character\n        before = character\n"
                "    return [*rows, [*cells, cell]] if cells or cell else rows\n",
            ),
        ),
        "table/writer.py": (
            (
                "        return f'\"{text}\"'\n",
                "        return '\"' + text.replace('\"', '\"\"') + '\"'\n",
            ),
        ),
    },
    fixed_tests={
        "tests/test_table.py": (
            (
                "    def test_comma(self):\n",
                "    def test_quotes(self):\n"
                "        rows = [['a', 'say \"hi\"'], ['\"', '']]\n"
                "        self.assertEqual(table.loads(table.dumps(rows)), rows)\n\n"
                "    def test_doubled_quotes(self):\n"
                '        self.assertEqual(table.dumps([[\'"\']]), \'""""\\n\')\n\n'
                "    def test_line_break(self):\n"
                '        rows = [["a\\nb", "c"], ["d", "e"]]\n'
                "        self.assertEqual(table.loads(table.dumps(rows)), rows)\n\n"
                "    def test_comma(self):\n",
            ),
        ),
    },
    fail_to_pass=(
        "tests/test_table.py::TableTest::test_quotes",
        "tests/test_table.py::TableTest::test_doubled_quotes",
        "tests/test_table.py::TableTest::test_line_break",
    ),
    pass_to_pass=(
        "tests/test_table.py::TableTest::test_plain",
        "tests/test_table.py::TableTest::test_comma",
    ),
)
