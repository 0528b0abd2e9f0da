"""Renders templates of its own."""

import subprocess
import tempfile
from pathlib import Path


def render(template: str, values: str) -> tuple[str, str, int]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "my template", Path(folder) / "my values"]
        for path, content in zip(paths, (template, values), strict=True):
            path.write_text(content)
        done = subprocess.run(
            ["sh", "render.sh", *map(str, paths)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return done.stdout, done.stderr, done.returncode


def test_names_are_replaced() -> None:
    assert render("{{A}}-{{b_2}}{{A}}\n", "A=1\nb_2=two words\n") == ("1-two words1\n", "", 0)


def test_values_are_literal() -> None:
    values = ["a&b", "c\\1\\n", "/x/y", "$HOME `id`", "{{A}}", "=x=", "'q' \"r\"", " padded "]
    for value in values:
        assert render("[{{V}}]\n", f"A=wrong\nV={value}\n") == (f"[{value}]\n", "", 0), value


def test_an_empty_value_and_the_last_of_two() -> None:
    assert render("[{{E}}][{{T}}]\n", "# note\n\nT=1\nE=\nT=2\n") == ("[][2]\n", "", 0)


def test_other_braces_stay() -> None:
    text = "{A} {{ A }} {{}} {{A-B}} {{{A}}} \\n % &\n"
    assert render(text, "A=1\n")[0] == "{A} {{ A }} {{}} {{A-B}} {1} \\n % &\n"


def test_every_line_is_kept() -> None:
    text = "".join(f"line {i}: {{{{N}}}}\n" for i in range(200)) + "\n\n"
    assert render(text, "N=x\n")[0] == text.replace("{{N}}", "x")


def test_a_name_without_a_value_is_an_error() -> None:
    assert render("a {{A}}\nb {{MISSING}} {{OTHER}}\n", "A=1\n") == (
        "",
        "no value for MISSING\n",
        1,
    )
