"""The name of the server that a client of TLS asks for, in the first bytes that it sends.

Source: RFC 8446, sections 4.1.2 and 5.1, and RFC 6066, section 3. Strict: what could be read in two
ways is no TLS here.
"""

HELLO_BYTES = 1 << 15
"""Most that is looked at. A message with a post-quantum key has some 2,000 bytes."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class NotTlsError(ValueError):
    """The bytes are not the beginning of a client's TLS."""


class _Short(Exception):
    """There are fewer bytes than a length says."""


class _Bytes:
    """Reads parts that begin with their length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes. Raises _Short."""
        end = self._at + count
        if end > len(self._data):
            raise _Short
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, size: int) -> int:
        """A number of this many bytes."""
        return int.from_bytes(self.take(size), "big")

    def part(self, size: int) -> "_Bytes":
        """Bytes after a length of `size` bytes."""
        return _Bytes(self.take(self.number(size)))

    @property
    def more(self) -> bool:
        """There are bytes left."""
        return self._at < len(self._data)

    @property
    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data) - self._at)


def server_name(data: bytes) -> str | None:
    """The name in a ClientHello, empty if it has none; None if the message is not complete.

    Raises:
        NotTlsError: it is no ClientHello.
    """
    message = _message(_Bytes(data))
    if message is None:
        return None
    try:
        return _name(message)
    except _Short:
        raise NotTlsError("a length in the first message is wrong") from None


def _message(records: _Bytes) -> _Bytes | None:
    """The first message, which may be spread over records; None if it is not complete."""
    found = b""
    try:
        while True:
            if records.number(1) != _HANDSHAKE:
                raise NotTlsError("it does not begin with a handshake")
            if records.number(1) != 3:
                raise NotTlsError("it has another version")
            records.number(1)
            piece = records.part(2).rest
            if not piece:
                raise NotTlsError("a record is empty")
            found += piece
            if found[0] != _CLIENT_HELLO:
                raise NotTlsError("the first message is no ClientHello")
            if len(found) >= 4 and len(found) >= 4 + int.from_bytes(found[1:4], "big"):
                return _Bytes(found[4 : 4 + int.from_bytes(found[1:4], "big")])
    except _Short:
        return None


def _name(hello: _Bytes) -> str:
    hello.take(2 + 32)  # version, random
    hello.part(1)  # session
    hello.part(2)  # ciphers
    hello.part(1)  # compressions
    if not hello.more:
        return ""
    extensions, names = hello.part(2), list[str]()
    while extensions.more:
        kind, about = extensions.number(2), extensions.part(2)
        if kind == _SERVER_NAME:
            names.append(_host_name(about))
    if len(names) > 1:
        raise NotTlsError("it names its server more than once")
    return names[0] if names else ""


def _host_name(about: _Bytes) -> str:
    listed = about.part(2)
    if listed.number(1) != _HOST_NAME:
        raise NotTlsError("its server's name is of an unknown kind")
    name = listed.part(2).rest
    if listed.more or about.more or not name.isascii() or b"\0" in name:
        raise NotTlsError("its server's name can't be read")
    return name.decode("ascii")
