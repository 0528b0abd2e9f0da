"""`ale model`: what was trained, as a folder that transformers and PEFT load."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import field, frozen
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from ale.errors import InputError, Problem, StoreError
from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.runs import Registry
from ale_trainer_policy.commands import model
from ale_trainer_policy.options import LoraOptions, PolicyOptions, SftOptions
from ale_trainer_policy.plugin import ale_trainers
from ale_trainer_policy.worker_group import WorkerGroup
from ale_training import checkpoint
from ale_training.testing import InProcessLLM

IDS = torch.tensor([[3, 9, 1, 7, 30, 2, 8, 8]])
TRAINERS = {component.name: component for component in ale_trainers()}


@frozen(kw_only=True)
class StandInOptions:
    """Of a model in this process: from a folder, or from the run's seed."""

    model: str | None = field(default=None, metadata=doc("Folder."))
    width: int = field(default=32, metadata=doc("Of one that is made."))
    stop: tuple[str, ...] = field(default=(), metadata=doc("Texts that end an answer."))
    max_tokens: int = field(default=512, metadata=doc("Of an answer."))


class StandIn(InProcessLLM):
    """As ale-llm-policy's component, which this package's tests can't install."""

    def __init__(self, model: Any, fingerprint: str) -> None:
        super().__init__(model, _tokenizer(), fingerprint=fingerprint)
        self.policy.save = self.save
        self.policy.load_weights = self.load_weights
        self.closed = 0

    def save(self, directory: Path) -> None:
        self.policy.model.save_pretrained(directory)
        self.policy.tokenizer.save_pretrained(directory)

    def load_weights(self, weights: Any) -> None:
        found = self.policy.model.load_state_dict(weights, strict=False)
        assert found.missing_keys in ([], ["lm_head.weight"])
        assert found.unexpected_keys == []

    async def aclose(self) -> None:
        self.closed += 1


def _tokenizer() -> Any:
    core = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="w1", chat_template="{{ messages[0].content }}"
    )


@pytest.fixture
def maker(lab: Any) -> Any:
    made: list[StandIn] = []

    def build(options: StandInOptions, context: BuildContext) -> StandIn:
        if options.model is None:
            model = lab.tiny_model(seed=context.seed, hidden_size=options.width)
        elif Path(options.model).is_dir():
            model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        else:
            raise InputError([Problem(message=f"no {options.model}", path="llm.model")])
        made.append(StandIn(model, f"tiny-{options.width}"))
        return made[-1]

    component = Component("stand-in", StandInOptions, build, summary="In this process.")

    class Plugin:
        @hookimpl
        def ale_llms(self) -> Any:
            return [component]

    registry = Registry()
    registry.add(Plugin(), "acme")
    return SimpleNamespace(registry=registry, build=build, made=made)


@pytest.fixture
def train(lab: Any, maker: Any, tmp_path: Path) -> Any:
    """Trains for two steps as a run does; gives the run and the sampler's logits after each."""

    def trained(name: str = "policy", llm: Any = None, **fields: Any) -> Any:
        run = tmp_path / "runs" / "r"
        seed, given = 5, dict(llm or {})
        stands = maker.build(StandInOptions(**given), BuildContext(seed=seed))
        cls = PolicyOptions if name == "policy" else SftOptions
        trainer = TRAINERS[name].build(
            cls(lr=3e-2, **fields), BuildContext(seed=seed, run_directory=run)
        )
        trainer.attach(stands)
        after = []
        for step in range(2):
            batch = lab.batch_of(lab.random_group(step + 1), step=step)
            asyncio.run(trainer.step(batch))
            directory = run / "checkpoints" / f"{step:05d}"
            directory.mkdir(parents=True)
            trainer.save(directory)
            after.append(_logits(_sampler(stands.policy.model, trainer.snapshot())))
        if isinstance(trainer._learner, WorkerGroup):
            trainer._learner.close()
        assert not torch.equal(*after), "a step has changed the model"
        options = {"lr": 3e-2, **{key: _plain(value) for key, value in fields.items()}}
        config = {
            "chunker": {"type": "ale-chunkers/interaction"},
            "llm": {"type": "acme/stand-in", "width": 32, "stop": [], **given},
            "trainer": {"type": f"ale-trainer-policy/{name}", **options},
        }
        write(run, config, seed)
        return SimpleNamespace(run=run, after=after, config=config)

    return trained


def _plain(value: Any) -> Any:
    return {"r": value.r, "alpha": value.alpha} if isinstance(value, LoraOptions) else value


def _sampler(model: Any, snapshot: Any) -> Any:
    """The model that samples: the one that is trained, or one with the weights handed over."""
    if snapshot.weights is None:
        return model
    model.load_state_dict(snapshot.weights)
    return model


def write(run: Path, config: Any, seed: int = 5) -> None:
    manifest = {"schema": 1, "run_id": "r", "n_tasks": 1, "seed": seed, "config": config}
    run.mkdir(parents=True, exist_ok=True)
    (run / "manifest.json").write_text(json.dumps(manifest))


def _logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(IDS).logits.clone()


@pytest.fixture
def command(maker: Any) -> Any:
    def invoked(*arguments: Any) -> Any:
        result = CliRunner().invoke(model, [str(each) for each in arguments], obj=maker.registry)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return invoked


def refused(command: Any, *arguments: Any) -> Problem:
    with pytest.raises(InputError) as caught:
        command(*arguments)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("name", ["policy", "sft"])
def test_the_folder_holds_the_newest_weights_or_those_of_a_step(
    train: Any, command: Any, maker: Any, tmp_path: Path, name: str
) -> None:
    more = {"learn_from": "both", "min_reward": 0.0} if name == "sft" else {}
    done = train(name, **more)
    count_of = {1: "1 step", 2: "2 steps"}
    for steps, arguments in ((2, ()), (1, ("--after", 1))):
        out = tmp_path / "models" / f"after-{steps}"
        output = command(done.run, "--out", out, *arguments)
        assert f"{out}: the model after {count_of[steps]}, policy version {steps}, of" in output
        assert output.splitlines()[0].endswith(f"checkpoints/{steps - 1:05d}")
        model = AutoModelForCausalLM.from_pretrained(out)
        assert torch.equal(_logits(model), done.after[steps - 1])
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer("w3 w9").input_ids == [3, 9]
    assert tokenizer.chat_template == _tokenizer().chat_template
    assert sorted(each.name for each in out.parent.iterdir()) == ["after-1", "after-2"]
    assert [each.closed for each in maker.made[1:]] == [1, 1], "all but the run's own are closed"


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({}, ()),
        ({"offload": "host"}, ()),
        ({"offload": "host", "lora": LoraOptions(r=4, alpha=8.0)}, ("--merge",)),
    ],
    ids=["one file", "shards", "shards of adapters"],
)
def test_weights_of_a_trained_copy_are_those_that_were_handed_over(
    train: Any, command: Any, tmp_path: Path, fields: Any, arguments: Any
) -> None:
    done = train(sync="copy", **fields)
    assert (done.run / "checkpoints" / "00001" / "shards").is_dir() == ("offload" in fields)
    command(done.run, "--out", tmp_path / "m", *arguments)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    torch.testing.assert_close(
        _logits(model), done.after[1], atol=0 if not fields else 1e-5, rtol=0
    )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapters_are_written_as_peft_keeps_them_or_merged(
    train: Any, command: Any, lab: Any, tmp_path: Path
) -> None:
    from peft import PeftModel

    base = lab.tiny_model(seed=9)
    base.save_pretrained(tmp_path / "base")
    before = _logits(base)
    done = train(llm={"model": str(tmp_path / "base")}, lora=LoraOptions(r=4, alpha=8.0))
    assert "the adapter after 2 steps" in command(done.run, "--out", tmp_path / "adapter")
    files = {each.name for each in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    assert torch.equal(before, _logits(AutoModelForCausalLM.from_pretrained(tmp_path / "base")))
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "adapter")
    over = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    for each in (alone, over):
        assert torch.equal(_logits(each), done.after[1])
    output = command(done.run, "--out", tmp_path / "merged", "--merge", "--after", 1)
    assert "the merged model after 1 step," in output
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert not hasattr(merged, "peft_config")
    began = {**done.config, "llm": {**done.config["llm"], "model": str(tmp_path / "adapter")}}
    write(done.run, began)
    assert (
        "initial model has a PEFT adapter"
        in refused(command, done.run, "--out", tmp_path / "m").message
    )
    torch.testing.assert_close(_logits(merged), done.after[0], atol=1e-5, rtol=0)


def test_adapters_over_a_model_that_is_in_no_folder_are_only_merged(
    train: Any, command: Any, tmp_path: Path
) -> None:
    done = train(lora=LoraOptions(r=4, alpha=8.0))
    problem = refused(command, done.run, "--out", tmp_path / "m")
    assert "in no folder" in problem.message
    assert "--merge" in str(problem.hint)
    assert not (tmp_path / "m").exists()
    command(done.run, "--out", tmp_path / "m", "--merge")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    torch.testing.assert_close(_logits(model), done.after[1], atol=1e-5, rtol=0)


def test_the_section_that_samples_as_the_run_did_is_said(
    train: Any, command: Any, tmp_path: Path
) -> None:
    done = train(llm={"stop": ["</a>"], "max_tokens": 512})
    out = tmp_path / "m"
    expected = f'llm: {{type: "stand-in", model: "{out}", stop: ["</a>"]}}'
    assert command(done.run, "--out", out).splitlines()[1] == expected


def test_a_base_that_has_moved_is_named_with_set(
    train: Any, command: Any, lab: Any, tmp_path: Path
) -> None:
    lab.tiny_model(seed=9).save_pretrained(tmp_path / "base")
    done = train(llm={"model": str(tmp_path / "base")})
    (tmp_path / "base").rename(tmp_path / "moved")
    assert refused(command, done.run, "--out", tmp_path / "m").path == "llm.model"
    moved = f"llm.model={tmp_path / 'moved'}"
    command(done.run, "--out", tmp_path / "m", "--set", moved)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert torch.equal(_logits(model), done.after[1])
    for wrong in ("model=x", "llm=x", "llm.model", "trainer.lr=1"):
        problem = refused(command, done.run, "--out", tmp_path / "n", "--set", wrong)
        assert wrong in problem.message


def test_each_mistake_is_reported_and_writes_nothing(
    train: Any, command: Any, tmp_path: Path
) -> None:
    done, out = train(), tmp_path / "out" / "m"
    (tmp_path / "file").write_text("")
    asked = {
        "no such directory": (tmp_path / "absent", "--out", out),
        "not a run directory": (tmp_path, "--out", out),
        "no checkpoint after 7 steps": (done.run, "--out", out, "--after", 7),
        "exists": (done.run, "--out", tmp_path / "file"),
        "can't be created": (done.run, "--out", tmp_path / "file" / "m"),
        "nothing to merge": (done.run, "--out", out, "--merge"),
        "of another model": (done.run, "--out", out, "--set", "llm.width=64"),
    }
    for message, arguments in asked.items():
        assert message in refused(command, *arguments).message
    problem = refused(command, *asked["no checkpoint after 7 steps"])
    assert problem.expected == "1 to 2"
    for trainer in ({"type": "ale-trainer-trl/dpo"}, {"type": "other/policy"}):
        write(done.run, {**done.config, "trainer": trainer})
        assert trainer["type"] in refused(command, done.run, "--out", out).message
    write(done.run, {key: value for key, value in done.config.items() if key != "trainer"})
    assert "this run has no trainer" in refused(command, done.run, "--out", out).message
    write(tmp_path / "fresh", done.config)
    assert refused(command, tmp_path / "fresh", "--out", out).message == "no checkpoint"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "fresh", "runs"]


def test_a_damaged_checkpoint_and_a_write_that_fails_leave_nothing(
    train: Any, command: Any, maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = train()

    def full(self: Any, directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StandIn, "save", full)
        with pytest.raises(StoreError, match="No space left"):
            command(done.run, "--out", tmp_path / "m")
    tensors = done.run / "checkpoints" / "00001" / checkpoint.TENSORS
    os.truncate(tensors, 100)
    with pytest.raises(StoreError, match="is damaged"):
        command(done.run, "--out", tmp_path / "m")
    (tensors.parent / checkpoint.STATE).unlink()
    with pytest.raises(StoreError, match=r"00001 is no checkpoint of .*: trainer\.json: No such"):
        command(done.run, "--out", tmp_path / "m")
    assert [each.name for each in tmp_path.iterdir()] == ["runs"]
    command(done.run, "--out", tmp_path / "m", "--after", 1)


def test_offering_the_command_imports_no_torch() -> None:
    code = (
        "import sys, ale_trainer_policy.plugin as plugin\n"
        "[each.get_short_help_str() for part in plugin.ale_commands().values() for each in part]\n"
        "print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
