"""The options that models share, and the key that one names."""

import pytest

from ale.errors import InputError
from ale.plugin import Secret
from ale_openai_wire import ChatOptions, key_from


def test_a_longest_wait_below_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match="'retry_max_s' is less than 'retry_min_s'"):
        ChatOptions(retry_min_s=2.0, retry_max_s=1.0)


def test_a_key_is_read_from_its_variable_without_the_blanks_around_it() -> None:
    assert key_from("KEY", {"KEY": " s3cret\n"}) == Secret("s3cret")
    assert key_from(None, {"KEY": "s3cret"}) is None


def test_the_option_that_names_the_variable_is_in_the_problem() -> None:
    with pytest.raises(InputError, match=r"^--key-env: the environment variable KEY is not set"):
        key_from("KEY", {}, path="--key-env")


@pytest.mark.parametrize("environ", [{}, {"KEY": " "}])
def test_a_key_that_is_not_there_is_a_problem_of_the_config(environ: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        key_from("KEY", environ, otherwise=", or leave it out")
    (problem,) = caught.value.problems
    assert problem.path == "llm.api_key_env"
    assert problem.message == "the environment variable KEY is not set"
    assert problem.hint == "export KEY=..., or leave it out"


@pytest.mark.parametrize("key", ["clé", "a\nb", "a\x00b", "\N{LEFT DOUBLE QUOTATION MARK}key"])
def test_a_key_that_no_header_can_have_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InputError) as refused:
        key_from("KEY", {"KEY": key})
    (problem,) = refused.value.problems
    assert (problem.path, problem.expected) == ("llm.api_key_env", "printable ASCII characters")
    assert key not in str(refused.value)
