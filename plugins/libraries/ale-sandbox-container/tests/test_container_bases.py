"""Which images a Dockerfile begins with."""

import pytest

from ale_sandbox_container.images import bases_of, wants_buildkit


def test_stages_of_the_file_itself_are_no_base_images() -> None:
    text = "FROM --platform=linux/amd64 a:1 AS one\nfrom b\nFROM One\nFROM scratch\nRUN FROM x\n"
    assert bases_of(text) == ["a:1", "b"]


def test_an_image_that_an_argument_names_is_not_known() -> None:
    assert bases_of("ARG BASE=x\nFROM ${BASE}\nFROM $BASE AS y\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "RUN --mount=type=cache,target=/c make",
        "RUN <<EOF",
        'RUN python3 - <<"EOF"',
        "COPY --from=a --chmod=755 x /x",
        "ADD --link x /x",
        "COPY <<-END /x",
    ],
)
def test_what_only_buildkit_knows_is_seen(line: str) -> None:
    assert wants_buildkit(f"FROM a\n{line}\n")


@pytest.mark.parametrize(
    "line",
    ["RUN make", "COPY --from=a --chown=b x /x", "# RUN <<EOF", "RUN a <b 1<<2", "ENV A=<<B"],
)
def test_what_every_builder_knows_is_not(line: str) -> None:
    assert not wants_buildkit(f"FROM a\n{line}\n")
