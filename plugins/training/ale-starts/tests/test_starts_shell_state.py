"""What a shell holds, read and given to another one: real shells in a real folder."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ale.testing.fakes import FolderSandbox
from ale_starts.restoring.shell_state import Change, UnknownStateError, read


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[FolderSandbox]:
    folder = FolderSandbox(tmp_path)
    yield folder
    await folder.close()


async def changed(box: FolderSandbox, commands: Sequence[str]) -> Change:
    session = await box.session()
    fresh = await read(session, 60)
    for command in commands:
        await session.run(command)
    return (await read(session, 60)).since(fresh)


async def given(box: FolderSandbox, change: Change) -> Change:
    """What the other shell has become, by the same measure."""
    return await changed(box, [change.script])


@pytest.mark.parametrize(
    "commands",
    [
        ["x=1"],
        ["export X='a\nb' Y=; declare -i n=4; declare -r fixed=5; declare -x IFS=:"],
        ["a=(0 'b c' '\"'); declare -A m=([k]='v w' [' ']=1); a[7]=x"],
        ["unset HOME; unset IFS; PATH=/bin:$PATH"],
        ["f() { echo \"$1\"; }; g-h() { f '}'; }; export -f f"],
        ["alias l='ls -l'; shopt -s expand_aliases"],
        ["mkdir -p 'a b/c'; cd 'a b/c'; cd .."],
        ["set -- p 'q r' ''; umask 077"],
        ["set -o pipefail -o noclobber; shopt -s nullglob extglob"],
        ["set -u"],
        ["set -f; set +B"],
        ["printf() { echo no; }; declare() { echo no; }; cd() { echo no; }; read() { :; }; x=1"],
        ["x=$'\\x01\\t\\e[0m é \\xff'"],
        ["set -e; x=1"],
        [],
    ],
    ids=str,
)
async def test_what_commands_did_to_a_shell_can_be_done_to_another(
    box: FolderSandbox, commands: Sequence[str]
) -> None:
    change = await changed(box, commands)
    assert bool(change.changed or change.removed) == bool(commands)
    assert (await given(box, change)).differs(change) == ""


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("trap 'echo bye' EXIT", "traps"),
        ("exec 5</dev/null", "descriptors"),
        ("pushd / >/dev/null", "folders"),
        ("ulimit -n 64", "limits"),
        ("enable -n type", "disabled"),
        ("mkdir d; cd d; rmdir ../d", "folder"),
    ],
)
async def test_what_shell_code_can_not_give_another_shell_is_named(
    box: FolderSandbox, command: str, part: str
) -> None:
    change = await changed(box, [command])
    assert (await given(box, change)).differs(change) == part


async def test_a_shell_does_not_notice_that_it_is_read(box: FolderSandbox) -> None:
    session = await box.session()
    await session.run("set -- one two; x=3; f() { return 7; }")
    first = await read(session, 60)
    shown = await session.run('echo "$# $x"; compgen -v | grep ale; compgen -A function')
    assert shown.stdout == b"2 3\nf\n"
    assert (await read(session, 60)).since(first) == Change(changed={}, removed=frozenset())


async def test_an_option_that_ends_a_shell_at_errors_does_not_end_it_here(
    box: FolderSandbox,
) -> None:
    session = await box.session()
    await session.run("set -euo pipefail")
    await read(session, 60)
    assert (await session.run("echo on")).stdout == b"on\n"


async def test_a_shell_other_than_bash_is_refused_and_still_works(box: FolderSandbox) -> None:
    session = await box.session()
    await session.run("BASH_VERSION=")
    with pytest.raises(UnknownStateError, match="not bash"):
        await read(session, 60)
    assert (await session.run("echo on")).stdout == b"on\n"
