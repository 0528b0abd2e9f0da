"""Who may change a server's weights: one run at a time, which the others are told."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import AleError, LLMError
from ale.testing.waiting import until
from ale_servers.client import Connections, HTTPServer
from ale_servers.leases import Leases
from ale_servers.pool import PoolOptions, ServerPool
from ale_servers.protocol import HeldError
from ale_servers.records import Entry, HoldRequest, SampleRequest, Weights
from ale_servers.registry import Addresses
from ale_servers.testing.bigram import FINGERPRINT, FIRST, BigramLab, BigramServer, digest_of
from ale_servers.testing.serving import serving

_numbers = itertools.count()
Make = Callable[..., ServerPool]


def ask(n: int = 4) -> SampleRequest:
    number = next(_numbers)
    return SampleRequest(
        id=f"r{number}", prompt_ids=BigramLab.prompt, max_tokens=n, seed=str(number)
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def hold(run: str, **fields: Any) -> HoldRequest:
    return HoldRequest(run=run, seconds=30.0, **fields)


def test_a_lease_is_of_one_run_until_it_is_released_taken_or_expires() -> None:
    clock = Clock()
    leases = Leases(clock)
    assert leases.hold(hold("a")).run == "a"
    assert leases.hold(hold("b")).run == "a"
    clock.now = 20.0
    since = leases.hold(hold("a")).since
    clock.now = 45.0
    assert [(each.run, each.since) for each in leases.present()] == [("a", since)]
    leases.release("b", "")
    assert leases.hold(hold("b", take=True)).run == "b"
    assert leases.hold(hold("a")).run == "b"
    clock.now = 76.0
    assert leases.present() == ()
    assert leases.hold(hold("a")).run == "a"
    leases.release("a", "")
    assert leases.present() == ()


def test_adapters_are_held_one_by_one_and_whole_weights_exclude_them_all() -> None:
    leases = Leases(Clock())
    assert leases.hold(hold("a", adapter="x")).run == "a"
    assert leases.hold(hold("b", adapter="y")).run == "b"
    assert leases.hold(hold("b", adapter="x")).run == "a"
    assert leases.hold(hold("c")).run == "a"
    leases.check(Weights(version=1, digest="", run="b", adapter="y"))
    with pytest.raises(HeldError, match="the run a holds its adapter 'x' since"):
        leases.check(Weights(version=1, digest="", run="b", adapter="x"))
    assert leases.hold(hold("c", take=True)).run == "c"
    assert [each.run for each in leases.present()] == ["c"]
    with pytest.raises(HeldError, match="the run c holds it since"):
        leases.check(Weights(version=1, digest="", run="b", adapter="y"))


@pytest.fixture
def lab(tmp_path: Path) -> BigramLab:
    return BigramLab(tmp_path / "weights")


@pytest_asyncio.fixture
async def served() -> AsyncIterator[tuple[list[BigramServer], Make]]:
    """Two servers behind HTTP, and pools of runs that use them."""
    servers = [BigramServer(token_s=0.002) for _ in range(2)]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(each)) for each in servers]

        def made(run: str, *, holds: bool = True, n: int = 2, **options: Any) -> ServerPool:
            connections = Connections()
            stack.push_async_callback(connections.aclose)
            pool = ServerPool(
                Addresses(urls[:n]),
                lambda entry: HTTPServer(entry, connections),
                fingerprint=FINGERPRINT,
                initial=Weights(version=0, digest=digest_of(FIRST), folder=""),
                run=run,
                options=PoolOptions(**{"refresh_s": 0.05, "timeout_s": 20.0, **options}),
                holds=holds,
            )
            stack.push_async_callback(pool.aclose)
            return pool

        yield servers, made


def of(lab: BigramLab, version: int, run: str) -> Weights:
    """Weights of a run."""
    published = lab.publish(version)
    return Weights(version=version, digest=published.digest, folder=published.folder, run=run)


async def test_a_second_run_is_told_at_its_start_who_holds_the_servers(
    served: tuple[list[BigramServer], Make],
) -> None:
    _, make = served
    first, second, other = make("a"), make("b"), make("c", holds=False)
    await first.start()
    for pool in (second, other):
        await pool.refresh()
        assert {each.state for each in pool.members} == {"refused"}
        assert "the run a (process " in pool.unusable()[0]
        assert "'take_over: true' takes it from that run" in pool.unusable()[0]
    assert len((await first.sample(ask(), "e")).ids) == 4
    await first.aclose()
    await second.refresh()
    assert {each.state for each in second.members} == {"ready"}


async def test_runs_that_only_sample_share_servers(
    served: tuple[list[BigramServer], Make],
) -> None:
    _, make = served
    pools = make("a", holds=False), make("b", holds=False)
    for pool in pools:
        await pool.refresh()
    assert {member.state for pool in pools for member in pool.members} == {"ready"}


async def test_a_run_that_takes_over_does_so_once_and_the_other_one_does_not_fight(
    served: tuple[list[BigramServer], Make], lab: BigramLab
) -> None:
    servers, make = served
    first = make("a", take_over=True)
    first.written(of(lab, 0, "a"))
    await first.start()
    await first.update(of(lab, 1, "a"))
    long = asyncio.create_task(first.sample(ask(1500), "e"))
    await until(lambda: sum(each.n_sampled for each in servers) > 10, pause_s=0.005)
    second = make("b", take_over=True)
    second.written(of(lab, 0, "b"))
    await second.start()
    with pytest.raises(LLMError, match=r"no server any more: another run .*: the run b \(process"):
        await long
    with pytest.raises(LLMError, match="no server any more"):
        await first.sample(ask(), "e")
    with pytest.raises(AleError, match="no server any more"):
        await first.update(of(lab, 2, "a"))
    await asyncio.sleep(0.3)  # six looks
    assert [each.run for each in servers] == ["b", "b"]
    assert {*(await second.sample(ask(), "e")).versions} == {0}


async def test_a_run_that_loses_one_server_goes_on_with_the_other(
    served: tuple[list[BigramServer], Make], lab: BigramLab
) -> None:
    servers, make = served
    first = make("a")
    await first.start()
    await first.update(of(lab, 1, "a"))
    answers = [asyncio.create_task(first.sample(ask(300), f"e{n}")) for n in range(6)]
    await until(lambda: all(each.n_sampled > 10 for each in servers), pause_s=0.005)
    second = make("b", n=1, take_over=True)
    second.written(of(lab, 5, "b"))
    await second.start()
    for sampled in await asyncio.gather(*answers):
        assert ({*sampled.versions}, len(sampled.ids)) == ({1}, 300)
    await first.update(of(lab, 2, "a"))
    assert [each.version for each in servers] == [5, 2]


async def test_weights_of_a_run_that_does_not_hold_the_server_are_refused_before_it_pauses(
    served: tuple[list[BigramServer], Make], lab: BigramLab
) -> None:
    servers, make = served
    await make("a").start()
    connections = Connections()
    pool = make("b")
    await pool.refresh()
    client = HTTPServer(Entry(url=pool.members[0].entry.url), connections)
    try:
        for give in (client.prepare, client.update):
            with pytest.raises(HeldError, match="the run a "):
                await give(of(lab, 1, "b"))
    finally:
        await connections.aclose()
    assert [each.version for each in servers] == [0, 0]
