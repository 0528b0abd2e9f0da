"""The component `servers`: two engines behind HTTP, and weights given through a folder."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from ale.errors import AleError, InputError, LLMError
from ale.plugin import BuildContext
from ale.protocols import ServedPolicy, TrainablePolicy
from ale.strict import Node, read_yaml, structure
from ale.testing.policy import TrainablePolicyContract
from ale.testing.waiting import until
from ale.types import CompletionRequest, Message, PolicySnapshot, Sampling
from ale_llm_policy.build import build_servers, wrap_policy
from ale_llm_policy.engine import Engine
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import Following, PolicyOptions, ServersOptions
from ale_llm_policy.plugin import ale_llms
from ale_llm_policy.pretrained import TinyShape, TorchPolicy, load_policy
from ale_llm_policy.servers import ServersLLM
from ale_llm_policy.testing import CORPUS, forward_logits, new_policy, request
from ale_nats_client.options import ServerOptions
from ale_servers.gateway import Model
from ale_servers.hosted import HostedLLM
from ale_servers.program import Answered
from ale_servers.records import SampleRequest, Weights
from ale_servers.supervisor import Command
from ale_servers.testing.serving import serving
from ale_training.policy import attach


class Lab:
    """Two servers of the policy in a folder, and components that sample from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.engines: list[PolicyLLM] = []
        self.urls: list[str] = []
        self.made: list[ServersLLM] = []
        self.run_id = "this-run"

    async def start(self, servers: AsyncExitStack, policy: TorchPolicy) -> None:
        self.engines.append(wrap_policy(policy, PolicyOptions()))
        self.urls.append(await servers.enter_async_context(serving(self.engines[-1].server)))

    def connect(self, **options: Any) -> ServersLLM:
        if isinstance(options.get("follow"), dict):
            options["follow"] = Following(**options["follow"])
        given = {
            "model": str(self.model),
            "urls": tuple(self.urls),
            "refresh_s": 0.05,
            "timeout_s": 20.0,
            **options,
        }
        context = BuildContext(run_directory=self.folder / "run", run_id=self.run_id)
        self.made.append(build_servers(ServersOptions(**given), context))
        return self.made[-1]


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    new_policy().save(lab.model)
    async with AsyncExitStack() as servers:
        for _ in range(2):
            await lab.start(servers, new_policy())
        yield lab
        for llm in (*lab.made, *lab.engines):
            await llm.aclose()


class TestServers(TrainablePolicyContract):
    @pytest.fixture
    def make_policy(self, lab: Lab) -> Callable[[], TrainablePolicy]:
        return lambda: lab.connect(max_tokens=32)


def test_it_is_a_policy_and_asks_nobody_when_it_is_built(tmp_path: Path) -> None:
    component = ale_llms()[1]
    options = ServersOptions(urls=("http://127.0.0.1:1",))
    assert isinstance(component.build(options, BuildContext()), ServedPolicy)


@pytest.mark.parametrize("fields", [{}, {"urls": ("a",), "start": 1}])
def test_servers_are_found_in_one_way(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of 'urls', 'registry', 'nats' and 'start'"):
        ServersOptions(**fields)


def test_a_registry_in_nats_is_a_url_or_one_with_a_user(tmp_path: Path) -> None:
    assert ServersOptions(nats="tls://a:1/b").nats_server == ServerOptions(url="tls://a:1/b")
    config = tmp_path / "config.yaml"
    config.write_text("{nats: {url: 'tls://a:1/b', user_env: U, tls_ca: ca.pem}}")
    named = structure(read_yaml(config), ServersOptions).nats_server
    assert named == ServerOptions(url="tls://a:1/b", user_env="U", tls_ca=tmp_path / "ca.pem")
    with pytest.raises(ValueError, match="a URL must contain no user or password"):
        ServersOptions(nats="nats://u:p@a")


def exact(policies: dict[int, TorchPolicy], answer: Any) -> None:
    """Each token has the log-probability of a full forward pass of its version's weights."""
    found = answer.tokens
    chosen = torch.tensor(found.output_ids)[:, None]
    for at, version in enumerate(found.policy_versions):
        logits = forward_logits(policies[version], found.prompt_ids, found.output_ids[: at + 1])
        meant = logits[-1].log_softmax(-1)[chosen[at]]
        assert found.logprobs[at] == pytest.approx(float(meant), abs=1e-4), (at, version)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine stops in the middle of its answers until it has new weights, however late."""
    work = Engine._work

    def until_renewed(self: Engine) -> None:
        while self.n_steps > 100 and self._policy.version == 0:
            if self._tasks or self._closed:  # a task may bring them; closed: the test has failed
                break
            time.sleep(0.001)
        work(self)

    monkeypatch.setattr(Engine, "_work", until_renewed)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("interruption", ["keep", "abort"])
async def test_new_weights_reach_all_servers_in_the_middle_of_answers(
    lab: Lab, interruption: str
) -> None:
    llm = lab.connect(interruption=interruption)
    llm._end_ids = frozenset()
    other = new_policy(seed=9)
    weights = dict(other.model.named_parameters())
    asked = [request(text, n=200) for text in ("a b", "c d", "e f", "g h")]
    running = [asyncio.create_task(llm.complete(each)) for each in asked]
    await until(lambda: all(each.engine.n_steps > 20 for each in lab.engines), pause_s=0.002)
    await llm.load_policy(PolicySnapshot(version=3, weights=weights))
    assert [engine.policy_version for engine in lab.engines] == [3, 3]
    for answer in await asyncio.gather(*running):
        tokens = answer.tokens
        assert tokens is not None
        assert {*tokens.policy_versions} == {0, 3}
        assert list(tokens.policy_versions) == sorted(tokens.policy_versions)
        assert len(tokens.output_ids) == 200
    exact({0: new_policy(), 3: other}, answer)


async def test_the_next_turn_extends_the_ids_and_finds_the_cache(lab: Lab) -> None:
    llm = lab.connect()
    first = request(CORPUS[0] * 4, n=12)
    answer = await llm.complete(first)
    computed = sum(engine.engine.n_prefilled for engine in lab.engines)
    more = (answer.message, Message(role="user", content="Continue."))
    second = CompletionRequest(
        messages=(*first.messages, *more),
        conversation=first.conversation,
        sampling=Sampling(max_tokens=4),
        turn=1,
        fresh_context=False,
    )
    next_answer = await llm.complete(second)
    assert answer.tokens is not None
    assert next_answer.tokens is not None
    before = (*answer.tokens.prompt_ids, *answer.tokens.output_ids)
    assert next_answer.tokens.prompt_ids[: len(before)] == before
    added = len(next_answer.tokens.prompt_ids) - len(before)
    after = sum(engine.engine.n_prefilled for engine in lab.engines)
    assert after - computed <= added + 1


async def test_answers_are_those_of_the_policy_itself(lab: Lab) -> None:
    alone = wrap_policy(new_policy(), PolicyOptions())
    stop = Sampling(max_tokens=40, stop=("e", "l"))
    asked = [request("x y", seed=n, sampling=stop) for n in range(8)]
    here = [await alone.complete(each) for each in asked]
    llm = lab.connect()
    there = [await llm.complete(each) for each in asked]
    assert [each.message for each in there] == [each.message for each in here]
    assert [each.tokens for each in there] == [each.tokens for each in here]
    forced = Message(role="assistant", content="List the files.")
    shown = request("x y")
    scored = [await each.force(shown, forced) for each in (llm, alone)]
    assert scored[0].tokens == scored[1].tokens
    await alone.aclose()


async def test_adapters_are_merged_into_what_the_servers_get(lab: Lab) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    llm = lab.connect()
    inject_adapter_in_model(LoraConfig(r=4, target_modules="all-linear"), llm.policy.model)
    with torch.no_grad():
        for name, weight in llm.policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    await llm.load_policy(PolicySnapshot(version=1))
    answer = await llm.complete(request("a b"))
    exact({1: llm.policy}, answer)
    with pytest.raises(AssertionError):
        exact({1: new_policy()}, answer)


async def test_two_agents_train_adapters_of_their_own_over_one_model(lab: Lab) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    agents = {name: lab.connect(adapter=name) for name in ("one", "two")}
    for seed, llm in enumerate(agents.values()):
        torch.manual_seed(seed)
        inject_adapter_in_model(LoraConfig(r=4, target_modules="all-linear"), llm.policy.model)
    for version in (1, 2):
        for name, llm in agents.items():
            with torch.no_grad():
                for part, weight in llm.policy.model.named_parameters():
                    if "lora_B" in part:
                        weight.normal_(std=0.2)
            await llm.load_policy(PolicySnapshot(version=version))
            assert lab.engines[0].server._adapters[name]._policy.version == version
        for llm in agents.values():
            exact({version: llm.policy}, await llm.complete(request("a b")))
    worker = lab.connect(adapter="two", **await agents["two"].client_options())
    exact({2: agents["two"].policy}, await worker.complete(request("c d")))
    plain = lab.connect()
    exact({0: new_policy()}, await plain.complete(request("c d")))
    (files,) = {len([*folder.iterdir()]) for folder in (lab.folder / "run/weights").glob("*/v*2")}
    assert files == 3, "an adapter travels alone: its tensors, its config, the marker"
    with pytest.raises(AleError, match="the model has no LoRA adapters"):
        await lab.connect(adapter="three").load_policy(PolicySnapshot(version=1))


async def test_weights_of_another_model_change_nothing(lab: Lab) -> None:
    llm = lab.connect()
    with pytest.raises(InputError, match="another model"):
        await llm.load_policy(PolicySnapshot(version=1, weights={"x": torch.zeros(1)}))
    answer = await llm.complete(request("a b", n=4))
    assert answer.tokens is not None
    assert {*answer.tokens.policy_versions} == {llm.policy_version} == {0}


async def test_the_model_s_own_weights_are_dropped_when_others_are_given(lab: Lab) -> None:
    llm = lab.connect()
    for version in (1, 2):
        other = new_policy(seed=version + 6)
        weights = dict(other.model.named_parameters())
        await llm.load_policy(PolicySnapshot(version=version, weights=weights))
        exact({version: other}, await llm.complete(request("a b")))
        assert {each.untyped_storage().nbytes() for each in llm.policy.base.parameters()} == {4}
    del weights["model.norm.weight"]
    with pytest.raises(InputError, match=r"is not given its parameters model\.norm\.weight"):
        await llm.load_policy(PolicySnapshot(version=3, weights=weights))
    with pytest.raises(AleError, match="own weights were dropped"):
        await llm.load_policy(PolicySnapshot(version=3))
    exact({2: other}, await llm.complete(request("c d")))


async def test_a_server_with_other_weights_or_another_model_is_refused(lab: Lab) -> None:
    await lab.connect().check()
    new_policy(seed=4).save(lab.model)
    with pytest.raises(LLMError, match="which are not weights of this run"):
        await lab.connect().check()
    llm = lab.connect(take_over=True)
    await llm.check()
    exact({0: new_policy(seed=4)}, await llm.complete(request("a b")))
    tiny = {"model": None, "tiny": None}
    with pytest.raises(LLMError, match="it has another model"):
        await lab.connect(**tiny).check()


async def test_a_run_that_will_train_holds_its_servers_from_its_start(lab: Lab) -> None:
    trains = lab.connect()
    attach(trains, "in-place")
    await trains.check()
    lab.run_id = "another-run"
    other = lab.connect()
    with pytest.raises(LLMError, match=r"the run this-run \(process .* holds it since"):
        await other.check()
    await trains.aclose()
    await other.check()


async def test_a_worker_samples_from_the_weights_that_the_run_has_given(lab: Lab) -> None:
    run = lab.connect()
    worker = lab.connect(**await run.client_options())
    other = new_policy(seed=9)
    assert worker.policy_version == 0
    exact({0: new_policy()}, await worker.complete(request("a b")))
    await run.load_policy(PolicySnapshot(version=1, weights=dict(other.model.named_parameters())))
    exact({1: other}, await worker.complete(request("c d")))
    with pytest.raises(AleError, match="another process's to change"):
        await worker.load_policy(PolicySnapshot(version=2))


async def test_a_worker_refuses_the_weights_of_another_run(lab: Lab) -> None:
    run = lab.connect()
    worker = lab.connect(**await run.client_options(), timeout_s=0.5)
    lab.run_id = "another-run"
    other = dict(new_policy(seed=9).model.named_parameters())
    await lab.connect().load_policy(PolicySnapshot(version=7, weights=other))
    with pytest.raises(LLMError, match=r"is refused: the run another-run .* holds it since"):
        await worker.complete(request("a b"))


async def test_workers_sample_from_what_a_run_has_taken_over(lab: Lab) -> None:
    lab.run_id = "an-earlier-run"
    other = dict(new_policy(seed=9).model.named_parameters())
    await lab.connect().load_policy(PolicySnapshot(version=5, weights=other))
    lab.run_id = "this-run"
    run = lab.connect(take_over=True)
    worker = lab.connect(**await run.client_options())
    exact({0: new_policy()}, await worker.complete(request("a b")))


async def test_a_run_knows_the_weights_that_it_gave_before_it_was_killed(lab: Lab) -> None:
    other = dict(new_policy(seed=9).model.named_parameters())
    await lab.connect().load_policy(PolicySnapshot(version=2, weights=other))
    resumed = lab.connect()
    await resumed.check()
    await resumed.load_policy(PolicySnapshot(version=2, weights=other))
    exact({2: new_policy(seed=9)}, await resumed.complete(request("a b")))


@pytest.mark.parametrize("channel", ["folder", "shared_memory", "gloo"])
async def test_a_server_that_was_started_again_gets_the_present_weights(
    lab: Lab, channel: str
) -> None:
    llm = lab.connect(weights_channel=channel)
    other = new_policy(seed=9)
    weights = dict(other.model.named_parameters())
    await llm.load_policy(PolicySnapshot(version=3, weights=weights))
    await llm.complete(request("a b"))  # from then on it looks at its servers
    engine = lab.engines[0]

    def start_again() -> None:
        engine.policy.load_weights(dict(new_policy().model.named_parameters()))
        engine.policy.version = 0

    await engine.server.reload(start_again)
    await until(lambda: engine.policy_version == 3)
    for text in ("a b", "c d", "e f"):
        exact({3: other}, await llm.complete(request(text)))


async def test_a_request_whose_client_leaves_early_stops_nothing(lab: Lab) -> None:
    engine = lab.engines[0]
    busy = threading.Event()
    held = engine.engine.call(busy.wait)
    left = asyncio.create_task(engine.server.status())
    await asyncio.sleep(0.05)
    left.cancel()
    busy.set()
    await asyncio.wrap_future(held)
    assert (await engine.server.status()).version == 0


def test_the_model_of_own_servers_is_the_plain_one_though_adapters_were_added(
    tmp_path: Path,
) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    options = ServersOptions(start=1)
    llm = build_servers(options, BuildContext(run_directory=tmp_path))
    before = {name: weight.clone() for name, weight in llm.policy.base.named_parameters()}
    inject_adapter_in_model(LoraConfig(r=4, target_modules="all-linear"), llm.policy.model)
    assert llm._own is not None
    llm._own.write(llm.policy, llm._first)
    saved = load_policy(str(tmp_path / "servers" / "model"))
    after = dict(saved.base.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ({"type": "polcy"}, r"llm\.server\.type: no llm 'polcy'"),
        ({"type": "policy", "max_bach": 3}, r"llm\.server\.max_bach: unknown option"),
        ({"type": "policy", "max_batch": 0}, r"llm\.server\.max_batch: expected"),
    ],
)
def test_the_options_of_own_servers_are_checked_before_one_starts(
    section: dict[str, Any], found: str
) -> None:
    with pytest.raises(InputError, match=found):
        build_servers(ServersOptions(start=1, server=section), BuildContext())


def test_own_servers_serve_the_runs_model() -> None:
    with pytest.raises(ValueError, match="no 'model' of its own"):
        ServersOptions(start=1, server={"type": "policy", "model": "x"})


def test_each_own_server_has_its_own_gpus(tmp_path: Path) -> None:
    options = ServersOptions(start=2, gpus=("1", "2,3"))
    llm = build_servers(options, BuildContext(run_directory=tmp_path))
    assert llm._own is not None
    llm._own.write(llm.policy, llm._first)
    commands = llm._own.commands()
    assert [each.environ["CUDA_VISIBLE_DEVICES"] for each in commands] == ["1", "2,3"]
    # The workers of an executor sample from the same servers, and start none.
    assert (llm._client["start"], llm._client["gpus"]) == (0, [])
    with pytest.raises(ValueError, match=r"'gpus' has 2 entries, .* 'start' is 3"):
        ServersOptions(start=3, gpus=("1", "2,3"))


def test_what_follows_starts_and_takes_over_nothing() -> None:
    follow = Following(version=0, digest="x")
    with pytest.raises(ValueError, match="'follow' takes the servers as they are"):
        ServersOptions(urls=("http://127.0.0.1:1",), follow=follow, take_over=True)


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = ServersOptions(urls=("http://127.0.0.1:9",), timeout_s=0.3)
    llm = build_servers(options, BuildContext(run_directory=tmp_path))
    with pytest.raises(LLMError, match=r"http://127\.0\.0\.1:9 can't be reached"):
        await llm.check()
    with pytest.raises(LLMError, match="0 of 1 servers are ready"):
        await llm.complete(request("a"))
    await llm.aclose()
    assert not (tmp_path / "weights").exists()


class OneToken:
    """A `Program` that samples one token, and says from which weights."""

    def __init__(self) -> None:
        self.label = ""

    async def is_ready(self) -> bool:
        return True

    async def begin(self, label: str) -> None:
        self.label = label

    async def sample(self, request: SampleRequest, model: str | None) -> Answered:
        return Answered(ids=(7,), logprobs=(-1.0,), labels=(self.label,), reason="length")

    async def load(self, weights: Weights, label: str) -> None:
        self.label = label

    async def _done(self, *_: Any) -> None: ...

    check = pause = resume = abort = _done


def program(monkeypatch: pytest.MonkeyPatch, *argv: str) -> None:
    """Let every own server be such a program; its process runs the command."""

    def build(section: Node, *_: Any) -> tuple[None, HostedLLM]:
        model = section.get("model")
        assert model is not None
        served = Model(
            folder=Path(str(model.value)),
            name="one",
            context=99,
            vocabulary=330,
            max_running=4,
            start_s=60,
        )
        command = Command(argv=argv, log=Path("/dev/null"))
        return None, HostedLLM(served, command, "http://one", lambda _: OneToken())

    monkeypatch.setattr("ale_llm_policy.servers.build_choice", build)


async def test_a_program_of_the_run_s_own_is_asked_without_a_server_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "sleep", "600")
    options = ServersOptions(start=1, server={"type": "vllm-server"}, refresh_s=0.05)
    llm = build_servers(options, BuildContext(run_directory=tmp_path))
    first = await llm.complete(request("a"))
    other = dict(new_policy(seed=9, shape=TinyShape()).model.named_parameters())
    await llm.load_policy(PolicySnapshot(version=3, weights=other))
    second = await llm.complete(request("a"))
    versions = [each.tokens and each.tokens.policy_versions for each in (first, second)]
    assert versions == [(0,), (3,)]
    assert not (tmp_path / "servers" / "registry").exists(), "nobody else finds it"
    with pytest.raises(AleError, match="for this process alone"):
        await llm.client_options()
    (task,) = [each.supervising for each in llm._programs.values()]
    await llm.aclose()
    assert task is not None
    assert task.done()


async def test_a_program_of_the_run_s_own_that_always_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program(monkeypatch, "sh", "-c", "echo out of memory; exit 2")
    monkeypatch.setattr(OneToken, "is_ready", OneToken._done)
    options = ServersOptions(start=1, server={"type": "vllm-server"}, timeout_s=300.0)
    llm = build_servers(options, BuildContext(run_directory=tmp_path))
    with pytest.raises(LLMError, match=r"are not started again\n.*own-0.log:\nout of memory"):
        await asyncio.wait_for(llm.complete(request("a")), timeout=60.0)
    assert any("own-0: the server ended with status 2" in each for each in caplog.messages)
    await llm.aclose()


async def test_own_servers_that_end_for_good_are_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ServersOptions(start=2, server={"type": "policy", "device": "cuda"}, timeout_s=300.0)
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    llm = build_servers(options, BuildContext(run_directory=tmp_path, environ=environ))
    answers = asyncio.gather(*(llm.complete(request(text)) for text in "ab"))
    with pytest.raises(LLMError, match=r"have ended, and are not started again\n.*own-0\.log:\n."):
        await asyncio.wait_for(answers, timeout=120.0)
    assert {"own-0: the server ended", "own-1: the server ended"} <= {
        message[:23] for message in caplog.messages
    }
    await llm.aclose()
