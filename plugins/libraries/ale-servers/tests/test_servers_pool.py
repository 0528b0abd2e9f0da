"""Several servers as one: who is asked, what is asked again, and what an update leaves."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from ale.errors import AleError, LLMError, LLMLostError
from ale.testing.waiting import until
from ale_servers.client import Connections, HTTPServer
from ale_servers.pool import PoolOptions, ServerPool
from ale_servers.protocol import InferenceServer, NotSampledError
from ale_servers.records import Entry, Sampled, SampleRequest, Weights
from ale_servers.testing.bigram import FINGERPRINT, FIRST, BigramLab, BigramServer, digest_of
from ale_servers.testing.contract import check_exact
from ale_servers.testing.serving import serving

_numbers = itertools.count()
Make = Callable[..., ServerPool]


class Registered:
    """A registry of servers in this process."""

    def __init__(self, servers: dict[str, InferenceServer]) -> None:
        self.servers = servers

    def entries(self) -> Sequence[Entry]:
        return [Entry(url=url, name=url) for url in self.servers]


class Faulty(BigramServer):
    """Refuses some requests before they begin, or loses their answers."""

    refuses = 0
    loses = 0
    unreachable = False

    async def sample(self, request: SampleRequest) -> Sampled:
        if self.refuses:
            self.refuses -= 1
            raise NotSampledError("it is full")
        sampled = await super().sample(request)
        if self.loses:
            self.loses -= 1
            raise LLMLostError("the connection was lost")
        return sampled

    async def status(self) -> Any:
        if self.unreachable:
            raise NotSampledError("it can't be reached")
        return await super().status()

    async def prepare(self, weights: Weights) -> None:
        if self.unreachable:
            raise NotSampledError("it can't be reached")
        await super().prepare(weights)


class Failing(BigramServer):
    """Loses some of the weights that it is given."""

    failures = 0

    async def update(self, weights: Weights) -> None:
        if self.failures:
            self.failures -= 1
            raise LLMError("the transfer failed", transient=True)
        await super().update(weights)


@pytest.fixture
def lab(tmp_path: Path) -> BigramLab:
    return BigramLab(tmp_path / "weights")


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    pools: list[ServerPool] = []

    def made(*servers: InferenceServer, run: str = "", **options: Any) -> ServerPool:
        named = {f"s{n}": server for n, server in enumerate(servers)}
        initial = Weights(version=0, digest=digest_of(FIRST), folder="")
        pool = ServerPool(
            Registered(named),
            lambda entry: named[entry.url],
            fingerprint=FINGERPRINT,
            initial=initial,
            run=run,
            options=PoolOptions(**{"refresh_s": 0.02, **options}),
        )
        pools.append(pool)
        return pool

    yield made
    for pool in pools:
        await pool.aclose()


def ask(n: int = 4, **fields: Any) -> SampleRequest:
    number = next(_numbers)
    prompt = BigramLab.prompt
    return SampleRequest(
        id=f"r{number}", prompt_ids=prompt, max_tokens=n, seed=str(number), **fields
    )


async def test_requests_are_spread_by_load_and_a_session_stays_where_it_is(make: Make) -> None:
    servers = [BigramServer(token_s=0.002) for _ in range(3)]
    pool = make(*servers)
    await pool.refresh()
    await asyncio.gather(*(pool.sample(ask(), f"e{n}") for n in range(30)))
    assert [server.n_sampled for server in servers] == [40, 40, 40]
    for _ in range(5):
        await pool.sample(ask(100), "e0")
    grown = [server.n_sampled - 40 for server in servers]
    assert sorted(grown) == [0, 0, 500]


async def test_thousands_at_once_wait_for_room_in_their_order(make: Make) -> None:
    servers = [BigramServer(max_running=8) for _ in range(2)]
    pool = make(*servers)
    order: list[int] = []
    most = Counter[str]()

    async def one(n: int) -> None:
        await pool.sample(ask(2), f"e{n}")
        order.append(n)
        for member in pool.members:
            most[member.entry.url] = max(most[member.entry.url], member.in_flight)

    await asyncio.gather(*(one(n) for n in range(3000)))
    assert max(most.values()) <= 16
    assert all(abs(at - n) < 64 for at, n in enumerate(order))
    assert all(member.in_flight == 0 for member in pool.members)


async def test_what_was_not_begun_is_sent_again(make: Make) -> None:
    faulty, other = Faulty(), Faulty()
    faulty.refuses = other.refuses = 1
    assert len((await make(faulty, other).sample(ask(), "e")).ids) == 4


class Dies(BigramServer):
    """Loses its answers in progress and can't be reached, as a server that is killed."""

    killed = False

    async def sample(self, request: SampleRequest) -> Sampled:
        answering = asyncio.ensure_future(super().sample(request))
        try:
            while not answering.done():
                await asyncio.wait({answering}, timeout=0.005)
                if self.killed:
                    raise LLMLostError("the connection was lost")
        finally:
            answering.cancel()
        return answering.result()

    async def status(self) -> Any:
        if self.killed:
            raise NotSampledError("it can't be reached")
        return await super().status()


async def test_answers_of_a_server_that_is_killed_are_sampled_by_another(
    make: Make, lab: BigramLab
) -> None:
    killed, other = Dies(token_s=0.001), BigramServer(token_s=0.001)
    pool = make(killed, other, interruption="abort")
    asked = [ask(200) for _ in range(10)]
    tasks = [asyncio.create_task(pool.sample(each, each.id)) for each in asked]
    await until(lambda: killed.n_sampled > 50, pause_s=0.005)
    await pool.update(lab.publish(1))  # returns what they have so far
    await until(lambda: killed.n_sampled > 300, pause_s=0.005)
    killed.killed = True
    for request, sampled in zip(asked, await asyncio.gather(*tasks), strict=True):
        assert len(sampled.ids) == 200
        assert {*sampled.versions} == {0, 1}
        check_exact(lab, request, sampled)
    assert pool.members[0].state == "down"
    assert [member.in_flight for member in pool.members] == [0, 0]


async def test_an_answer_that_ends_every_server_is_given_up(make: Make) -> None:
    faulty = Faulty()
    faulty.loses = 10
    with pytest.raises(LLMLostError, match="the answer was lost 3 times: the connection was lost"):
        await make(faulty).sample(ask(), "e")
    assert faulty.n_sampled == 12


async def test_a_failure_that_would_come_again_is_raised_at_once(make: Make) -> None:
    server = BigramServer()
    with pytest.raises(LLMError, match="outside the model's vocabulary") as caught:
        await make(server).sample(ask(answer_ids=(99,)), "e")
    assert not isinstance(caught.value, LLMLostError)


async def test_the_deadline_names_the_servers_that_are_not_used(make: Make) -> None:
    faulty = Faulty()
    faulty.unreachable = True
    with pytest.raises(
        LLMError, match=r"within 0\.3 s; 0 of 1 servers are ready; s0 is down: it can"
    ):
        await make(faulty, timeout_s=0.3).sample(ask(), "e")


async def test_cancelled_requests_free_their_places(make: Make) -> None:
    pool = make(BigramServer(token_s=0.01, max_running=1))
    tasks = [asyncio.create_task(pool.sample(ask(500), f"e{n}")) for n in range(20)]
    await until(lambda: any(member.in_flight for member in pool.members), pause_s=0.005)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert [member.in_flight for member in pool.members] == [0]
    assert len((await pool.sample(ask(1), "e")).ids) == 1


@pytest.mark.parametrize("mode", ["keep", "abort"])
async def test_an_update_in_the_middle_interrupts_and_loses_no_token(
    make: Make, lab: BigramLab, mode: str
) -> None:
    servers = [BigramServer(token_s=0.001) for _ in range(2)]
    pool = make(*servers, interruption=mode)
    asked = [ask(200) for _ in range(10)]
    tasks = [asyncio.create_task(pool.sample(each, each.id)) for each in asked]
    await until(lambda: all(server.n_sampled > 50 for server in servers), pause_s=0.005)
    await pool.update(lab.publish(1))
    await until(lambda: all(server.n_sampled > 500 for server in servers), pause_s=0.005)
    await pool.update(lab.publish(2))
    for request, sampled in zip(asked, await asyncio.gather(*tasks), strict=True):
        assert len(sampled.ids) == 200
        assert {*sampled.versions} == {0, 1, 2}
        assert list(sampled.versions) == sorted(sampled.versions)
        check_exact(lab, request, sampled)


async def test_interruptions_without_new_weights_change_no_token(make: Make) -> None:
    server = BigramServer(token_s=0.001)
    pool = make(server)
    request = ask(200)
    alone = await pool.sample(request, "e")
    task = asyncio.create_task(pool.sample(request, "e"))
    for _ in range(4):
        await asyncio.sleep(0.02)
        await server.abort()
    again = await task
    assert (again.ids, again.logprobs) == (alone.ids, alone.logprobs)


async def test_refused_weights_leave_the_old_ones_on_all(make: Make, lab: BigramLab) -> None:
    servers = [BigramServer(), BigramServer()]
    pool = make(*servers)
    await pool.refresh()
    wrong = msgspec.structs.replace(lab.publish(1), digest="0" * 64)
    with pytest.raises(AleError, match="version 1 was taken by no server"):
        await pool.update(wrong)
    assert [server.version for server in servers] == [0, 0]
    assert {*(await pool.sample(ask(), "e")).versions} == {0}


async def test_when_no_server_takes_what_it_has_prepared_all_keep_the_old_ones(
    make: Make, lab: BigramLab
) -> None:
    servers = [BigramServer(), BigramServer()]
    pool = make(*servers)
    await pool.refresh()
    for server in servers:
        server.fails = "out of memory"
    with pytest.raises(AleError, match="taken by no server: out of memory"):
        await pool.update(lab.publish(1))
    assert {*(await pool.sample(ask(), "e")).versions} == {0}


async def test_a_server_that_fails_an_update_is_named_and_updated_before_it_samples(
    make: Make, lab: BigramLab, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = BigramServer(), BigramServer()
    pool = make(good, bad)
    await pool.refresh()
    bad.fails = "out of memory"
    await pool.update(lab.publish(1))
    assert "the server s1 is behind: it failed to update: out of memory" in caplog.text
    await asyncio.gather(*(pool.sample(ask(), f"e{n}") for n in range(8)))
    assert bad.n_sampled == 0
    bad.fails = None
    await pool.refresh()
    answers = await asyncio.gather(*(pool.sample(ask(), f"f{n}") for n in range(8)))
    assert bad.n_sampled > 0
    assert {version for each in answers for version in each.versions} == {1}


async def test_a_server_that_was_away_is_updated_before_it_samples(
    make: Make, lab: BigramLab
) -> None:
    here, away = Faulty(), Faulty()
    pool = make(here, away)
    away.unreachable = True
    await pool.refresh()
    await pool.update(lab.publish(1))
    away.unreachable = False
    await pool.refresh()
    assert away.version == 1


async def test_a_server_that_restarted_between_two_looks_samples_nothing_old(
    make: Make, lab: BigramLab
) -> None:
    server = BigramServer()
    pool = make(server, refresh_s=0.3)
    await pool.refresh()
    await pool.update(lab.publish(1))
    server.table, server.version = FIRST, 0  # as after a restart
    sampled = await pool.sample(ask(), "e")
    assert {*sampled.versions} == {1}


class Hangs(Faulty):
    """Does not return from reading weights until it is let."""

    let: asyncio.Event | None = None

    async def prepare(self, weights: Weights) -> None:
        if self.let is not None:
            await self.let.wait()
        await super().prepare(weights)


async def test_a_server_that_hangs_while_it_catches_up_holds_up_no_update(
    make: Make, lab: BigramLab
) -> None:
    here, hangs = BigramServer(), Hangs()
    hangs.unreachable = True
    pool = make(here, hangs)
    await pool.sample(ask(), "e")  # from now on it looks by itself
    await pool.update(lab.publish(1))
    hangs.let, hangs.unreachable = asyncio.Event(), False
    await until(lambda: pool.members[1].catching_up is not None, pause_s=0.005)
    async with asyncio.timeout(60):
        await pool.update(lab.publish(2))
        assert {*(await pool.sample(ask(), "e")).versions} == {2}
    assert (here.version, hangs.version) == (2, 0)
    hangs.let.set()
    await until(lambda: pool.members[1].state == "ready", pause_s=0.005)
    assert hangs.version == 2


async def test_a_server_with_weights_of_somebody_else_is_refused(make: Make) -> None:
    pool = make(BigramServer(table="another run's"), timeout_s=2.0)
    with pytest.raises(
        LLMError, match=r"s0 is refused: it has version 0 .* not weights of this run"
    ):
        await pool.sample(ask(), "e")


async def test_it_is_taken_over_where_that_is_asked_for(make: Make, lab: BigramLab) -> None:
    server = BigramServer(table="another run's")
    pool = make(server, take_over=True)
    pool.written(lab.publish(0))
    assert {*(await pool.sample(ask(), "e")).versions} == {0}
    assert server.table == FIRST


async def test_tokens_of_weights_that_somebody_else_loaded_are_refused(
    make: Make, lab: BigramLab
) -> None:
    server = BigramServer()
    pool = make(server, refresh_s=60)
    await pool.sample(ask(), "e")
    server.table, server.version = "another run's", 3
    with pytest.raises(LLMError, match="is another run using it"):
        await pool.sample(ask(), "e")


async def test_servers_that_are_all_away_at_an_update_get_it_when_they_are_back(
    make: Make, lab: BigramLab
) -> None:
    servers = Faulty(), Faulty()
    pool = make(*servers, refresh_s=60)
    await pool.sample(ask(), "e")
    for server in servers:
        server.unreachable = True
    await pool.update(lab.publish(1))
    assert [each.reason for each in pool.members] == ["it can't be reached"] * 2
    for server in servers:
        server.unreachable = False
    await pool.refresh()
    assert {*(await pool.sample(ask(), "e")).versions} == {1}


async def test_an_update_that_fails_on_all_is_tried_once_more(make: Make, lab: BigramLab) -> None:
    servers = Failing(), Failing()
    pool = make(*servers, refresh_s=60)
    await pool.refresh()
    for server in servers:
        server.failures = 1
    await pool.update(lab.publish(1))
    assert [server.version for server in servers] == [1, 1]
    for server in servers:
        server.failures = 2
    with pytest.raises(AleError, match="version 2 was taken by no server: the transfer failed"):
        await pool.update(lab.publish(2))
    assert {*(await pool.sample(ask(), "e")).versions} == {1}


async def test_further_turns_wait_for_room_too(make: Make) -> None:
    server = BigramServer(max_running=1, token_s=0.001)
    pool = make(server)
    await asyncio.gather(*(pool.sample(ask(1), f"e{n}") for n in range(20)))
    further = [asyncio.create_task(pool.sample(ask(3), f"e{n}")) for n in range(20)]
    most = 0
    while not all(each.done() for each in further):
        most = max(most, *(member.in_flight for member in pool.members))
        await asyncio.sleep(0)
    assert most == 2


async def test_a_pool_that_follows_samples_from_what_another_one_has_loaded(
    make: Make, lab: BigramLab
) -> None:
    one, other = BigramServer(), BigramServer()
    leads, follows = make(one, other, run="r"), make(one, other, run="r", follow=True)
    for version in (1, 2):
        await leads.refresh()
        await leads.update(msgspec.structs.replace(lab.publish(version), run="r"))
        for n in range(4):
            asked = ask()
            sampled = await follows.sample(asked, f"e{n}")
            assert {*sampled.versions} == {version}
            check_exact(lab, asked, sampled)


async def test_a_pool_that_follows_samples_nothing_older_than_what_it_has_seen(
    make: Make,
) -> None:
    missed, has_it = BigramServer(), BigramServer()
    has_it.table, has_it.version, has_it.run = "newer", 1, "r"
    follows = make(missed, has_it, run="r", follow=True)
    await follows.refresh()
    await follows.refresh()
    assert [each.state for each in follows.members] == ["behind", "ready"]
    for n in range(4):
        assert {*(await follows.sample(ask(), f"e{n}")).versions} == {1}
    assert missed.n_sampled == 0


async def test_one_version_has_one_set_of_weights_for_a_pool_that_follows(make: Make) -> None:
    server = BigramServer(table="one")
    server.version, server.run = 7, "r"
    pool = make(server, run="r", follow=True)
    await pool.sample(ask(), "e")
    server.table, server.run = "another", "another run"
    with pytest.raises(LLMError, match="not version 7 of this run"):
        await pool.sample(ask(), "e")


async def test_a_server_that_dies_is_replaced_by_the_others(tmp_path: Path) -> None:
    """Over HTTP: requests under way there are lost, later ones are not sent there."""
    connections = Connections()
    stays, dies = BigramServer(), BigramServer(token_s=0.01)
    async with serving(stays) as first:
        async with serving(dies) as second:
            entries = {first: stays, second: dies}
            pool = ServerPool(
                Registered(dict(entries)),
                lambda entry: HTTPServer(entry, connections),
                fingerprint=FINGERPRINT,
                initial=Weights(version=0, digest=digest_of(FIRST), folder=""),
                options=PoolOptions(refresh_s=0.1),
            )
            await pool.refresh()
            await asyncio.gather(*(pool.sample(ask(2), f"e{n}") for n in range(20)))
            assert dies.n_sampled > 0
        before = dies.n_sampled
        await asyncio.gather(*(pool.sample(ask(2), f"e{n}") for n in range(20)))
        assert dies.n_sampled == before
        await pool.aclose()
        await connections.aclose()
