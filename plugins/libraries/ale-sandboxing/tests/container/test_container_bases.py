"""Which images a Dockerfile begins with."""

from ale_sandboxing.container.images import bases_of


def test_stages_of_the_file_itself_are_no_base_images() -> None:
    text = "FROM --platform=linux/amd64 a:1 AS one\nfrom b\nFROM One\nFROM scratch\nRUN FROM x\n"
    assert bases_of(text) == ["a:1", "b"]


def test_an_image_that_an_argument_names_is_not_known() -> None:
    assert bases_of("ARG BASE=x\nFROM ${BASE}\nFROM $BASE AS y\n") == []
