"""Hands the deployed version to the servers, and again to those that come later."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, fields, frozen

from ale.errors import AleError, InputError
from ale.protocols import Checkable, Policy
from ale.strict import Node, from_plain, structure
from ale.types import PolicySnapshot, replace


@frozen(kw_only=True)
class _Servers:
    """The options with which a model component finds servers."""

    urls: tuple[str, ...] = ()
    registry: Path | None = None
    nats: str = ""
    adapter: str = ""

    def shared(self, other: "_Servers") -> str | None:
        """The option that names the same servers in both."""
        if self.adapter and other.adapter and self.adapter != other.adapter:
            return None
        if {url.rstrip("/") for url in self.urls} & {url.rstrip("/") for url in other.urls}:
            return "urls"
        names = ("registry", "nats")
        same = (name for name in names if getattr(self, name) == getattr(other, name))
        return next((name for name in same if getattr(self, name)), None)


def check_servers(serve: Node, train: Mapping[str, Any]) -> None:
    """Raises `InputError` where the policy is evaluated on the servers of the section ``serve``.

    Args:
        train: the whole config of the run, as plain values.
    """
    key = _servers(serve).shared(_servers(from_plain(train["llm"])))
    if key is not None:
        message = "the section llm of 'train' names these servers too"
        hint = "they would get versions that were not decided on: evaluate on others"
        at = serve.get(key) or serve
        raise at.error(message, path=f"serve.{key}", hint=hint)


def _servers(node: Node) -> _Servers:
    names = {each.name for each in fields(_Servers)}
    found = {name: child for name, child in (node.mapping or {}).items() if name in names}
    return structure(Node(found, node.file, node.line), _Servers)


@define(kw_only=True)
class Serving:
    """The component whose servers have the deployed version.

    Args:
        policy: it; None: nobody is given anything.
        report: gets a message where servers can't be reached, once for each reason.
    """

    policy: Policy | None
    report: Callable[[str], None]
    given: int | None = None
    """The version that was handed over."""
    _said: str = field(default="", init=False)

    def check(self, snapshot: PolicySnapshot) -> None:
        """Raises `InputError` where the trainer's snapshots have no weights to hand over."""
        if self.policy is not None and snapshot.hand_over == "in-place":
            message = "the trainer gives no weights that servers could be given"
            hint = "trainer: {type: policy, sync: copy}"
            raise InputError.of(message, path="trainer", hint=hint)

    async def give(self, version: int, snapshot: PolicySnapshot) -> bool:
        """Hand over a version unless that was done, and look at the servers; False on failure."""
        if self.policy is None:
            return True
        try:
            if self.given != version:
                await self.policy.load_policy(replace(snapshot, version=version))
                self.given = version
            if isinstance(self.policy, Checkable):
                await self.policy.check()
        except AleError as error:
            if str(error) != self._said:
                self._said = str(error)
                self.report(f"the servers do not have version {version} yet: {error}")
            return False
        self._said = ""
        return True
