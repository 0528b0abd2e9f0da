"""The letter of a multiple-choice answer in a model's text."""

import re

from ale_grading.answers.claims import Candidate, corrected, standing
from ale_grading.answers.extracted import Extracted, without_reasoning
from ale_grading.answers.marked import boxed, hashes

_TEX_STYLE = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\b")
_PHRASE = (
    r"(?:\b[Aa](?i:nswer|ntwort)(?:\*\*|__)?\s?(?::|is\b:?|ist\b:?|=)"
    r"|(?:答え|正解|解答|答案|回答)\s?(?:は|是|为|為)?[:\s]*)"
)
_FILLER = (
    r"(?i:not|option|choice|letter|probably|clearly|definitely|therefore|either|both|neither|answer)"
    r"\s[\s*\"'$(\[]*"
)
_SENTENCE_END = re.compile(r"(?<=\S)(?:[.!?](?=\s|$)|\n|。)")
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Wide letters, digits and marks of Chinese and Japanese, as the usual ones."""
_EAST = r"[\u3040-\u30ff\u3400-\u9fff]"
_BESIDE = re.compile(rf"(?<={_EAST})(?=[A-Za-z])|(?<=[A-Za-z])(?={_EAST})")
_DENIED = re.compile(
    r"[A-Za-z](?=\s?(?:では?な|じゃな|は(?:間違|誤|不正|違)|不对|不正确|不是|是错|错))"
    r"|(?<=不是) ?[A-Za-z]|(?<=不选) ?[A-Za-z]|(?<=并非) ?[A-Za-z]"
)
_NAMES = (
    *("vitamin", "vitamins", "hepatitis", "plan", "group", "type", "grade", "class", "team"),
    *("room", "section", "part", "point", "points", "figure", "fig", "table", "appendix", "level"),
    *("phase", "set", "matrix", "event", "circle", "angle", "line", "let", "person", "student"),
    *("company", "country", "city", "box", "bag", "train", "machine", "compound", "substance"),
)
_NAMED = re.compile(rf"\b(?:{'|'.join(_NAMES)})\.?\s$", re.IGNORECASE)
"""A word before a letter that is then a name: vitamin B, plan B."""
_LONGEST = 300
_JOINED = re.compile(
    r"[)\]*}$\"'\s]*(?:,|/|&|(?:,\s*)?\b(?:or|and|nor)\b|\\?(?:text)?\{?\s*\b(?:or|and)\b\s*\}?)"
    r"[\s(\[*{$\"'\\]*"
)


def choice(text: str, letters: str = "ABCDE") -> Extracted | None:
    r"""The chosen letter, in upper case.

    In this order: in the last ``\boxed{}``, after the last ``####``, the last "the answer is B"
    or "answer: B", the letter that is the whole text, the only letter that stands alone on a line
    or begins one (``B.``, ``(B)``), the only one in parentheses or bold type, the only one that
    stands alone as a capital letter (``A`` only where no word follows: it may be the article).
    Letters that the text denies ("not B", "A is wrong") don't count. Where two different letters
    compete for a place, nothing is guessed. A letter that names something (``vitamin B``) is none
    that stands alone.
    """
    answer = corrected(without_reasoning(text)).translate(_WIDE)
    answer = _DENIED.sub("", _BESIDE.sub(" ", answer))
    one = f"[{re.escape(letters.upper())}{re.escape(letters.lower())}]"
    upper = f"[{re.escape(letters.upper())}]"
    for place in (boxed(answer), hashes(answer)):
        if place and (found := re.match(rf"\W*+({one})(?!\w)", _TEX_STYLE.sub("", place.text))):
            alone = _joined(place.text, rf"(?<!\w)({one})(?!\w)")
            return _only({found[1].upper(), *alone}, place.source)
    phrases = reversed(list(re.finditer(_PHRASE, answer)))
    after = next(filter(None, (_letters_in(each, answer, upper, one) for each in phrases)), None)
    if after:
        return _only(after, 'the last "the answer is"')
    if whole := re.fullmatch(rf"\W*+({one})\W*+", answer):
        return Extracted(whole[1].upper(), "the only letter of the text")
    for pattern, source in (
        (rf"(?m)^[ \t(*\[]*+({upper})[ \t)*\].:]*+$", "the only letter on a line of its own"),
        (rf"(?m)^[ \t(*\[]*+({upper})[)*\].:]+\s", "the only letter that begins a line"),
        (rf"[(*\[]({upper})[)*\]]", "the only letter in parentheses or bold type"),
        (_alone(upper), "the only letter that stands alone"),
    ):
        found_here = _candidates(answer, pattern)
        found_here = [each for each in found_here if not _NAMED.search(answer[: each.begin])]
        letters_found = {str(each.value) for each in standing(answer, found_here)}
        if letters_found:
            return _only(letters_found, source)
        if found_here:  # all of them denied
            return None
    return None


def _alone(upper: str) -> str:
    """A capital letter that stands alone; ``A`` before a word is the article."""
    return rf"(?<![\w'’])({upper})(?![\w'’])(?!(?<=A) (?!(?:or|and|nor|is|isn't|are)\b)[a-zA-Z])"


def _candidates(text: str, pattern: str) -> list[Candidate]:
    return [
        Candidate(found[1].upper(), found[1], found.start(1), found.end(1))
        for found in re.finditer(pattern, text)
    ]


def _joined(text: str, pattern: str) -> set[str]:
    """The letters that "or", "and" or a comma joins to the first one of a marked answer."""
    found = standing(text, _candidates(text, pattern))
    taken = found[:1]
    for each in found[1:]:
        if not _JOINED.fullmatch(text[taken[-1].end : each.begin]):
            break
        taken.append(each)
    return {str(each.value) for each in taken}


def _letters_in(match: re.Match[str], answer: str, upper: str, one: str) -> set[str]:
    """The letters of a sentence with "the answer is", as far as they compete; a lower-case one only
    in parentheses or at the end.
    """
    rest = _SENTENCE_END.split(answer[match.end() : match.end() + _LONGEST], maxsplit=1)[0]
    rest = rest if rest.strip() else answer[match.end() : match.end() + _LONGEST].lstrip("\n")
    first = re.match(
        rf"[\s*\"'$(\[\\{{]*+(?:{_FILLER})*+(?:[(\[\"'$*]*({one})[)\]]|{_alone(upper)}"
        rf"|({one})(?=[ \t.*\"'$]{{0,9}}$))",
        _TEX_STYLE.sub("", rest),
    )
    if first is None:
        return set()
    letter = (first[1] or first[2] or first[3]).upper()
    rest = _TEX_STYLE.sub("", rest)
    found = _candidates(rest, _alone(upper))
    left = [each for each in standing(rest, found) if each.value != letter]
    own = [each for each in found if each.value == letter]
    if own and not standing(rest, own[:1]):
        return {str(left[0].value)} if left else set()
    return {letter} | _joined(rest, _alone(upper)) if found else {letter}


def _only(letters: set[str], source: str) -> Extracted | None:
    return Extracted(letters.pop(), source) if len(letters) == 1 else None
