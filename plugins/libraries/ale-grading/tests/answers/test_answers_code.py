"""Code in a model's text."""

import pytest

from ale_grading.answers import Extracted, answer_code, code, code_blocks

REPLY = """First a sketch:

```python
def f(): ...
```

Then:

```python
def f():
    return 1
```

It prints

```
1
```
"""


def test_the_last_block_of_python_is_preferred_to_a_later_one_without_a_tag() -> None:
    assert code(REPLY) == Extracted(
        "def f():\n    return 1", "the last code block tagged python (lines 9 to 12)"
    )


@pytest.mark.parametrize("tag", ["python", "Python", "py", "python3", " python", "python title=x"])
def test_tags_are_read_as_people_write_them(tag: str) -> None:
    found = code(f"```{tag}\nx = 1\n```\n```text\n1\n```")
    assert found is not None
    assert found.text == "x = 1"


def test_without_a_tagged_block_the_last_one_without_a_tag_is_taken() -> None:
    assert code("```\nx = 1\n```\n\n```\nx = 2\n```") == Extracted(
        "x = 2", "the last code block without a tag (lines 5 to 7)"
    )


def test_a_block_in_another_language_is_not_taken() -> None:
    assert code("```bash\nls\n```") is None
    assert code("```bash\nls\n```", tags=["bash"]) is not None


def test_a_block_without_its_closing_fence_ends_with_the_text_or_the_next_tagged_fence() -> None:
    assert code("Here:\n```python\nx = 1\ny = 2") == Extracted(
        "x = 1\ny = 2", "the last code block tagged python (lines 2 to 4, no closing fence)"
    )
    blocks = code_blocks("```python\nx = 1\n```bash\nls\n```\n")
    assert [(block.tag, block.text, block.closed) for block in blocks] == [
        ("python", "x = 1", False),
        ("bash", "ls", True),
    ]


def test_a_fence_in_a_docstring_does_not_end_the_block() -> None:
    inner = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n    return 1'
    assert [block.text for block in code_blocks(f"```python\n{inner}\n```")] == [inner]
    longer = "x = '''\n```\n'''"
    assert [block.text for block in code_blocks(f"````python\n{longer}\n````")] == [longer]


def test_the_indentation_of_the_fence_is_removed() -> None:
    found = code("1. So:\n\n   ```python\n   def f():\n       return 1\n   ```\n")
    assert found is not None
    assert found.text == "def f():\n    return 1"


def test_lines_end_only_where_the_code_has_a_line_break() -> None:
    found = code("```python\r\nx = 'a\x0cb\u2028c'\r\n```")
    assert found is not None
    assert found.text == "x = 'a\x0cb\u2028c'"


def test_blank_blocks_do_not_count() -> None:
    assert code_blocks("```python\n\n```\n~~~\n~~~") == ()


@pytest.mark.parametrize(
    "text",
    ["def f():\n    return 1", "    return 1\n", "    x = 1\n    return x", "import os", "f(1)"],
)
def test_a_text_that_is_only_code_is_taken_whole(text: str) -> None:
    assert code(text) == Extracted(
        text.strip("\n"), "the whole message, which is code without a fence"
    )


@pytest.mark.parametrize(
    "text", ["", "Sure", "42", "I can't.", "yes, no", "\x00", "(" * 10_000, "-" * 200_000 + "1"]
)
def test_prose_is_not_code(text: str) -> None:
    assert code(text) is None


def test_code_with_odd_escapes_is_parsed_without_a_warning() -> None:
    assert code(r"x = '\d'") is not None


def test_code_in_the_reasoning_is_not_the_answer() -> None:
    assert code("<think>\n```python\nx = 1\n```\n</think>\nI don't know.") is None


def test_the_answer_is_in_the_last_message_that_has_code() -> None:
    assert answer_code(["```python\nx = 1\n```", "```python\nx = 2\n```", "Done."]) == Extracted(
        "x = 2", "the last code block tagged python (lines 1 to 3) of message 2 of 3"
    )
    assert answer_code(["Hello.", "Done."]) is None
    assert answer_code([]) is None
