"""A decorated function is a component, with its keyword-only parameters as options."""

import asyncio
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

import ale
from ale._config import load_config
from ale._registry import Registry
from ale.errors import ChunkError, GradingError, InputError, PluginError
from ale.functions import function_of
from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.runs import build_choice, parse_choice, read_choice
from ale.strict import from_plain
from ale.testing.builders import episode, task, trajectory, turn
from ale.types import BatchStatistics, Group, Limits, Rollout, Score, Stop

MINE = '''\
import ale

@ale.criterion("short")
def short_answer(answer, *, words: int = 50, ignore: list[str] = []) -> float:
    """At most so many words.

    More about it.
    """
    left = [word for word in answer.text.split() if word not in ignore]
    return float(len(left) <= words)

@ale.credit
def half(group, *, share: float):
    return [[share for _ in rollout.chunks] for rollout in group.rollouts]

@ale.agent
async def idle(context, *, max_turns: int = 5, patience: int = 1):
    """Does nothing."""

@ale.tasks
def numbers(*, count: int = 2):
    return [ale.Task(id=str(i), goal="Say it.") for i in range(count)]

@ale.chunker
def whole(trajectory):
    return [range(len(trajectory.turns))]

alias = whole
'''
CONFIG = """\
plugins: [mine.py]
tasks: {type: numbers}
agent: {type: idle}
credit: {type: half, share: 0.25}
chunker: {type: whole}
"""


@pytest.fixture
def load(tmp_path: Path, registry: Registry) -> Callable[[str, str], Any]:
    def load(code: str, config: str = CONFIG) -> Any:
        (tmp_path / "mine.py").write_text(code)
        (tmp_path / "c.yaml").write_text(config)
        return load_config(tmp_path / "c.yaml", registry)

    return load


def product(registry: Registry, kind: str, choice: str) -> Any:
    return build_choice(parse_choice(choice, option="test"), kind, registry, BuildContext())[1]


def two_turns() -> Any:
    return trajectory(turn("one two three"), turn("four five six"))


def test_every_kind_of_function_is_a_component_of_a_plugin_file(
    load: Callable[..., Any], registry: Registry
) -> None:
    config = load(MINE)
    assert config.credit.options.share == 0.25
    assert config.tasks.options.count == 2
    short = registry.find("criterion", "mine.py/short")
    assert short.component.summary == "At most so many words."
    found = asyncio.run(
        product(registry, "criterion", "short:words=2,ignore=[six]").grade(
            task(), two_turns(), None
        )
    )
    assert found == Score(criterion="short_answer", passed=True, value=1.0)
    chunks = product(registry, "chunker", "whole").split(two_turns())
    assert [[span.turn for span in chunk.spans] for chunk in chunks] == [[0, 1]]
    ended = episode(1.0, *two_turns().turns)
    group = Group(
        task_id=ended.task_id,
        rollouts=(Rollout(episode=ended, chunks=tuple(chunks)),),
        batch=BatchStatistics(n_episodes=1, mean_reward=1.0),
    )
    (credit,) = product(registry, "credit", "half:share=0.5").assign(group)
    assert (credit.weights, credit.rewards, credit.episode_id) == ((0.5,), (1.0,), ended.id)
    assert [each.id for each in product(registry, "tasks", "numbers:count=3").load()] == list("012")
    agent = product(registry, "agent", "idle")
    assert asyncio.run(agent.run(None)) == Stop(reason="finished")
    assert agent.limits == Limits(max_turns=5)


def test_the_options_of_a_function_are_checked_with_file_and_line(load: Callable[..., Any]) -> None:
    wrong = CONFIG.replace("share: 0.25", "share: half, shares: 1") + "run:\n  steps: 0\n"
    with pytest.raises(InputError) as caught:
        load(MINE, wrong)
    text = str(caught.value)
    assert "c.yaml:4: credit.share: expected a number" in text
    assert "c.yaml:4: credit.shares: unknown option" in text
    assert "did you mean 'share'?" in text
    with pytest.raises(InputError, match="'share' is missing"):
        load(MINE, CONFIG.replace(", share: 0.25", ""))


def test_a_package_may_register_functions_too(registry: Registry) -> None:
    module = type(ale)("mine")
    exec(MINE, vars(module))
    registry.add(module, "ale-mine", "1.0")
    assert not registry.failed
    names = [each.full_name for each in registry.registrations("chunker")]
    assert names.count("ale-mine/whole") == 1  # it has two names in the module


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("criterion", "def f(answer, *, n=3): ...", "option 'n' has no type: write 'n: int'"),
        ("criterion", "def f(answer, n: int = 3): ...", "'n' is no keyword-only parameter"),
        ("criterion", "def f(*, n: int = 3): ...", "it has no parameter for what it is given"),
        ("criterion", "def f(answer, **rest): ...", "'rest' takes anything: name each option"),
        ("criterion", "def f(answer, *, n: int = 'x'): ...", "the default of n: expected a whole"),
        ("criterion", "def f(answer, *, n: set = None): ...", "can't be of type"),
        ("criterion", "def f(answer, *, n: 'Nope' = 1): ...", "'Nope' is not defined"),
        ("criterion", "def f(answer, *, type: int = 1): ...", "can't be named 'type'"),
        ("criterion", "class f: ...", "is for functions"),
        ("credit", "async def f(group): ...", "it can't be async; the form is: def f(group"),
        ("credit", "def f(): ...", "the form is: def f(group: ale.Group, *, option: int = 1)"),
        ("agent", "def f(context): ...", "it must be 'async def'; the form is: async def f("),
        ("tasks", "def f(n: int = 1): ...", "'n' is no keyword-only parameter"),
        ("tasks", "async def f(): yield", "it can't be async"),
        ("chunker", "def f(a, b): ...", "'b' is no keyword-only parameter"),
    ],
)
def test_another_form_is_refused_with_the_right_one_and_the_line(
    load: Callable[..., Any], kind: str, code: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(f"import ale\n\n@ale.{kind}\n{code}\n")
    text = str(caught.value)
    assert message in text
    assert "c.yaml:1: plugins[0]: " in text
    assert "mine.py:3: " in text
    named = message in ("can't be named 'type'", "is for functions")
    assert ("the form is: " in text) != named


def test_a_name_is_registered_once(load: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="the name 'half' is registered twice"):
        load(MINE + "\n@ale.credit('half')\ndef other(group):\n    return []\n")


async def grade(function: Any, **options: Any) -> Score:
    found = function_of(function)
    assert found is not None
    component = found.component
    made = component.build(component.options(**options) if component.options else None, None)
    graded: Score = await made.grade(task(), two_turns(), None)
    return graded


@pytest.mark.asyncio
async def test_a_criterion_may_be_asynchronous_and_give_a_score() -> None:
    @ale.criterion
    async def mine(answer: ale.Answer) -> Score:
        await asyncio.sleep(0)
        return Score(criterion="mine", passed=False, value=0.5, detail=answer.text)

    assert (await grade(mine)).detail == "four five six"


@pytest.mark.asyncio
async def test_a_criterion_that_is_not_asynchronous_does_not_stop_the_others() -> None:
    met: list[int] = []

    @ale.criterion
    def waits(answer: ale.Answer) -> bool:
        while len(met) < 1:
            pass
        return True

    @ale.criterion
    async def meets(answer: ale.Answer) -> bool:
        met.append(1)
        return False

    both = await asyncio.wait_for(asyncio.gather(grade(waits), grade(meets)), 10)
    assert [score.value for score in both] == [1.0, 0.0]


@pytest.mark.asyncio
async def test_a_wrong_product_is_an_error_that_names_the_function() -> None:
    @ale.criterion
    def nothing(answer: ale.Answer) -> None: ...

    with pytest.raises(GradingError, match="nothing returned None; expected a number from 0 to 1"):
        await grade(nothing)


def test_weights_have_the_shape_of_the_group_and_chunks_every_turn() -> None:
    @ale.credit
    def flat(group: ale.Group) -> Any:
        return [[1.0, 2.0]]

    @ale.chunker
    def half(trajectory: ale.Trajectory) -> Any:
        return [[0]]

    built = {each: function_of(each).component.build(None, None) for each in (flat, half)}  # type: ignore[union-attr]
    with pytest.raises(ChunkError, match="expected lists of turn numbers that hold 0 to 1"):
        built[half].split(two_turns())
    rollout = Rollout(episode=episode(reward=1.0), chunks=())
    batch = BatchStatistics(n_episodes=1, mean_reward=1.0)
    with pytest.raises(PluginError, match=r"a number for each of its chunks.*\[0\]"):
        built[flat].assign(Group(task_id="t", rollouts=(rollout,), batch=batch))


def test_a_decorated_function_is_still_a_function() -> None:
    @ale.credit("mine")
    def mine(group: Any, *, share: float = 0.5) -> float:
        return share

    assert mine(None, share=2.0) == 2.0


LOSS = '''\
import ale

@ale.objective(needs_entropy=True, normaliser="tokens")
def mine(tokens, logp, old_logp, entropy, *, clip: float = 0.2, floor: float | None = None):
    """A loss."""
    return Loss(clip * logp.value)

class Loss:
    shape, requires_grad = (), True

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Loss(self.value + other.value)

    detach = sum = exp = __neg__ = lambda self: self
    __mul__ = __rmul__ = __sub__ = lambda self, other: self
'''


def trainer_of(objective: str) -> str:
    return f"{CONFIG}trainer: {{type: learns, objective: {objective}}}\n"


@frozen(kw_only=True)
class Learns:
    objective: Any = field(
        default="mine",
        metadata=doc("The loss.", component="objective", named_by="preset"),
    )


class Trainers:
    @hookimpl
    def ale_trainers(self) -> list[Component[Any, Any]]:
        return [Component("learns", Learns, lambda options, _: options, summary="Learns.")]


@pytest.mark.parametrize(
    ("written", "clip", "resolved"),
    [
        ("mine", 0.2, {"type": "mine.py/mine", "clip": 0.2, "floor": None}),
        ("mine.py/mine", 0.2, {"type": "mine.py/mine", "clip": 0.2, "floor": None}),
        ("{type: mine, clip: 1}", 1.0, {"type": "mine.py/mine", "clip": 1.0, "floor": None}),
        ("{preset: mine, clip: 1}", 1.0, {"type": "mine.py/mine", "clip": 1.0, "floor": None}),
    ],
)
def test_an_option_selects_a_component_which_arrives_built(
    load: Callable[..., Any], registry: Registry, written: str, clip: float, resolved: Any
) -> None:
    registry.add(Trainers(), "ale-learns")
    config = load(MINE + LOSS, trainer_of(written))
    assert config.resolved["trainer"]["objective"] == resolved
    options = read_choice(from_plain(config.resolved["trainer"]), "trainer", registry)
    objective = options.objective
    assert (objective.needs_entropy, objective.needs_reference) == (True, False)
    assert objective.normaliser == "tokens"
    assert objective._options == {"clip": clip, "floor": None}
    # It can be sent to a process that has not loaded the file.
    module = objective._function.__module__
    sent = pickle.dumps(objective)
    del sys.modules[module]
    again = pickle.loads(sent)
    assert sys.modules[module].__file__ == again._function.__code__.co_filename
    assert (again._options, again.needs_entropy) == (objective._options, True)


def test_an_option_that_selects_a_component_may_be_overridden(
    load: Callable[..., Any], registry: Registry, tmp_path: Path
) -> None:
    registry.add(Trainers(), "ale-learns")
    load(MINE + LOSS, trainer_of("mine"))
    for overrides in (["trainer.objective.clip=3"], ["trainer.objective={type: mine, clip: 3}"]):
        config = load_config(tmp_path / "c.yaml", registry, overrides)
        assert config.trainer.options.objective.options.clip == 3.0


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("mien", "c.yaml:6: trainer.objective: no objective 'mien'; installed: mine"),
        ("{type: mien}", "trainer.objective.type: no objective 'mien'"),
        ("{type: mine, clap: 1}", "trainer.objective.clap: unknown option"),
        ("{type: mine, preset: mine}", "'preset' is another word for 'type'"),
        ("{clip: 1}", "trainer.objective.type: 'type' is missing"),
        ("[mine]", "trainer.objective: expected a mapping with a type, found a list"),
    ],
)
def test_a_wrong_component_of_an_option_is_a_problem_of_the_config(
    load: Callable[..., Any], registry: Registry, written: str, message: str
) -> None:
    registry.add(Trainers(), "ale-learns")
    with pytest.raises(InputError) as caught:
        load(MINE + LOSS, trainer_of(written) + "run: {steps: 0}\n")
    text = str(caught.value)
    assert message in text
    assert "run.steps" in text  # with every other problem


def test_a_loss_that_is_none_is_said() -> None:
    @ale.objective
    def wrong(tokens: Any, logp: Any, old_logp: Any, entropy: Any) -> float:
        return 3.0

    found = function_of(wrong)
    assert found is not None
    made = found.component.build(None, BuildContext())
    with pytest.raises(PluginError, match=r"wrong returned 3\.0; expected a loss, a tensor"):
        made.evaluate(None, type("Logp", (), {"requires_grad": True}), None, None)
    with pytest.raises(PluginError, match="wrong is not in a file that other processes can import"):
        pickle.dumps(made)
