"""A teacher that reads a hint: exact gradients; and a student that reaches it without a reward."""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_servers.records import Sampled, SampleRequest, ServerStatus
from ale_servers.testing.serving import serving
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.hints import Hints
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import (
    PRESETS,
    HintOptions,
    KlOptions,
    LearnOptions,
    ObjectiveOptions,
    PolicyOptions,
)
from ale_trainer_policy.samples import Sample
from ale_trainer_policy.scorer import Scorer
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import by_sample, pack

USER, END, ASSISTANT = 1, 2, 3
PROMPT = [USER, 5, END, ASSISTANT]
HINTS = {"t": "w10 w10 w10", "u": "w11 w11 w11"}
"""The longest feedback on the episodes of each task."""
HINT_IDS = {"t": [0, 10, 10, 10], "u": [0, 11, 11, 11]}
"""As the tokenizer writes them; 0 is the unknown word `Hint:`."""
ANSWERS = (20, 21, 22)


def tokenizer() -> Any:
    """Words w0 to w63, of which three are special, and a template that needs these."""
    names = {USER: "<user>", END: "<end>", ASSISTANT: "<assistant>"}
    words = {names.get(i, f"w{i}"): i for i in range(64)}
    core = Tokenizer(models.WordLevel(words, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core,
        unk_token="w0",
        additional_special_tokens=[*names.values()],
        chat_template="{% for m in messages %}<user>{{ m.content }}<end>{% endfor %}<assistant>",
    )


def hinted(task: str) -> list[int]:
    return [*PROMPT[:2], *HINT_IDS[task], *PROMPT[2:]]


def feedback(*texts: str) -> dict[str, Any]:
    return {"feedback": [{"author": "ada", "text": text} for text in texts]}


def group(lab: Any, task: str, answers: Sequence[Sequence[int]], **metadata: Any) -> Any:
    said = metadata or feedback("ok", HINTS[task], "w12 w12")
    episodes = [
        lab.TokenEpisode(
            turns=[lab.TokenTurn(prompt=PROMPT, output=[*answer])],
            reward=0.0,
            weights=[0.0],
            metadata=said,
        )
        for answer in answers
    ]
    return lab.credited(*episodes, task=task)


OBJECTIVE = evolve(PRESETS["reinforce"], kl=KlOptions(coefficient=1.0, estimator="k2"))


def given(
    lab: Any, *groups: Any, hints: Hints | None = None, context: int = 99
) -> tuple[list[Sample], Hints, "Counter[str]"]:
    """The samples of a batch with their hints."""
    hints = hints or Hints(HintOptions(source="feedback"))
    hints.attach(tokenizer(), context)
    target = Reinforcement(objective=OBJECTIVE, imitation=ImitationOptions(when="off"))
    batch, counts = lab.batch_of(*groups), Counter[str]()
    return hints.given(batch, target.read(batch).samples, counts), hints, counts


class OnlyAnswers(torch.nn.Module):
    """A model that can say nothing but the answers, so that all it can say is enumerated."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model
        self.config = model.config

    def forward(self, **inputs: Any) -> Any:
        out = self.inner(**inputs)
        barred = torch.full_like(out.logits, -1e9)
        barred[..., list(ANSWERS)] = 0.0
        out.logits = out.logits + barred
        return out


def log_probabilities(model: Any, ids: Sequence[int]) -> Tensor:
    """Of the next token, by a plain forward pass."""
    found: Tensor = model(input_ids=torch.tensor([[*ids]])).logits[0, -1].log_softmax(-1)
    return found[list(ANSWERS)]


def divergence(student: Any, teacher: Any, chances: Tensor) -> Tensor:
    """KL(student || hinted teacher) of both tokens, after the first with these chances."""

    def kl(*after: int) -> Tensor:
        ours = log_probabilities(student, [*PROMPT, *after])
        with torch.no_grad():
            theirs = log_probabilities(teacher, [*hinted("t"), *after])
        return (ours.exp() * (ours - theirs)).sum()

    return kl() + sum(chance * kl(a) for chance, a in zip(chances, ANSWERS, strict=True))


def expected_gradient(lab: Any, student: Any, teacher: Any) -> Tensor:
    """Of the trainer's loss, where every answer was sampled as often as the student says it."""
    paths = list(itertools.product(ANSWERS, repeat=2))
    samples, hints, _ = given(lab, group(lab, "t", paths))
    learner = Learner(student, LearnOptions(logits_mb=None))
    logps = by_sample(samples, learner.logp(samples))
    shown = [hints.shown(each) for each in samples]
    taught = by_sample(shown, Scorer(teacher, LearnOptions(logits_mb=None)).logp(shown))
    weighted = [
        evolve(each, reference_logp=logp, regularised=math.exp(own.sum()))
        for each, logp, own in zip(samples, taught, logps, strict=True)
    ]
    learner.forward_backward(pack(weighted), OBJECTIVE)
    return torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])


def test_the_gradient_is_that_of_the_divergence_from_the_hinted_teacher(lab: Any) -> None:
    """All answers once, by their chances: against autograd, and against finite differences."""
    student = OnlyAnswers(lab.tiny_model(seed=0).double())
    teacher = OnlyAnswers(lab.tiny_model(seed=1).double())
    with torch.no_grad():
        chances = log_probabilities(student, PROMPT).exp()
    parameters = [each for each in student.parameters() if each.requires_grad]
    exact = torch.autograd.grad(divergence(student, teacher, chances), parameters)
    wanted = torch.cat([each.flatten() for each in exact])
    found = expected_gradient(lab, student, teacher)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-6

    # Norms of the model are in float32, so that a smaller step would measure rounding.
    slope = (
        moved(student, teacher, chances, parameters, 1e-3 * found / found.norm())
        - moved(student, teacher, chances, parameters, -1e-3 * found / found.norm())
    ) / 2e-3
    assert slope == pytest.approx(float(found.norm()), rel=1e-3)


def moved(
    student: Any, teacher: Any, chances: Tensor, parameters: Sequence[Any], step: Tensor
) -> float:
    """The divergence after a step of all parameters, which are then put back."""
    before = [each.detach().clone() for each in parameters]
    with torch.no_grad():
        parts = step.split([each.numel() for each in parameters])
        for each, part in zip(parameters, parts, strict=True):
            each += part.view_as(each)
        value = float(divergence(student, teacher, chances))
        for each, old in zip(parameters, before, strict=True):
            each.copy_(old)
    return value


def test_a_teacher_reads_the_longest_feedback_at_the_end_of_the_users_message(lab: Any) -> None:
    samples, hints, counts = given(lab, group(lab, "t", [[20, END], [21, END]]))
    shown = hints.shown(samples[0])
    assert shown.rows[0].tolist() == [*hinted("t"), 20, END]
    assert samples[0].rows[0].tolist() == [*PROMPT, 20, END], "the student's own context"
    assert shown.rows[0][shown.at].tolist() == [20, END]
    assert not counts


def test_every_context_of_an_episode_gets_the_hint(lab: Any) -> None:
    """The second turn follows the first; the third begins a new context."""
    turns = [
        lab.TokenTurn(prompt=PROMPT, output=[20, END]),
        lab.TokenTurn(prompt=[*PROMPT, 20, END, 9], output=[21, END]),
        lab.TokenTurn(prompt=[USER, 6, END, ASSISTANT], output=[22, END], fresh=True),
    ]
    episode = lab.TokenEpisode(turns=turns, metadata=feedback(HINTS["t"]))
    [sample], hints, _ = given(lab, lab.credited(episode))
    shown = hints.shown(sample)
    assert [row.tolist() for row in shown.rows] == [
        [*hinted("t"), 20, END, 9, 21, END],
        [USER, 6, *HINT_IDS["t"], END, ASSISTANT, 22, END],
    ]
    read = [int(shown.rows[row][at]) for row, at in zip(shown.row, shown.at, strict=True)]
    assert read == [20, END, 21, END, 22, END]


def test_what_has_no_hint_has_no_kl_term_and_is_counted(lab: Any) -> None:
    other = lab.TokenEpisode(
        turns=[lab.TokenTurn(prompt=[5, 6], output=[20])], metadata=feedback(HINTS["t"])
    )
    samples, _, counts = given(
        lab,
        group(lab, "t", [[20]], feedback=[{"author": "", "text": "  ok   "}]),
        group(lab, "u", [[20]], session="s"),
        lab.credited(other, task="v"),
    )
    assert [each.regularised for each in samples] == [0.0, 0.0, 0.0]
    assert [each.hint for each in samples] == [None, None, None]
    assert counts == {"trajectories_without_hint": 2, "hints_not_placed": 1}
    *_, counts = given(lab, group(lab, "t", [[20]]), context=len(PROMPT) + 4)
    assert counts == {"hints_too_long": 1}


def test_a_special_token_that_feedback_names_is_text(lab: Any) -> None:
    texts = feedback("w20<end>w20<assistant>")
    [sample], _, _ = given(lab, group(lab, "t", [[20]], **texts))
    assert sample.hint is not None
    assert not {END, ASSISTANT}.intersection(sample.hint.tolist())


def test_the_policys_own_tokenizer_still_reads_special_tokens(lab: Any) -> None:
    shared = tokenizer()
    hints = Hints(HintOptions(source="feedback"))
    hints.attach(shared, 99)
    target = Reinforcement(objective=OBJECTIVE, imitation=ImitationOptions(when="off"))
    batch = lab.batch_of(group(lab, "t", [[20]]))
    hints.given(batch, target.read(batch).samples, Counter())
    assert shared.backend_tokenizer.encode("w5<end>", add_special_tokens=False).ids == [5, END]


def test_hints_of_a_file_are_by_task(lab: Any, tmp_path: Path) -> None:
    path = tmp_path / "hints.yaml"
    path.write_text("t: w10\n'*': w12\n")
    hints = Hints(HintOptions(source="file", file=path))
    samples, _, _ = given(lab, group(lab, "t", [[20]]), group(lab, "u", [[20]]), hints=hints)
    assert [each.hint.tolist() for each in samples if each.hint is not None] == [[0, 10], [0, 12]]
    path.write_text("t: [w10]\n")
    with pytest.raises(InputError, match="expected a text, found a list"):
        Hints(HintOptions(source="file", file=path))
    for fields in ({"source": "file"}, {"source": "feedback", "file": path}):
        with pytest.raises(ValueError, match="'file' and source: file need each other"):
            HintOptions(**fields)  # type: ignore[arg-type]


def test_a_policy_without_a_chat_template_is_refused(lab: Any) -> None:
    for found in (None, PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))):  # type: ignore[no-untyped-call]
        with pytest.raises(InputError, match="no chat template") as caught:
            trainer(lab.InProcessLLM(lab.tiny_model(), found))
        assert caught.value.problems[0].path == "trainer.objective.kl.hint"


def trainer(llm: Any, environ: Any = None, **kl: Any) -> Any:
    options = KlOptions(coefficient=1.0, estimator="k2", hint=HintOptions(source="feedback"), **kl)
    objective = ObjectiveOptions(preset="reinforce", kl=options)
    context = BuildContext(environ=environ or {})
    made = policy_trainer(PolicyOptions(objective=objective, lr=3e-3), context)
    made.attach(llm)
    return made


def obedient(lab: Any) -> Any:
    """A model that answers as a hint says, and else any of three answers."""
    model = lab.tiny_model(initializer_range=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = [
        *((hinted("t"), 20),) * 3,
        *((hinted("u"), 21),) * 3,
        *((PROMPT, answer) for answer in ANSWERS),
    ]
    for _ in range(80):
        loss = torch.zeros(())
        for prompt, answer in rows:
            logits = model(input_ids=torch.tensor([[*prompt, answer]])).logits[0].log_softmax(-1)
            loss = loss - logits[len(prompt) - 1, answer] - logits[len(prompt), END]
        optimizer.zero_grad()
        (loss / len(rows)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def chance(model: Any, prompt: Sequence[int], answer: int) -> float:
    with torch.no_grad():
        found = model(input_ids=torch.tensor([[*prompt]])).logits[0, -1].softmax(-1)
    return float(found[answer])


async def learned(lab: Any, model: Any, made: Any, steps: int = 25) -> list[dict[str, float]]:
    """The metrics of steps on what the student samples, in two tasks of the same prompt."""
    generator = torch.Generator().manual_seed(0)
    metrics = []
    for step in range(steps):
        with torch.no_grad():
            first = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].softmax(-1)
        drawn = torch.multinomial(first, 16, replacement=True, generator=generator).tolist()
        batch = lab.batch_of(group(lab, "t", [[each, END] for each in drawn]), step=step)
        metrics.append((await made.step(batch)).metrics)
    return metrics


async def test_a_student_reaches_its_hinted_self_without_any_reward(lab: Any) -> None:
    model = obedient(lab)
    before = chance(model, PROMPT, 20)
    teacher = chance(model, hinted("t"), 20)
    assert 0.2 < before < 0.5, "without the hint any answer is as good"
    assert teacher > 0.95
    made = trainer(lab.InProcessLLM(model, tokenizer()))
    metrics = await learned(lab, model, made)
    assert metrics[0]["loss_rl"] == 0.0
    assert metrics[-1]["loss_kl"] < metrics[0]["loss_kl"] / 20
    assert chance(model, PROMPT, 20) > 0.9


async def test_a_student_that_reads_the_hint_too_learns_nothing(lab: Any) -> None:
    """The control of the test above: then both are the same policy."""
    model = obedient(lab)
    before = chance(model, PROMPT, 20)
    made = trainer(lab.InProcessLLM(model, tokenizer()))
    made._hints.attach(tokenizer(), 99)
    given = made._hints.given
    shown = made._hints.shown
    made._hints.given = lambda *of: [shown(each) for each in given(*of)]
    made._hints.shown = lambda each: each
    await learned(lab, model, made, steps=3)
    assert chance(model, PROMPT, 20) == pytest.approx(before, abs=1e-3)


class Scores:
    """The part of an `InferenceServer` that a teacher needs, with a model that is scored."""

    def __init__(self, model: Any) -> None:
        self.model = model

    async def sample(self, request: SampleRequest) -> Sampled:
        ids, forced = [*request.prompt_ids, *request.forced_ids], request.forced_ids
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        places = range(len(request.prompt_ids) - 1, len(ids) - 1)
        return Sampled(
            ids=forced,
            logprobs=tuple(float(logits[at, ids[at + 1]]) for at in places),
            versions=(0,) * len(forced),
            reason="forced",
            digests={0: "digest"},
        )

    async def status(self) -> ServerStatus:
        return ServerStatus(
            instance="one",
            model="tiny",
            fingerprint="tiny",
            version=0,
            digest="digest",
            paused=False,
            running=0,
            waiting=0,
            max_running=1,
            context=99,
            deterministic=True,
            since=0.0,
        )


async def test_a_teacher_on_a_server_gives_the_log_probabilities_of_one_in_memory(
    lab: Any, tmp_path: Path
) -> None:
    """Of two turns in one context, and one in another."""
    lab.tiny_model(seed=1).save_pretrained(tmp_path)
    turns = [
        lab.TokenTurn(prompt=PROMPT, output=[20, END]),
        lab.TokenTurn(prompt=[*PROMPT, 20, END, 9], output=[21, END]),
        lab.TokenTurn(prompt=[USER, 6, END, ASSISTANT], output=[22, END], fresh=True),
    ]
    episode = lab.TokenEpisode(
        turns=turns, reward=0.0, weights=[0.0] * 3, metadata=feedback(HINTS["t"])
    )
    batch = lab.batch_of(lab.credited(episode), group(lab, "u", [[20], [21]]))

    def llm() -> Any:
        return lab.InProcessLLM(lab.tiny_model(), tokenizer())

    near = trainer(llm(), to="reference", model=tmp_path)
    wanted = (await near.step(batch)).metrics
    teaching: Any = Scores(lab.tiny_model(seed=1))
    async with serving(teaching) as url:
        far = await asyncio.to_thread(trainer, llm(), to="server", server=f"{url}/")
        found = (await far.step(batch)).metrics
    assert wanted["loss_kl"] > 1
    assert found["loss_kl"] == pytest.approx(wanted["loss_kl"], rel=1e-4)
    assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-4)


def test_a_teacher_on_a_server_that_can_not_be_one_is_refused(lab: Any) -> None:
    def refused(temperature: float = 1.0, **fields: Any) -> Any:
        llm = lab.InProcessLLM(lab.tiny_model(), tokenizer(), temperature=temperature)
        with pytest.raises(InputError) as caught:
            trainer(llm, to="server", server="http://127.0.0.1:9", **fields)
        [problem] = caught.value.problems
        return problem.path, problem.message

    path, message = refused()
    assert path == "trainer.objective.kl.server"
    assert "can't be reached" in message
    expected = ("trainer.objective.kl.to", "a server scores at temperature 1")
    assert refused(temperature=0.7) == expected
    path, message = refused(api_key_env="TEACHER_KEY")
    assert path == "trainer.objective.kl.api_key_env"
    assert message == "the environment variable TEACHER_KEY is not set"
    for fields in ({"to": "server"}, {"server": "http://h"}):
        with pytest.raises(ValueError, match="'server' and to: server need each other"):
            KlOptions(coefficient=1.0, **fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'api_key_env' needs to: server"):
        KlOptions(coefficient=1.0, api_key_env="KEY")
