"""Contract kit for policies that can be trained: it trains them. It needs torch and a trainer.

The trainer is the installed one of the type ``policy``: `pip install ale-trainer-policy`::

    class TestMine(TrainablePolicyContract):
        @pytest.fixture
        def make_policy(self) -> Callable[[], TrainablePolicy]:
            return lambda: MyPolicy(seed=0)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import LLM, PolicyModel, TrainablePolicy, Trainer, missing
from ale.runs import Registry, build_choice
from ale.strict import from_plain
from ale.testing._marks import async_tests
from ale.testing.builders import group
from ale.testing.fakes import FakeChunker
from ale.testing.llm import CAPITAL, LLMContract, ask
from ale.types import (
    HAND_OVERS,
    Batch,
    Completion,
    Credit,
    CreditedGroup,
    Episode,
    HandOver,
    Message,
    PolicySnapshot,
    Sampling,
    Trajectory,
    Turn,
    replace,
)

ANSWER = Message(role="assistant", content="Paris.")
"""The answer that is learned."""
_SYNC: Mapping[HandOver, str] = {"in-place": "same", "tensors": "copy"}
"""Options ``sync`` of the trainer, by how it hands weights over; it writes no folders."""
_STEPS = 3


@async_tests
class TrainablePolicyContract(LLMContract):
    """The contract of every `TrainablePolicy`, tested with a real trainer. Override `make_policy`.

    It includes `LLMContract`.
    """

    tolerance = 1e-3
    """Difference allowed between sampled and computed log-probabilities of the same engine."""

    @pytest.fixture
    def make_policy(self) -> Callable[[], TrainablePolicy]:
        """Builds the policy each time it is called, with the same initial weights."""
        raise NotImplementedError("give the kit its fixture 'make_policy'")

    @pytest_asyncio.fixture
    async def policy(
        self, make_policy: Callable[[], TrainablePolicy]
    ) -> AsyncIterator[TrainablePolicy]:
        """A policy, closed after the test."""
        made = make_policy()
        yield made
        await made.aclose()

    @pytest.fixture
    def llm(self, policy: TrainablePolicy) -> LLM:
        """The policy."""
        return policy

    @pytest.fixture
    def make_trainer(self) -> Callable[[TrainablePolicy, HandOver], Trainer]:
        """Builds a trainer that hands weights over in this way: ``in-place`` or ``tensors``."""
        return installed_trainer

    def test_it_has_every_member(self, policy: TrainablePolicy) -> None:
        assert missing(policy, TrainablePolicy) == []
        assert missing(policy.policy, PolicyModel) == []
        assert policy.capabilities.token_ids, "a trainer needs the ids that were sampled"
        assert isinstance(policy.sampling, Sampling)
        assert policy.same_engine in (True, False, None)
        assert policy.hand_overs, "it takes no weights"
        assert policy.hand_overs <= HAND_OVERS, f"the ways are {get_args(HandOver)}"
        import_module("torch").device(policy.training_device)

    def test_each_one_that_is_built_is_the_same_model(
        self, make_policy: Callable[[], TrainablePolicy]
    ) -> None:
        first, second = make_policy().policy, make_policy().policy
        assert first.fingerprint == second.fingerprint != ""
        torch = import_module("torch")
        pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)

    async def test_sampled_log_probabilities_are_the_model_s(self, policy: TrainablePolicy) -> None:
        answer = await policy.complete(ask(CAPITAL, sampling=Sampling(max_tokens=8)))
        temperature = policy.sampling.temperature
        if temperature is not None and policy.sampling.top_p in (None, 1.0):
            self._assert_scored(policy, answer, temperature or 1.0, greedy=temperature == 0)

    async def test_a_forced_answer_is_scored_by_the_model(self, policy: TrainablePolicy) -> None:
        answer = await policy.force(ask(CAPITAL), ANSWER)
        assert answer.forced
        assert answer.message.content == ANSWER.content
        self._assert_scored(policy, answer, 1.0)

    @pytest.mark.parametrize("hand_over", sorted(_SYNC))
    async def test_what_a_trainer_learns_reaches_the_sampler(
        self,
        policy: TrainablePolicy,
        make_trainer: Callable[[TrainablePolicy, HandOver], Trainer],
        hand_over: HandOver,
    ) -> None:
        trainer = make_trainer(policy, hand_over)
        if hand_over not in policy.hand_overs:
            with pytest.raises(InputError, match="does not take"):
                trainer.attach(policy)
            return
        trainer.attach(policy)
        before = await policy.force(ask(CAPITAL), ANSWER)
        version = policy.policy_version
        for step in range(_STEPS):
            report = await trainer.step(_batch(step, await policy.force(ask(CAPITAL), ANSWER)))
            snapshot = trainer.snapshot()
            assert snapshot.hand_over == hand_over
            await policy.load_policy(snapshot)
            assert policy.policy_version == report.policy_version > version
            version = report.policy_version
        after = await policy.force(ask(CAPITAL), ANSWER)
        assert _sum(after) > _sum(before) + 0.01, "the rewarded answer is not likelier"
        self._assert_scored(policy, after, 1.0, weights=snapshot.weights)
        sampled = await policy.complete(ask(CAPITAL, sampling=Sampling(max_tokens=8)))
        assert sampled.tokens is not None
        assert {*sampled.tokens.policy_versions} == {version}, "tokens of the earlier weights"

    async def test_weights_are_read_from_a_folder(
        self, policy: TrainablePolicy, tmp_path: Path
    ) -> None:
        if "folder" not in policy.hand_overs:
            return
        given = {
            name: each.detach().clone() * 1.25
            for name, each in policy.policy.model.named_parameters()
        }
        save = import_module("safetensors.torch").save_file
        save(given, tmp_path / "model.safetensors")
        policy.attached()
        await policy.load_policy(PolicySnapshot(version=7, path=str(tmp_path)))
        answer = await policy.force(ask(CAPITAL), ANSWER)
        assert policy.policy_version == 7
        self._assert_scored(policy, answer, 1.0, weights=given)

    async def test_weights_of_another_model_are_refused_and_change_nothing(
        self, policy: TrainablePolicy
    ) -> None:
        if "tensors" not in policy.hand_overs:
            return
        policy.attached()
        before = await policy.force(ask(CAPITAL), ANSWER)
        foreign = {"no.such.parameter": import_module("torch").zeros(1)}
        with pytest.raises(InputError):
            await policy.load_policy(PolicySnapshot(version=9, weights=foreign))
        assert policy.policy_version != 9
        assert _sum(await policy.force(ask(CAPITAL), ANSWER)) == pytest.approx(_sum(before))

    async def test_answers_and_updates_at_once_do_not_mix(self, policy: TrainablePolicy) -> None:
        if "tensors" not in policy.hand_overs:
            return
        policy.attached()
        model = policy.policy.model
        first = {name: each.detach().clone() for name, each in model.named_parameters()}
        second = {name: each * 1.25 for name, each in first.items()}
        asked = [policy.force(ask(CAPITAL, seed=n), ANSWER) for n in range(4)]
        update = policy.load_policy(PolicySnapshot(version=1, weights=second))
        task = asyncio.create_task(update)
        answers = await asyncio.gather(*asked)
        await task
        for answer in answers:
            assert answer.tokens is not None
            (version,) = {*answer.tokens.policy_versions}
            self._assert_scored(policy, answer, 1.0, weights=second if version else first)

    def _assert_scored(
        self,
        policy: TrainablePolicy,
        answer: Completion,
        temperature: float,
        *,
        weights: Mapping[str, Any] | None = None,
        greedy: bool = False,
    ) -> None:
        """Compare log-probabilities with a forward pass of the model."""
        assert answer.tokens is not None
        assert answer.tokens.policy_versions
        if policy.same_engine is not True:
            return
        found = answer.tokens.logprobs
        expected = (0.0,) * len(found)
        if not greedy:
            expected = _scored(policy.policy, answer, temperature, weights)
        assert found == pytest.approx(expected, abs=self.tolerance)


def installed_trainer(policy: TrainablePolicy, hand_over: HandOver) -> Trainer:
    """The trainer ``policy`` as `ale run` builds it, which has to be installed.

    Args:
        policy: what it will be attached to; another engine than the trainer's needs a correction.
    """
    section: dict[str, Any] = {"type": "policy", "lr": 1e-2, "sync": _SYNC[hand_over]}
    if policy.same_engine is not True:
        section["correction"] = "truncate"
    section["objective"] = "ipa"
    made: Trainer
    _, made = build_choice(from_plain(section), "trainer", Registry.installed(), BuildContext())
    return made


def _batch(step: int, answer: Completion) -> Batch:
    """One episode with this answer, rewarded as if it had been sampled."""
    prompt = ask(CAPITAL).messages
    turn = Turn(prompt=prompt, fresh_context=True, completion=replace(answer, forced=False))
    trajectory = Trajectory(turns=(turn,))
    episode = Episode(
        id=f"{step}-capital-0",
        task_id="capital",
        rollout=0,
        reward=1.0,
        trajectory=trajectory,
    )
    credit = Credit(
        episode_id=episode.id, scheme="kit", rewards=(1.0,), returns=(1.0,), weights=(1.0,)
    )
    grouped = group((episode, FakeChunker().split(trajectory)))
    return Batch(step=step, groups=(CreditedGroup(group=grouped, credits=(credit,)),))


def _sum(answer: Completion) -> float:
    assert answer.tokens is not None
    return sum(answer.tokens.logprobs)


def _scored(
    policy: PolicyModel,
    answer: Completion,
    temperature: float,
    weights: Mapping[str, Any] | None,
) -> tuple[float, ...]:
    """The log-probabilities of an answer by one forward pass, with `weights` if they are given."""
    torch, trace = import_module("torch"), answer.tokens
    assert trace is not None
    device = next(policy.model.parameters()).device
    ids = torch.tensor([[*trace.prompt_ids, *trace.output_ids]], device=device)
    call = {"use_cache": False}
    with torch.no_grad(), policy.lock:
        if weights is None:
            out = policy.model(ids, **call)
        else:
            names = [name for name, _ in policy.model.named_parameters()]
            here = {name: weights[name].to(device) for name in names}
            out = torch.func.functional_call(policy.model, here, (ids,), call)
    logits = out.logits[0, len(trace.prompt_ids) - 1 : -1].float() / temperature
    chosen = torch.tensor(trace.output_ids, device=device)[:, None]
    return tuple(logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist())
