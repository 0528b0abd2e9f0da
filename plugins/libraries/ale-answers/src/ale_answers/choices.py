"""The letter of a multiple-choice answer in a model's text."""

import re

from ale_answers.extracted import Extracted, without_reasoning
from ale_answers.marked import boxed, hashes

_TEX_STYLE = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\b")
_PHRASE = (
    r"\b[Aa](?i:nswer)(?:\*\*)?\s?(?::|is\b:?|=)[\s*]{0,9}"
    r"(?:(?i:option|choice|letter|probably|clearly|definitely)\s)?[\s*\"'$]{0,9}"
)


def choice(text: str, letters: str = "ABCDE") -> Extracted | None:
    r"""The chosen letter, in upper case.

    In this order: in the last ``\boxed{}``, after the last ``####``, the last "the answer is B"
    or "answer: B", the only letter that stands alone on a line or begins one (``B.``, ``(B)``),
    the only one in parentheses or bold type, the only one that stands alone as a capital letter
    (``A`` only where no word follows: it may be the article). Where two different letters
    compete for a place, nothing is guessed.
    """
    answer = without_reasoning(text)
    one = f"[{re.escape(letters.upper())}{re.escape(letters.lower())}]"
    upper = f"[{re.escape(letters.upper())}]"
    for place in (boxed(text), hashes(text)):
        if place and (found := re.match(rf"\W*+({one})(?!\w)", _TEX_STYLE.sub("", place.text))):
            return Extracted(found[1].upper(), place.source)
    phrases = _after_phrase(answer, one, upper)
    if phrases:
        return Extracted(phrases[-1].upper(), 'the last "the answer is"')
    for pattern, source in (
        (rf"(?m)^[ \t(*\[]*+({upper})[ \t)*\].:]*+$", "the only letter on a line of its own"),
        (rf"(?m)^[ \t(*\[]*+({upper})[)*\].:]+\s", "the only letter that begins a line"),
        (rf"[(*\[]({upper})[)*\]]", "the only letter in parentheses or bold type"),
        (rf"(?<![\w'’])({upper})(?![\w'’])(?!(?<=A) \w)", "the only letter that stands alone"),
    ):
        letters_found = {found.upper() for found in re.findall(pattern, answer)}
        if letters_found:
            return _only(letters_found, source)
    return None


def _after_phrase(answer: str, one: str, upper: str) -> list[str]:
    """Letters after "answer is" or "answer:"; a lower-case one only in parentheses or at an end."""
    in_parentheses = rf"[(\[]({one})[)\]]"
    capital = rf"({upper})(?![\w'’])(?!(?<=A) [a-z])"
    at_the_end = rf"({one})(?=[ \t.*\"'$]{{0,9}}$)"
    pattern = rf"(?m){_PHRASE}(?:{in_parentheses}|{capital}|{at_the_end})"
    return [found[1] or found[2] or found[3] for found in re.finditer(pattern, answer)]


def _only(letters: set[str], source: str) -> Extracted | None:
    return Extracted(letters.pop(), source) if len(letters) == 1 else None
