"""The pages' examples are run as a reader would: block by block, in a folder of their own.

On a page, a ``{code-block}`` with a caption is a file of that name; one in bash is typed; one in
text is what the shell block before it must have printed: its lines in that order, each somewhere in
a line of the output; ``...`` stands for lines in between. All of a page becomes one script, so that
`cd` and variables last. A comment before a block, which no reader sees, says that it is not run and
why, what is run instead, or that the numbers of an output are those of another machine or a longer
run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import evolve, frozen

from ale.testing.builders import episode

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial" / "plugin.md"
_BLOCK = re.compile(
    r"^(?:<!-- (not run|instead|numbers vary): ([^\n]*) -->\n)?"
    r"```\{code-block\} (\w+)\n((?::[^\n]*\n)?)\n?(.*?)^```$",
    re.M | re.S,
)
_MARK = "::::: block "
PATIENCE_S = 600.0


@frozen
class Block:
    """One block of a page."""

    language: str
    caption: str | None
    text: str
    run: bool = True
    """False where the page says, to us alone, that it can't be run here."""
    exact: bool = True
    """False where the numbers of an output are not compared."""


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(
            language=match[3],
            caption=match[4].removeprefix(":caption: ").strip() or None,
            text=f"{match[2]}\n" if match[1] == "instead" else match[5],
            run=match[1] != "not run",
            exact=match[1] != "numbers vary",
        )
        for match in _BLOCK.finditer(page)
    ]


def script(page: Sequence[Block]) -> str:
    """One shell script that does what the page says, and names each block that it begins."""
    ending = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"  # of what a page has left running
    return f"set -e\n{ending}" + "".join(_lines(page))


def _lines(page: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(page):
        yield f"echo '{_MARK}{number}'\n"
        if not block.run:
            continue
        if block.caption is not None:
            yield f"mkdir -p {Path(block.caption).parent}\n"
            yield f"cat > {block.caption} <<'END OF FILE'\n{block.text}END OF FILE\n"
        elif block.language == "bash":
            yield block.text


def outputs(printed: str) -> Mapping[int, str]:
    """What each block printed."""
    parts = re.split(rf"^{re.escape(_MARK)}(\d+)\n", printed, flags=re.M)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def missing(expected: str, printed: str, *, exact: bool = True) -> str | None:
    """The first expected line that was not printed, or None."""
    lines = (_comparable(line, exact) for line in printed.splitlines())
    for wanted in expected.splitlines():
        sought = _comparable(wanted, exact)
        if sought != "..." and not any(sought in line for line in lines):
            return wanted
    return None


def _comparable(line: str, exact: bool) -> str:
    """A line in which columns are one space apart, and runs are named without their time."""
    spaced = re.sub(r"\b\d{8}-\d{6}-\w{4}-", "(when)-", " ".join(line.split()))
    return spaced if exact else re.sub(r"[0-9]+(\.[0-9]+)?( ms| s\b)?", "0", spaced)


def follow(path: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Do what a page says and hold it to what it shows."""
    page = blocks(path.read_text())
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
    )
    printed = outputs(done.stdout)
    last = max(printed)
    assert done.returncode == 0, f"block {last} failed:\n{page[last].text}\n{printed[last]}"
    for number, block in enumerate(page):
        if block.language == "text":
            line = missing(block.text, printed[number - 1], exact=block.exact)
            assert line is None, f"block {number}: {line!r} is not in\n{printed[number - 1]}"


def runnable() -> list[Path]:
    """The pages with something to type, but for the tutorial that installs packages."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
    return [path for path in pages if path != TUTORIAL and "} bash\n" in path.read_text()]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a page finds of the repository. The basic tasks alone, so that runs are short."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "configs", folder / "configs")
    shutil.copytree(ROOT / "tasks" / "tbp_examples", folder / "tasks" / "tbp_examples")
    commands = folder / ".nox" / "demo" / "bin"
    commands.mkdir(parents=True)
    (commands / "ale").symlink_to(Path(sys.executable).with_name("ale"))
    (commands / "activate").write_text("")
    return folder


def _page(path: Path) -> Any:
    """A page, and whether it is left out without torch, where it trains a policy, or pandas."""
    text = path.read_text()
    trains = re.search(r"configs/(quickstart|code_rewards|distillation|prm_toy)", text)
    needs = [pytest.mark.needs("torch")] * bool(trains)
    needs += [pytest.mark.needs("tinker", "torch")] * ("ale_tinker.testing" in text)
    needs += [pytest.mark.needs("pandas", "pyarrow")] * ("to_pandas" in text)
    return pytest.param(path, id=str(path.relative_to(DOCS)), marks=needs)


@pytest.mark.parametrize("path", [_page(path) for path in runnable()])
def test_every_block_of_a_page_does_what_it_says(path: Path, clone: Path, tmp_path: Path) -> None:
    follow(path, clone, surroundings(tmp_path))


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a reader."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "OMP_NUM_THREADS": "1",
    }


def test_the_pages_with_something_to_type_are_found() -> None:
    names = {str(path.relative_to(DOCS)) for path in runnable()}
    assert {"tutorial/first-run.md", "how-to/replay.md", "reference/config.md"} < names
    assert len(names) >= 12


@pytest.mark.parametrize("folder", ["tutorial", "how-to"])
def test_every_block_to_type_is_run(folder: str) -> None:
    for path in sorted((DOCS / folder).glob("*.md")):
        text = path.read_text()
        bare = re.findall(r"^```(?:bash|sh|shell|console|python)\b", text, re.M)
        assert not bare, f"{path.name}: {bare[0]} is run by nobody; write {{code-block}}"
        assert len(blocks(text)) == text.count("\n```{code-block}"), path.name


def test_the_page_about_reading_a_run_counts_each_training_episode_once(tmp_path: Path) -> None:
    """Its first program, of a run with repeated and unfinished lines, and evaluations."""
    page = blocks((DOCS / "how-to" / "read-a-run.md").read_text())
    (program,) = [block.text for block in page if block.caption == "rewards.py"]
    rows = [
        episode(0.0),
        episode(1.0),  # of two lines of one episode the last counts
        episode(0.5, rollout=1),
        episode(None, rollout=2),
        evolve(episode(0.0, episode_id="evaluation-0-demo-0"), split="evaluation"),
        evolve(episode(0.0, episode_id="0-demo@expert-0"), start="expert"),
    ]
    whole = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    (tmp_path / "episodes.jsonl").write_bytes(whole + b'{"id": "0-demo-3", "rew')
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("demo: 0.750 over 2\n", "")


def test_the_page_of_the_run_directory_documents_every_file_and_key(
    clone: Path, tmp_path: Path
) -> None:
    command = ["ale", "run", "configs/oracle.yaml"]
    subprocess.run(command, cwd=clone, env=surroundings(tmp_path), check=True, capture_output=True)
    (run,) = (clone / "runs").iterdir()
    page = (DOCS / "reference" / "run-directory.md").read_text()
    manifest = json.loads((run / "manifest.json").read_text())
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert {"versions", "outcome"} < manifest.keys()
    assert len(events) >= 2
    names = {*manifest, *manifest["outcome"], *manifest["host"], manifest["outcome"]["outcome"]}
    names |= {event["event"] for event in events}.union(*events)
    unsaid = {name for name in names if f"`{name}`" not in page}
    assert not unsaid
    files = {"credits/<step>.jsonl" if p.is_dir() else p.name for p in run.iterdir()}
    assert ".lock" in files
    assert not {name for name in files if f"| `{name}` |" not in page}


def local_packages(names: Sequence[str]) -> dict[str, Path]:
    """The folders of these packages and of all that they need of this repository."""
    found: dict[str, Path] = {}
    for name in names:
        places = [ROOT / "core"] if name == "ale-core" else ROOT.glob(f"plugins/*/{name}")
        for folder in places:
            project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
            needs = [re.split(r"[^A-Za-z0-9-]", line)[0] for line in project["dependencies"]]
            found |= {name: folder, **local_packages([need for need in needs if need != name])}
    return found


@pytest.fixture
def published(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which pip finds the packages of this repository as if published."""
    named = sorted(set(re.findall(r"ale-[a-z-]+[a-z]", TUTORIAL.read_text())))
    packages = local_packages(named)
    wheels, builder = tmp_path / "wheels", tmp_path / "builder"
    subprocess.run([sys.executable, "-m", "venv", builder], check=True)
    pip = [builder / "bin" / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels]
    subprocess.run([*pip, *packages.values()], check=True)
    pinned = tmp_path / "pinned.txt"
    names = [wheel.name.split("-")[:2] for wheel in sorted(wheels.iterdir())]
    pinned.write_text("".join(f"{name}=={version}\n" for name, version in names))
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}:{inherited['PATH']}",
        "PIP_CONSTRAINT": str(pinned),
        "PIP_FIND_LINKS": f"{wheels} {inherited.get('PIP_FIND_LINKS', '')}",
    }


@pytest.mark.long
def test_every_block_of_the_plugin_tutorial_does_what_it_says(
    tmp_path: Path, published: Mapping[str, str]
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    follow(TUTORIAL, folder, published)


def test_the_plugin_tutorial_is_read_whole() -> None:
    page = blocks(TUTORIAL.read_text())
    assert len(page) == TUTORIAL.read_text().count("\n```{code-block}")
    assert [block.language for block in page].count("text") >= 4
    assert page[0].text.startswith("@ale.criterion")
    assert page[1].text.endswith("export PIP_FIND_LINKS=CLONE/dist\n")
    assert page[2].text.startswith("python3 -m venv")
    assert [block.caption for block in page if block.language == "yaml"] == [
        "try/tasks/report-good.yaml",
        "try/tasks/report-bad.yaml",
        "try/run.yaml",
    ]


def test_a_line_that_was_not_printed_is_missed() -> None:
    assert missing("a\n...\nc", "0 a\nb\nc 1") is None
    assert missing("c\na", "a\nb\nc") == "a"
    assert missing("", "") is None
    assert missing("after 2 s", "after 31 s") == "after 2 s"
    assert missing("after 2.1 s", "after 310 ms", exact=False) is None
    assert missing("after 2 s", "before 31 s", exact=False) == "after 2 s"


def test_a_comment_before_a_block_says_what_becomes_of_it() -> None:
    page = blocks(
        "<!-- not run: needs a model -->\n```{code-block} bash\nale run\n```\n"
        "<!-- instead: true -->\n```{code-block} bash\nfalse\n```\n"
        "```{code-block} text\n:caption: a/b\n\nc\n```\n"
    )
    assert [(block.run, block.text) for block in page] == [
        (False, "ale run\n"),
        (True, "true\n"),
        (True, "c\n"),
    ]
    assert "ale run" not in script(page)
    assert "cat > a/b" in script(page)
