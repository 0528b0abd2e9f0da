"""Which task a session is of, where nobody has named it."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from ale.types import Message, Task, ToolSpec, replace

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(?P<name>(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\s+)?"
_TIME = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s*[ap]\.?m\.?)?"
    r"(?:\s*(?:z|utc|gmt|[a-z]{2,4}t)\b)?(?:\s*[+-]\d{2}:?\d{2})?"
)
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<!\d){_WEEKDAY}(?P<year>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}})(?!\d)(?:t(?=\d))?",
        rf"\b{_WEEKDAY}{_MONTH}\s+{_DAY},?\s+(?:{_TIME}\s+)?(?P<year>\d{{4}})\b",
        rf"\b{_WEEKDAY}{_DAY}\s+(?:of\s+)?{_MONTH},?\s+(?P<year>\d{{4}})\b",
        r"(?<!\d)(?P<one>\d{1,2})[/.](?P<other>\d{1,2})[/.](?P<year>\d{4})(?!\d)",
    )
)
_TIMES = re.compile(rf"(?<!\d){_TIME}", re.IGNORECASE)
_SECONDS = re.compile(r"(?<![\d.])\d{10}(?:\d{3})?(?!\d)")
_NOW = re.compile(r"\b(?:now|current(?:ly)?|clock|today)\b", re.IGNORECASE)
_CLOCK = "<clock>"


def task_of(
    task_id: str | None,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    form: Mapping[str, Any] | None = None,
    began: datetime | None = None,
) -> Task:
    """The task of a session, with the first message of its user as the goal.

    Args:
        task_id: as the agent names it; default: made of all that the model is given at first, so
            that sessions that begin in the same way are of one task.
        messages: the conversation of the first request, and `tools` and the `form` of its answer.
        began: when, for what is a clock; default: now.
    """
    goal = next((message.content for message in messages if message.role == "user"), "")
    given = [_timeless(message, began or datetime.now(UTC)) for message in messages]
    if task_id is None:
        content = msgspec.json.encode([given, tools, form or {}], order="sorted")
        task_id = f"task-{hashlib.sha256(content).hexdigest()[:12]}"
    return Task(id=task_id, goal=goal, origin="ale proxy")


def task_id_of(goal: str) -> str:
    """The id of a task of which there is a goal alone."""
    return f"task-{hashlib.sha256(goal.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _timeless(message: Message, now: datetime) -> Message:
    if message.role != "system":
        return message  # a user's date is part of what is asked
    return replace(message, content=without_clock(message.content, now))


def without_clock(text: str, now: datetime) -> str:
    """A system prompt without its clock: what it says of the present is no part of the task.

    A clock is a date within a day of `now` (clocks are local), seconds since 1970 within a day of
    it, a time of day in the same line as one of these, or in a line that has the word now, current,
    clock or today. All other dates and times stay.
    """
    return "\n".join(_line(line, now) for line in text.split("\n"))


def _line(line: str, now: datetime) -> str:
    found = line
    for pattern in _DATES:
        found = pattern.sub(lambda each: _CLOCK if _is_present(each, now) else each[0], found)
    found = _SECONDS.sub(lambda each: _CLOCK if _is_second(each[0], now) else each[0], found)
    return _TIMES.sub(_CLOCK, found) if _CLOCK in found or _NOW.search(found) else found


def _is_present(found: re.Match[str], now: datetime) -> bool:
    return any(abs(day - now.date()) <= timedelta(days=1) for day in _days(found.groupdict()))


def _days(parts: Mapping[str, str]) -> Iterator[date]:
    """The dates that this may be: which number is the month differs by country."""
    if "one" in parts:
        pairs = [(parts["one"], parts["other"]), (parts["other"], parts["one"])]
    elif "name" in parts:
        pairs = [(str(1 + _MONTHS.index(parts["name"][:3].lower())), parts["day"])]
    else:
        pairs = [(parts["month"], parts["day"])]
    for month, day in pairs:
        try:
            yield date(int(parts["year"]), int(month), int(day))
        except ValueError:
            continue


def _is_second(text: str, now: datetime) -> bool:
    seconds = int(text) / (1000 if len(text) == 13 else 1)
    return abs(seconds - now.timestamp()) <= 86400
