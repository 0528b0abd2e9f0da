"""Which used changes go beyond what the reference solution's pass has used.

A list of what tools read has an end. The reference solution has passed without any of it: so what a
later pass rests on besides work is worth a second look, whatever it is called. Work of another
shape must not be: it is told by the kinds of its files, as source code and data are read by what
names them, and by what the other files of the work name.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal

from attrs import frozen

from ale.errors import SandboxError
from ale.judging import loader, placed
from ale.protocols import Judge
from ale.types import CarriedChange

MOST_USED = 500
"""Paths that a score keeps of the files that were used."""
_MOST_READ = 100
"""Files that are searched for names of others."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SOURCE = _words(
    "py sh bash c h cc cpp cxx hh hpp inc rs go java kt scala rb pl pm php js mjs cjs ts mts jsx "
    "tsx vue svelte css scss less html htm sql r jl lua hs ml mli ex exs erl clj swift m mm cs fs "
    "vb dart zig nim d f f90 f95 asm s pas lisp el scm rkt tcl awk sed proto ipynb tex v sv vhd "
    "o a so class jar pyc wasm exe"
)
"""Suffixes of source code and of what is made of it."""
_DATA = _words(
    "txt md rst log out csv tsv dat bin db db-wal db-shm sqlite sqlite3 parquet npy npz pkl pickle "
    "pt onnx safetensors h5 png jpg jpeg gif svg bmp ico pdf wav mp3 mp4 ttf woff woff2 zip gz tgz "
    "tar xz bz2 zst pem key crt"
)
"""Suffixes of data in which tools look for no settings."""
_SETTINGS = _words(
    "setup.py noxfile.py fabfile.py conftest.py constraints.txt conanfile.txt conanfile.py "
    "CMakeLists.txt CMakePresets.json CMakeUserPresets.json meson_options.txt gulpfile.js "
    "Gruntfile.js package.json tsconfig.json jsconfig.json composer.json deno.json build.rs "
    "mix.exs spec_helper.rb tox.ini mypy.ini pytest.ini setup.cfg pyproject.toml ruff.toml uv.toml "
    "Cargo.toml clippy.toml rustfmt.toml pom.xml build.xml phpunit.xml pylintrc GNUmakefile "
    "makefile"
)
"""Names that tools look for, of files that their suffix, or others that name them, would make
work."""
_LIKE_SETTINGS = re.compile(
    r"(?:^|[_.-])(?:config|conf|settings?|setup|env|rc|local|hooks?|options|prefs|overrides?"
    r"|plugins?|workspace|custom|site|profile|defaults?)(?=$|[_.-])",
    re.IGNORECASE,
)
_TESTS = re.compile(
    r"(?:^|/)(?:(?:t|tests?|specs?|__tests__|__mocks__)/|(?:tests?|specs?)\.|test[_-]"
    r"|[^/]+[_.-](?:tests?|specs?)[./]|[^/]*[a-z0-9](?:Tests?|Spec)\.)"
)
"""Files and folders that runners of tests find by their names."""
_CHECKS = re.compile(
    r"(?:^|[/_.-])(?:run[_-]?tests?|check(?:er|s)?|verif(?:y|ier)|valid(?:ate|ator|ation)?"
    r"|grader?|judge|scor(?:e|er|ing)|lint|ci|expected|golden|fixtures?|answers?)(?=$|[/_.-])",
    re.IGNORECASE,
)
"""Names of files by which work is checked."""
_HIDDEN = re.compile(r"(?:^|/)(\.(?!venv/)[^/]+.*)")
_LEFT_TO_THE_LIST = re.compile(
    r".*/(?:(?:site|dist)-packages|node_modules|gems|__pycache__)/.+|.*/pyvenv\.cfg"
    r"|.*/\.(?:gitignore|gitkeep|dockerignore)"  # every repository has them
    r"|.*\.git/(?:.*/)?(?:objects/(?:[0-9a-f]{2}|pack)/[^/]+|refs/(?!replace/).+|logs/.+"
    r"|[A-Z_]*HEAD|index|packed-refs|[A-Z_]*MSG)"
)
"""Installed packages, and git's data: `ale.judging.tools` knows which of them decide."""
_FOLDERS = re.compile(
    r"(.*/(?:site|dist)-packages/[^/]+|.*/node_modules/(?:@[^/]+/)?[^/]+|.*\.git/objects)/.+"
)
_PROGRAM = (b"\x7fELF", b"#!")
_PERLS = (
    *("/usr/lib/x86_64-linux-gnu/perl-base", "/usr/share/perl5", "/etc/perl"),
    *(f"/usr/share/perl/5.{version}" for version in range(20, 48, 2)),
)
_LOADED = r"\b(?:import|from|require|use|mod|include|source|load)\b[^\n]*\b{0}\b|[/\"']{0}[\"']"
"""How code names a module by its name without a suffix."""
_LONGEST = 1 << 18
_Kind = Literal["work", "doubtful", "beyond"]


def kept(changes: Iterable[CarriedChange]) -> tuple[str, ...]:
    """The paths of used changes for a score: for what is in an installed package, or in git's
    objects, the folder's; at most `MOST_USED`."""
    return tuple(dict.fromkeys(_FOLDERS.sub(r"\1", each.path) for each in changes))[:MOST_USED]


@frozen(slots=False)
class Reference:
    """The files that the pass of a reference solution has used.

    Args:
        paths: as `kept` gives them.
        workdir: of the sandbox that is judged.
        programs: folders in which a shell looks for programs.
        names: whether a file of the tests has this text in it.
        contested: it needs changes of tools, so that new files at its paths are work.
    """

    paths: Sequence[str]
    workdir: str
    programs: Sequence[str]
    names: Callable[[str], bool]
    contested: bool = False

    async def beyond(self, changes: Sequence[CarriedChange], judge: Judge) -> set[str]:
        """The paths of used changes that are of no kind that its pass has used, nor work of another
        shape."""
        kinds: dict[_Kind, list[CarriedChange]] = {"work": [], "doubtful": [], "beyond": []}
        for change in changes:
            kind = self._kind(change)
            if kind == "work" and await self._is_found_first(change.path, judge):
                kind = "beyond"
            kinds[kind].append(change)
        doubtful = await self._named_nowhere(kinds["doubtful"], kinds["work"], judge)
        return {change.path for change in (*kinds["beyond"], *doubtful)}

    async def placed(
        self, changes: Sequence[CarriedChange], work: Sequence[CarriedChange], judge: Judge
    ) -> set[str]:
        """The paths of new files that are work, though the list of tools has them: its own pass
        needs a new file there too, or only the work looks for them, by their names.

        Args:
            changes: all that may be.
            work: used changes that are work, whatever the list says.
        """
        added = [each for each in changes if each.kind == "added"]
        known = [each for each in added if self.contested and self._is_known(each.path)]
        maybe = [
            each
            for each in changes
            if each not in known and await placed.is_found_by_work_alone(each, judge, self.programs)
        ]
        found = [*work, *known]
        texts = [await _text(each, judge) or b"" for each in found[:_MOST_READ]] if maybe else []
        while named := [each for each in maybe if placed.named_in_work(each, texts)]:
            texts += [await _text(each, judge) or b"" for each in named]
            maybe = [each for each in maybe if each not in named]
            known += named
        return {each.path for each in known}

    async def _named_nowhere(
        self, doubtful: Sequence[CarriedChange], work: Sequence[CarriedChange], judge: Judge
    ) -> Sequence[CarriedChange]:
        """The changes of doubtful kind that no work names, nor others that work names."""
        if not doubtful:
            return ()
        texts = [await _text(each, judge) or b"" for each in work[:_MOST_READ]]
        texts += [each.link.encode(errors="surrogateescape") for each in work if each.link]
        while named := [each for each in doubtful if await self._is_work(each, texts, judge)]:
            texts += [await _text(each, judge) or b"" for each in named]
            doubtful = [each for each in doubtful if each not in named]
        return doubtful

    def _kind(self, change: CarriedChange) -> _Kind:
        path = change.path.rstrip("/")
        if self._is_known(path) or _LEFT_TO_THE_LIST.fullmatch(path):
            return "work"
        if (hidden := _HIDDEN.search(self._inner(path))) is not None:
            if change.kind != "added" or hidden[1].startswith(".git/"):
                return "beyond"
            return "work" if hidden[1] in self._hidden else "doubtful"
        return self._kind_of_added(path) if change.kind == "added" else self._kind_of_images(path)

    def _is_known(self, path: str) -> bool:
        """Whether its pass has used this path, or it is in a folder that stands for its files."""
        above = {path[: found.start()] for found in re.finditer("/", path)}
        return not self._paths.isdisjoint({path, *above})

    def _kind_of_images(self, path: str) -> _Kind:
        """The kind of a file of the image's that the reference has left as it was."""
        inner, (name, _, suffix) = self._inner(path), _named(path)
        is_check = _TESTS.search(inner) or _CHECKS.search(inner) or name in _SETTINGS
        return "work" if suffix in _SOURCE and not is_check else "beyond"

    def _kind_of_added(self, path: str) -> _Kind:
        name, stem, suffix = _named(path)
        if name in self._names:
            return "work"
        if name in _SETTINGS or (_TESTS.search(self._inner(path)) and not self._has_tests):
            return "beyond"
        if suffix in _SOURCE and self._is_optional(path):
            return "beyond"
        is_known = suffix in _SOURCE or suffix in _DATA or suffix in self._suffixes
        decides = _LIKE_SETTINGS.search(stem) or _CHECKS.search(stem)
        return "work" if is_known and (stem in self._stems or not decides) else "doubtful"

    def _is_optional(self, path: str) -> bool:
        """Whether the tests load it, where the reference passes without a file of its name."""
        inner = self._inner(path)
        name, stem, suffix = _named(path)
        if stem == "__init__":
            inner = stem = posixpath.dirname(inner)
        if "/" in inner or stem in self._stems:
            return False
        words = [f"{word} {place}{name}" for word in (".", "source") for place in ("", "./")]
        words += [f". {path}", f"source {path}"]
        if suffix == "py":
            words = [f"import {stem}", f"from {stem} import"]
        return any(map(self.names, words))

    async def _is_found_first(self, path: str, judge: Judge) -> bool:
        """Whether it is a module of Perl's with a name of the image's."""
        name, _, suffix = _named(path)
        if suffix != "pm" or name in self._names:
            return False
        parts = self._inner(path).split("/")
        for number in range(len(parts)):
            if await loader.has_any(judge, _PERLS, "/".join(parts[number:])):
                return True
        return False

    async def _is_work(self, change: CarriedChange, texts: Sequence[bytes], judge: Judge) -> bool:
        """Whether something of doubtful kind is a program, or is named by other files of the
        work."""
        name, stem, suffix = _named(change.path)
        if not suffix and await loader.has_any(judge, self.programs, name):
            return False
        folder, text = posixpath.dirname(change.path), await _text(change, judge)
        hidden = _HIDDEN.search(self._inner(change.path))
        above = self._root == folder or self._root.startswith(f"{folder.rstrip('/')}/")
        is_new = not above and not await judge.has(folder, image=True)
        if text is None or (is_new and hidden is None and not self._is_inside(folder)):
            return True  # no file, or in a folder elsewhere, where nothing looks by itself
        if not suffix and text.startswith(_PROGRAM) and not _LIKE_SETTINGS.search(name):
            return True
        name = hidden[1].partition("/")[0] if hidden is not None else name
        patterns = [rf"(?<![\w.-]){re.escape(name)}(?!\w)"]
        if suffix in _SOURCE and hidden is None:
            patterns.append(_LOADED.format(re.escape(stem)))
        if is_new:
            patterns.append(rf"(?<!\w){re.escape(posixpath.basename(folder))}[/\"']")
        wanted = re.compile("|".join(patterns).encode(errors="surrogateescape"))
        return any(wanted.search(each) for each in texts)

    def _is_inside(self, path: str) -> bool:
        return path.startswith(f"{self._root}/")

    def _inner(self, path: str) -> str:
        """A path from the workspace, if it is below."""
        return path.removeprefix(f"{self._root}/").lstrip("/")

    @cached_property
    def _root(self) -> str:
        return self.workdir.rstrip("/")

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(path.rstrip("/") for path in self.paths)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(posixpath.basename(path) for path in self._paths)

    @cached_property
    def _stems(self) -> frozenset[str]:
        """Names without their suffixes; for a package of Python's that of its folder."""
        parts = [part for path in self._paths for part in self._inner(path).split("/")]
        return frozenset(_named(part)[1] for part in parts)

    @cached_property
    def _suffixes(self) -> frozenset[str]:
        named = [_named(path) for path in self._paths]
        return frozenset(suffix for name, _, suffix in named if name not in _SETTINGS and suffix)

    @cached_property
    def _hidden(self) -> frozenset[str]:
        found = (_HIDDEN.search(self._inner(path)) for path in self._paths)
        return frozenset(each[1] for each in found if each is not None)

    @cached_property
    def _has_tests(self) -> bool:
        return any(_TESTS.search(self._inner(path)) for path in self._paths)


def _named(path: str) -> tuple[str, str, str]:
    """Name, and its parts before and after the last dot; a number after it is none."""
    name = posixpath.basename(path)
    stem, _, suffix = re.sub(r"(?:\.\d+)+$", "", name).rpartition(".")
    return name, stem or suffix, suffix if stem else ""


async def _text(change: CarriedChange, judge: Judge) -> bytes | None:
    """The beginning of a file; None for a folder, or anything else that can't be read."""
    try:
        return await judge.sandbox.read(change.path, max_bytes=_LONGEST)
    except (OSError, SandboxError):
        return None
