"""Which Dockerfiles need BuildKit."""

import pytest

from ale_sandbox_docker.engine import wants_buildkit


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
