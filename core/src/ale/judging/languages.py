"""Packages that programs of several languages find before those of the image."""

import re

from ale.judging import loader, python
from ale.protocols import Judge
from ale.types import CarriedChange

_OF_NODE = re.compile(r".*/node_modules/(?P<name>(?:@[^/]+/)?[^/]+)(?:/.*)?")
_IMAGES_OF_NODE = ("/usr/share/nodejs", "/usr/lib/nodejs")
"""Where Debian's finds packages by their names."""
_TEST_LIBRARIES = re.compile(
    r"(?!.*/gems/).*/(?:(?:minitest|rspec|test/unit)(?:/[^/]+)*\.rb|Test/(?:More|Simple|Builder)\.pm)"
)


async def is_found_first(change: CarriedChange, judge: Judge) -> bool:
    """Whether it is a package of Node.js that the image has too, a library of tests for Ruby or
    Perl outside of folders of packages, or what Python's own library tries to import."""
    if python.is_tried(change.path, link=bool(change.link)):
        return True
    if _TEST_LIBRARIES.fullmatch(change.path) is not None:
        return True
    found = _OF_NODE.fullmatch(change.path)
    return found is not None and await loader.has_any(judge, _IMAGES_OF_NODE, found["name"])
