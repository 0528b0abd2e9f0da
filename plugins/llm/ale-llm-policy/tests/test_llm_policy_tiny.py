"""The tiny policy: from a seed, the same everywhere; saved, loaded and told apart."""

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from attrs import asdict
from safetensors.torch import load_file, save_file

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.types import Message
from ale_llm_policy.build import build
from ale_llm_policy.options import PolicyOptions, TinyOptions
from ale_llm_policy.pretrained import TinyShape, load_policy, make_tokenizer, tiny_policy

SHAPE = TinyShape(layers=2, width=32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocabulary=400)
CORPUS = ["grep -c error log.txt\n", "sort words.txt | uniq -c\n", "café 🐍\n"] * 3
SCRIPT = """\
import sys
from test_llm_policy_tiny import digest
print(digest())
"""


def digest() -> str:
    """Of every byte of the tokenizer and of the weights."""
    policy = tiny_policy(CORPUS, SHAPE, seed=5)
    found = hashlib.sha256(policy.tokenizer.backend_tokenizer.to_str().encode())
    for name, weight in sorted(policy.model.state_dict().items()):
        found.update(name.encode() + weight.numpy().tobytes())
    return found.hexdigest()


def test_a_seed_gives_the_same_bytes_in_another_process() -> None:
    folder = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r})\n{SCRIPT}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == digest()


def test_making_a_model_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    tiny_policy(CORPUS, SHAPE, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_another_seed_gives_other_weights_and_the_same_fingerprint() -> None:
    one, two = (tiny_policy(CORPUS, SHAPE, seed=seed) for seed in (1, 2))
    assert not torch.equal(one.model.lm_head.weight, two.model.lm_head.weight)
    assert one.fingerprint == two.fingerprint
    wider = TinyShape(layers=1, width=32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocabulary=400)
    assert tiny_policy(CORPUS, wider).fingerprint != one.fingerprint
    assert tiny_policy(CORPUS, wider).tokenizer_id == one.tokenizer_id
    assert tiny_policy(["other words here\n" * 9], SHAPE).tokenizer_id != one.tokenizer_id
    assert tiny_policy(["other words here\n" * 9], SHAPE).fingerprint != one.fingerprint


def test_any_text_can_be_written() -> None:
    tokenizer = make_tokenizer(CORPUS, vocabulary=400)
    text = "naïve 🐍 \x00 \u2028\t<x>  \n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_whole_texts_are_one_token() -> None:
    begin = '{"name": "shell", "arguments": {"command": "'
    tokenizer = make_tokenizer(CORPUS, vocabulary=400, whole=(begin,))
    assert len(tokenizer.encode(begin)) == 1
    assert len(tokenizer) <= 400


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(InputError, match="too small"):
        make_tokenizer(CORPUS, vocabulary=260)


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="corpus"):
        make_tokenizer(tmp_path / "none.txt", vocabulary=400)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path) -> None:
    policy = tiny_policy(CORPUS, SHAPE, seed=5)
    policy.save(tmp_path)
    again = load_policy(str(tmp_path), device="cpu")
    assert again.fingerprint == policy.fingerprint
    assert again.tokenizer_id == policy.tokenizer_id
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(again.model(ids).logits, policy.model(ids).logits)


def test_a_template_that_was_given_is_saved_too(tmp_path: Path) -> None:
    made = tiny_policy(CORPUS, SHAPE, seed=5)
    made.save(tmp_path / "own")
    (tmp_path / "brief.jinja").write_text(
        f"<|system|>Be brief.<|end|>{made.tokenizer.chat_template}"
    )
    given = str(tmp_path / "brief.jinja")
    policy = load_policy(str(tmp_path / "own"), device="cpu", chat_template=given)
    policy.save(tmp_path / "given")
    again = load_policy(str(tmp_path / "given"), device="cpu")
    messages = [Message(role="user", content="hello")]
    assert again.template.prompt(messages) == policy.template.prompt(messages)
    own = load_policy(str(tmp_path / "own"), device="cpu")
    assert own.template.prompt(messages) != policy.template.prompt(messages)


def test_weights_go_in_whole_or_not_at_all(tmp_path: Path) -> None:
    policy, other = (tiny_policy(CORPUS, SHAPE, seed=seed) for seed in (1, 2))
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    given = dict(other.model.named_parameters())
    name = "model.norm.weight"
    input_error = [
        {key: given[key] for key in given if key != name},
        {**given, "more": given[name]},
        {**given, name: torch.zeros(3)},
    ]
    for weights in input_error:
        with pytest.raises(InputError, match="another model"):
            policy.load_weights(weights)
    assert all(torch.equal(policy.model.state_dict()[key], before[key]) for key in before)
    other.save(tmp_path)
    policy.load_weights(tmp_path)
    assert torch.equal(policy.model.lm_head.weight, other.model.lm_head.weight)
    with pytest.raises(InputError, match=r"no \*\.safetensors"):
        policy.load_weights(tmp_path / "empty")


def test_a_folder_that_does_not_exist_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "models" / "qwen").mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        load_policy(str(tmp_path / "models" / "qwem"), device="cpu")
    (problem,) = caught.value.problems
    assert f"there is no folder {tmp_path}/models/qwem" in problem.message
    assert "Repo id" not in problem.message
    assert problem.hint == "did you mean 'qwen'?"


def test_a_file_in_the_place_of_a_folder_and_a_folder_without_a_model_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.gguf").write_text("")
    with pytest.raises(InputError, match=r"model\.gguf is a file") as caught:
        load_policy(str(tmp_path / "model.gguf"), device="cpu")
    assert "config.json" in (caught.value.problems[0].expected or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no config\.json"):
        load_policy(str(tmp_path / "empty"), device="cpu")
    tiny_policy(CORPUS, SHAPE).save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"m has no \*\.safetensors"):
        load_policy(str(tmp_path / "m"), device="cpu")


FILES = ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_is_named(name: str, tmp_path: Path) -> None:
    tiny_policy(CORPUS, SHAPE).save(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=f"can't be loaded: {name} is damaged: "):
        load_policy(str(tmp_path), device="cpu")


def test_weights_that_a_file_lacks_are_not_made_up(tmp_path: Path) -> None:
    tiny_policy(CORPUS, SHAPE).save(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, {"format": "pt"})
    lacks = r"model\.safetensors lacks weights of the model: model\.layers\.1\.mlp\.up_proj\.weight"
    with pytest.raises(InputError, match=f"can't be loaded: {lacks}"):
        load_policy(str(tmp_path), device="cpu")


def test_a_config_of_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    tiny_policy(CORPUS, SHAPE).save(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"num_hidden_layers": 9}))
    with pytest.raises(InputError, match=r"can't be loaded: `num_hidden_layers` \(9\)"):
        load_policy(str(tmp_path), device="cpu")


def test_adapters_alone_are_no_model_and_the_error_says_how_to_merge_them(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(InputError, match="adapters") as caught:
        load_policy(str(tmp_path), device="cpu")
    assert "--merge" in (caught.value.problems[0].hint or "")


def test_a_template_of_trl_is_read_from_its_package(tmp_path: Path) -> None:
    tiny_policy(CORPUS, SHAPE).save(tmp_path)
    with pytest.raises(InputError, match="can't be read") as caught:
        load_policy(str(tmp_path), device="cpu", chat_template="trl/qwen3_trainin")
    assert caught.value.problems[0].hint == "did you mean 'qwen3_training'?"


def test_loading_and_saving_print_no_progress_bars(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_policy(CORPUS, SHAPE).save(tmp_path / "m")
    load_policy(str(tmp_path / "m"), device="cpu")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "given", [{"layers": 10**9}, {"width": 10**7}, {"mlp": 10**30}, {"vocabulary": 10**30}]
)
def test_a_tiny_model_that_would_be_huge_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected at most 1,000,000,000 parameters, found "):
        TinyOptions(**given)


def test_the_parameters_of_a_tiny_model_are_counted() -> None:
    norms = 2 * SHAPE.layers * (SHAPE.width + SHAPE.head_dim) + SHAPE.width
    n = sum(weight.numel() for weight in tiny_policy(CORPUS, SHAPE).model.parameters())
    assert TinyOptions(**asdict(SHAPE)).n_parameters == n - norms


def test_a_missing_model_is_named() -> None:
    with pytest.raises(InputError, match=r"llm\.model"):
        load_policy("no/such-model-here", device="cpu")


def test_the_date_in_prompts_is_that_on_which_the_run_began(tmp_path: Path) -> None:
    made = tiny_policy(CORPUS, SHAPE, seed=5)
    made.tokenizer.chat_template = (
        f"{{{{ strftime_now('%Y-%m-%d') }}}}{made.tokenizer.chat_template}"
    )
    made.save(tmp_path)
    began = datetime(2026, 2, 3, 23, 59, tzinfo=UTC).timestamp()
    options = PolicyOptions(model=str(tmp_path), device="cpu")
    policy = build(options, BuildContext(created=began)).policy
    prompt = policy.template.prompt([Message(role="user", content="hello")])
    assert policy.template.token_bytes.text(prompt).text.startswith("2026-02-03<|user|>")
