"""`ale model`: what a run has trained, as a folder, samples as the run did."""

import json
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch")

PATIENCE_S = 300.0
KINDS = ["write", "copy", "delete"]
WHOLE = ['<tool_call>{"name": "shell", "arguments": {"command": "', '"}}</tool_call>']
SAMPLING = {"max_tokens": 24, "stop": ["</tool_call>"]}


def configure(workshop: Any, llm: Any, **trainer: Any) -> None:
    workshop.config(
        tasks={"type": "shell", "length": 1, "kinds": KINDS, "seed": 1, "count": 64},
        llm={"type": "policy", **llm, **SAMPLING},
        agent={"type": "iflow", "system_prompt": "", "max_turns": 2},
        credit={"type": "ipa", "failure_reward": -0.2},
        starts={"type": "initial", "demonstrations": 2, "until": 1.0, "probes": 2},
        trainer={"type": "policy", "imitation": {"when": "always", "weight": 1.0}, **trainer},
        run={"steps": 4, "tasks_per_step": 2, "rollouts": 2, "concurrency": 4},
    )


def ran(workshop: Any) -> Path:
    workshop.succeeds("run", "run.yaml", timeout_s=PATIENCE_S)
    run: Path = workshop.runs[-1]
    return run


def taken(workshop: Any, run: Path, out: str, *arguments: str) -> str:
    workshop.succeeds("model", str(run), "--out", out, *arguments, timeout_s=PATIENCE_S)
    return str(workshop.folder / out)


def sampled(workshop: Any, run: Path, step: int) -> list[Any]:
    """The traces of what the policy itself answers in a step."""
    completions = [
        turn["completion"]
        for episode in workshop.episodes(run).values()
        if episode["step"] == step
        for turn in episode["trajectory"]["turns"]
    ]
    found = [each["tokens"] for each in completions if not each["forced"]]
    assert len(found) >= 4
    return found


def sampler_distance(folder: str, traces: list[Any], **options: Any) -> float:
    """Between a run's log-probabilities and those of the sampler over a folder, at most.

    They are equal where the products of a machine don't depend on the batch that a row is in.
    """
    from ale.plugin import BuildContext
    from ale_llm_policy.build import build
    from ale_llm_policy.jobs import Job
    from ale_llm_policy.options import PolicyOptions
    from ale_servers.records import SampleRequest

    llm = build(PolicyOptions(model=folder, **options), BuildContext())
    found = 0.0
    try:
        for trace in traces:
            ended: Future[Any] = Future()
            ids, forced = tuple(trace["prompt_ids"]), tuple(trace["output_ids"])
            asked = SampleRequest(id="", prompt_ids=ids, forced_ids=forced, max_tokens=99)
            job = Job(asked, lambda job, how, e=ended: e.set_result(how))
            llm.engine.submit(job)
            assert not isinstance(ended.result(PATIENCE_S), Exception)
            pairs = zip(job.logprobs, trace["logprobs"], strict=True)
            found = max([found, *(abs(a - b) for a, b in pairs)])
    finally:
        llm.engine.close()
    return found


def distance(folder: str, traces: list[Any]) -> float:
    """Between a run's log-probabilities and those of transformers alone, at most."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer(WHOLE[0]).input_ids) == 1
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    found = 0.0
    for trace in traces:
        prompt, output = trace["prompt_ids"], trace["output_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0]
        found = max(found, float((logps - torch.tensor(trace["logprobs"])).abs().max()))
    return found


def test_the_folder_samples_as_the_run_did_and_so_do_adapters_over_it(workshop: Any) -> None:
    from ale_tasks_shell import corpus

    text = "".join(dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS))))
    workshop.write("corpus.txt", text)
    tiny = {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128}
    configure(workshop, {"tiny": {**tiny, "whole": WHOLE}}, lr=3e-3)
    run = ran(workshop)
    before, newest = taken(workshop, run, "before", "--after", "3"), taken(workshop, run, "newest")
    traces = sampled(workshop, run, 3)
    assert sampler_distance(before, traces) < 1e-5
    assert distance(before, traces) < 1e-5
    assert distance(newest, traces) > 1e-3, "the step after these tokens has changed the policy"

    configure(workshop, {"model": "newest"}, lr=3e-2, lora={"r": 4, "alpha": 8.0})
    run = ran(workshop)
    adapter = taken(workshop, run, "adapter", "--after", "3")
    merged = taken(workshop, run, "merged", "--after", "3", "--merge")
    traces = sampled(workshop, run, 3)
    for folder in (adapter, merged):
        assert sampler_distance(folder, traces) < 1e-5
        assert distance(folder, traces) < 1e-5
    assert distance(newest, traces) > 1e-3

    serving = workshop.start("serve", f"policy:model={adapter},max_tokens=4", "--port", "0")
    url = workshop.wait_for(lambda: serving.printed.strip(), timeout_s=PATIENCE_S)
    asked = {"model": "policy", "messages": [{"role": "user", "content": "x"}]}
    request = urllib.request.Request(
        f"{url}/chat/completions",
        data=json.dumps(asked).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.needs("bitsandbytes")
def test_adapters_over_weights_in_4_bits_sample_as_the_run_did_and_merged(
    workshop: Any,
) -> None:
    from ale_llm_policy.pretrained import TinyShape, tiny_policy
    from ale_tasks_shell import corpus

    shape = TinyShape(layers=2, width=64, heads=2, mlp=128)
    lines = dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS)))
    tiny_policy(lines, shape, whole=WHOLE).save(workshop.folder / "base")
    llm = {"model": "base", "quantise": "nf4"}
    configure(workshop, llm, lr=3e-2, lora={"r": 4, "alpha": 8.0})
    run = ran(workshop)
    traces = sampled(workshop, run, 3)
    adapter = taken(workshop, run, "adapter", "--after", "3")
    assert sampler_distance(adapter, traces, quantise="nf4") < 1e-4
    out = str(workshop.folder / "merged")
    done = workshop.succeeds("model", str(run), "--out", out, "--after", "3", "--merge")
    assert "quantise" not in done.text
    assert sampler_distance(out, traces) < 1e-4
    assert sampler_distance(str(workshop.folder / "base"), traces) > 1e-3


TWO = {"sync": "copy", "processes": 2}


@pytest.mark.long
@pytest.mark.parametrize(
    "trainer",
    [
        {**TWO, "lr": 3e-2, "lora": {"r": 4, "alpha": 8.0}},
        {**TWO, "lr": 3e-3, "processes": 4, "replicas": 2},
    ],
    ids=["adapters of two ranks", "two copies of two shards"],
)
def test_what_several_ranks_have_written_is_a_folder_too(
    workshop: Any, trainer: dict[str, Any]
) -> None:
    from ale_llm_policy.pretrained import TinyShape, tiny_policy
    from ale_tasks_shell import corpus

    shape = TinyShape(layers=2, width=64, heads=2, mlp=128)
    lines = dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS)))
    tiny_policy(lines, shape, whole=WHOLE).save(workshop.folder / "base")
    configure(workshop, {"model": "base"}, **trainer)
    run = ran(workshop)
    shards = run / "checkpoints" / "00003" / "shards"
    assert len(list(shards.glob("*.distcp"))) >= 2
    traces = sampled(workshop, run, 3)
    folders = [taken(workshop, run, "trained", "--after", "3")]
    if "lora" in trainer:
        folders.append(taken(workshop, run, "merged", "--after", "3", "--merge"))
    for folder in folders:
        assert sampler_distance(folder, traces) < 1e-5
        assert distance(folder, traces) < 1e-5
    assert distance(str(workshop.folder / "base"), traces) > 1e-3

    # A damaged one is one error, for which no rank waits.
    part = max(shards.glob("__1_*.distcp"), key=lambda each: each.stat().st_size)
    part.write_bytes(part.read_bytes()[:100])
    done = workshop.ale("model", str(run), "--out", "none", timeout_s=PATIENCE_S)
    assert done.code == 1
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["run"]["steps"] = 5
    (run / "manifest.json").write_text(json.dumps(manifest))
    resumed = workshop.ale("run", "--resume", str(run), timeout_s=PATIENCE_S)
    assert resumed.code == 1
    for told in (done, resumed):
        assert told.err.count("is damaged") == 1, told.err
        assert f"{part} is damaged or of another checkpoint" in told.err
        assert "Traceback" not in told.text
        assert "onnection" not in told.text
    assert workshop.left_behind() == []


def test_a_run_without_a_trainer_is_refused(workshop: Any, shell: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    workshop.succeeds("run", "run.yaml", timeout_s=PATIENCE_S)
    done = workshop.ale("model", str(workshop.run), "--out", "m", timeout_s=PATIENCE_S)
    assert done.code == 2
    assert "this run has no trainer" in done.err
    assert not (workshop.folder / "m").exists()
