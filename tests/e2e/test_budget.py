"""`run.budget`: a run ends when it is spent, and a resume with a larger one continues it."""

import json
import re
import signal
from typing import Any

import pytest

from ale._config.model import Budget, Price
from ale._run.spending import Spending

DONE = [
    {"shell": "touch done", "prompt_tokens": 100, "tokens": 20},
    {
        "calls": [{"name": "finish", "arguments": {"summary": "ok"}}],
        "prompt_tokens": 150,
        "tokens": 30,
    },
]
"""300 tokens."""
PRICE = {"prompt": 2.0, "completion": 10.0}


def prepared(workshop: Any, script: Any = DONE, **run: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": script}, run={"rollouts": 10, "concurrency": 1, **run})


@pytest.mark.parametrize(
    ("budget", "stored", "spent"),
    [
        ({"tokens": 901}, 4, "1,200 of 901 tokens"),
        ({"episodes": 3}, 3, "3 of 3 episodes"),
        # 250 tokens read and 50 written are $0.001.
        ({"usd": 0.002, "price": PRICE}, 2, "0.0020 of 0.0020 usd"),
    ],
)
def test_a_run_ends_when_its_budget_is_spent_and_a_larger_one_continues_it(
    workshop: Any, budget: dict[str, Any], stored: int, spent: str
) -> None:
    prepared(workshop, budget=budget)
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 4, ended.text
    assert f"the budget is spent: {spent}" in ended.out
    assert re.search(r"^  ale run --resume \S+ --set run.budget.\w+=[\d.]+$", ended.out, re.M)
    assert len(workshop.lines()) == stored
    outcome = json.loads((workshop.run / "manifest.json").read_text())["outcome"]
    assert outcome["outcome"] == "drained"
    shown = workshop.succeeds("show", str(workshop.run)).out
    assert re.search(rf": drained after .*: the budget is spent: {spent}$", shown, re.M), shown

    again = workshop.ale("run", "--resume", str(workshop.run))
    assert again.code == 4, again.text
    assert len(workshop.lines()) == stored, "what earlier processes have spent counts"

    larger = [
        f"run.budget.{name}={value * 100}" for name, value in budget.items() if value != PRICE
    ]
    rest = workshop.ale("run", "--resume", str(workshop.run), "--set", larger[0])
    assert rest.code == 0, rest.text
    assert len(workshop.lines()) == 10


def test_hours_before_a_resume_count(workshop: Any) -> None:
    slow = [{"shell": "sleep 0.5; touch done"}, DONE[1]]
    prepared(workshop, slow, budget={"hours": 1.5 / 3600})
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 4, ended.text
    before = len(workshop.lines())
    assert before < 10
    again = workshop.ale("run", "--resume", str(workshop.run))
    assert again.code == 4, again.text
    assert len(workshop.lines()) == before


def test_hours_of_a_killed_process_count(workshop: Any) -> None:
    slow = [{"shell": "sleep 0.3; touch done"}, DONE[1]]
    prepared(workshop, slow, budget={"hours": 1.0}, rollouts=400)
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: workshop.runs and len(workshop.lines()) >= 5)
    running.signal(signal.SIGKILL)
    running.ended()
    before = len(workshop.lines())
    assert before < 400
    more = ("--set", f"run.budget.hours={1.2 / 3600}")
    again = workshop.ale("run", "--resume", str(workshop.run), *more)
    assert again.code == 4, again.text
    assert len(workshop.lines()) == before


@pytest.mark.parametrize("schedule", ["steps", "stream"])
def test_a_budget_of_just_what_was_planned_is_enough(workshop: Any, schedule: str) -> None:
    extra = {} if schedule == "steps" else {"schedule": "stream"}
    workshop.task("t")
    workshop.scripted(
        {"default": DONE},
        trainer={"type": "export", "path": "rows"},
        run={"rollouts": 3, "steps": 2, "budget": {"episodes": 6}, **extra},
    )
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 0, ended.text
    assert ended.out.startswith("completed: 6 episodes")
    assert len([*(workshop.run / "credits").iterdir()]) == 2


def test_the_first_ctrl_c_after_a_budget_is_spent_discards_nothing(workshop: Any) -> None:
    gate = workshop.folder / "gate"
    held = [{"shell": f"{workshop.until(gate)}; touch done"}, DONE[1]]
    workshop.task("t")
    workshop.scripted(
        {"tasks": {"t": [DONE, held]}},
        run={"rollouts": 2, "concurrency": 2, "budget": {"episodes": 1}},
    )
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: running.has_printed("the budget is spent"))
    running.signal(signal.SIGINT)
    workshop.wait_for(lambda: running.has_printed("press Ctrl-C again"))
    gate.touch()
    assert running.ended().code == 130
    assert len(workshop.lines()) == 2


def test_tokens_that_the_model_does_not_count_are_not_taken_for_none(workshop: Any) -> None:
    uncounted = [{**line, "prompt_tokens": 0, "tokens": 0} for line in DONE]
    prepared(workshop, uncounted, budget={"tokens": 1_000_000})
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 4, ended.text
    assert "the model did not count the tokens of 0-t-0, which the budget needs" in ended.out
    assert len(workshop.lines()) == 1


def test_dollars_need_a_price(workshop: Any) -> None:
    prepared(workshop, budget={"usd": 1})
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 2, ended.text
    assert "run.yaml:" in ended.err
    assert "run.budget.usd: the price of the model is not known" in ended.err
    assert not workshop.runs


def test_a_price_comes_from_litellm_s_table(workshop: Any) -> None:
    table = {"m": {"input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5}, "free": {}}
    workshop.write("site/litellm/__init__.py", "raise ImportError('to import it takes seconds')\n")
    workshop.write("site/litellm/model_prices_and_context_window_backup.json", table)
    workshop.environ["PYTHONPATH"] = str(workshop.folder / "site")
    workshop.task("t")
    for model, code in (("m", 0), ("free", 2)):
        llm = {"type": "openai", "model": model, "base_url": "http://127.0.0.1:9/v1"}
        workshop.config(llm=llm, run={"budget": {"usd": 1}})
        ended = workshop.ale("run", "run.yaml", "--dry-run", OPENAI_API_KEY="k")
        assert ended.code == code, ended.text
    assert "the price of 'free' is not known: litellm's table lacks it" in ended.err


def test_the_larger_budget_is_written_as_the_config_takes_it() -> None:
    """A large number, too: YAML reads 1e+07 as text."""
    tokens = Spending(Budget(tokens=5_000_000), prompt_tokens=6_000_001)
    assert tokens.larger() == "run.budget.tokens=12000002"
    dollars = Spending(
        Budget(usd=2_000_000.0), Price(prompt=1e6, completion=0.0), prompt_tokens=2_000_000
    )
    assert dollars.larger() == "run.budget.usd=4000000.000000"
