"""What a build sees, and that its digest depends on that alone."""

from pathlib import Path

import pytest

from ale_sandboxing.container.context import digest_of, seen


@pytest.mark.parametrize(
    ("text", "ignored", "kept"),
    [
        ("a", ["a", "a/b"], ["b/a", "ab"]),
        ("/a/", ["a", "a/b/c"], ["b"]),
        ("*.md", ["x.md"], ["d/x.md", "x.mdx"]),
        ("**/*.md", ["x.md", "d/e/x.md"], ["x.mdx"]),
        ("d/**", ["d/e", "d/e/f"], ["e"]),
        ("*.md\n!README.md", ["x.md"], ["README.md"]),
        ("d\n!d/kept", ["d/x"], ["d/kept"]),
        ("d\n!d/*.md", [], ["d/x.md", "d/x"]),
        ("?.[ch]\n# a\n\n", ["a.c", "b.h"], ["ab.c", "a.o", "a"]),
        ("*", ["x", "d/x"], ["Dockerfile", "Containerfile", ".dockerignore"]),
        (".", [], ["x"]),
    ],
)
def test_a_line_leaves_out_what_it_names(
    tmp_path: Path, text: str, ignored: list[str], kept: list[str]
) -> None:
    (tmp_path / ".dockerignore").write_text(text)
    for name in (*ignored, *kept):
        if name != ".dockerignore":
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
    left = {str(path.relative_to(tmp_path)) for path in seen(tmp_path)}
    assert [name for name in (*ignored, *kept) if name not in left] == ignored


def test_the_digest_is_that_of_what_the_build_sees(tmp_path: Path) -> None:
    def written(name: str, text: str) -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return digest_of(tmp_path)

    written("Dockerfile", "FROM a\n")
    first = written(".dockerignore", "notes\n!notes/kept\n")
    assert written("notes/one", "a") == first
    second = digest_of(tmp_path)
    assert written("notes/one", "b") == second
    assert written("notes/kept", "a") != second
    third = digest_of(tmp_path)
    assert digest_of(tmp_path, whole=True) != third
    assert written(".gitignore", "code\n") != third, "it is a file like any other"
    fourth = digest_of(tmp_path)
    assert written("code", "a") != fourth, "and what it names is seen"
    fifth = digest_of(tmp_path)
    assert written("Dockerfile", "FROM b\n") != fifth
    written("Dockerfile", "FROM a\n")
    (tmp_path / "code").chmod(0o755)
    assert digest_of(tmp_path) != fifth
    seventh = written("Dockerfile.dockerignore", "")
    assert written("notes/one", "c") != seventh, "a builder may read that one instead"
