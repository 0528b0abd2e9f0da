"""A folder's model is loaded only if its files have all of its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

from ale_training.pretrained import LOAD_ERRORS, load_causal, why_not_loaded


def model(**changes: Any) -> Any:
    config = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "tie_word_embeddings": False,
    }
    return Qwen3ForCausalLM(Qwen3Config(**{**config, **changes}))


def save_without(some: str, made: Any, folder: Path, **more: Any) -> None:
    """Save a model without the weights whose names contain `some`."""
    kept = {name: each for name, each in made.state_dict().items() if some not in name}
    made.save_pretrained(folder, state_dict=kept, **more)


def test_a_tied_head_is_not_in_the_file(tmp_path: Path) -> None:
    made = model(tie_word_embeddings=True)
    save_without("lm_head", made, tmp_path)
    found = load_causal(str(tmp_path))
    assert found.lm_head.weight.equal(made.model.embed_tokens.weight)


def test_a_head_that_is_not_tied_is_missed_where_it_is_used(tmp_path: Path) -> None:
    save_without("lm_head", model(), tmp_path)
    load_causal(str(tmp_path), head=False)
    lacks = r"model\.safetensors lacks weights of the model: lm_head\.weight$"
    with pytest.raises(ValueError, match=lacks):
        load_causal(str(tmp_path))


@pytest.mark.parametrize(
    ("size", "file"), [("1GB", "model.safetensors"), ("20KB", "model.safetensors.index.json")]
)
@pytest.mark.parametrize("head", [True, False])
def test_weights_of_a_layer_are_missed(tmp_path: Path, size: str, file: str, head: bool) -> None:
    save_without("layers.1", model(), tmp_path, max_shard_size=size)
    with pytest.raises(ValueError, match=r"model\.layers\.1\.input_layer.* and 7 more$") as caught:
        load_causal(str(tmp_path), head=head)
    assert str(caught.value).startswith(f"{file} lacks weights of the model: ")


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": 63}))
    shapes = r"lm_head\.weight \(\[64, 32\], not \[63, 32\]\), model\.embed_tokens"
    with pytest.raises(ValueError, match=f"has other shapes than config.json says: {shapes}"):
        load_causal(str(tmp_path))


def test_layers_beyond_those_of_the_config_are_named(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), "num_hidden_layers": 1}
    path.write_text(json.dumps({**config, "layer_types": config["layer_types"][:1]}))
    more = r"^model\.safetensors has more layers than config\.json says: model\.layers\.1\.input"
    with pytest.raises(ValueError, match=more):
        load_causal(str(tmp_path))


@pytest.mark.parametrize("name", ["vision.layers.7.weight", "model.layers.1.extra.weight"])
def test_other_weights_may_be_left_over(tmp_path: Path, name: str) -> None:
    made = model()
    left_over = {name: made.lm_head.weight.clone()}
    made.save_pretrained(tmp_path, state_dict={**made.state_dict(), **left_over})
    load_causal(str(tmp_path))


def test_a_damaged_file_and_a_missing_one_are_the_reason(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(LOAD_ERRORS) as caught:
        load_causal(str(tmp_path))
    reason, _ = why_not_loaded(str(tmp_path), caught.value, tokenizer=False)
    assert reason.startswith("model.safetensors is damaged: ")
    reason, _ = why_not_loaded(str(tmp_path), caught.value)
    assert reason.endswith("has no tokenizer.json")
