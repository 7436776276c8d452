"""The files of the published writing model: every number of it, and its tokens."""

import json

import numpy as np
import pytest
import torch
from test_published import handed_on

from mha_course.pages import writing
from mha_lesson import smollm


@pytest.fixture
def written(site_of):
    folder = site_of(writing)
    return folder, json.loads((folder / "about.json").read_text("utf-8"))


def numbers(raw: bytes, n_whole: int, n_factors: int) -> np.ndarray:
    """A tensor's numbers, of all kinds."""
    factors = np.frombuffer(raw[n_whole : n_whole + 2 * n_factors], "<f2").astype("f4")
    if not n_factors:
        return np.frombuffer(raw[:n_whole], "<f4")
    if n_whole / n_factors == 32:
        whole = np.frombuffer(raw[:n_whole], "i1").reshape(-1, 32)
        return (whole * factors[:, None]).ravel()
    pairs = np.frombuffer(raw[:n_whole], "u1").reshape(-1, 16)
    whole, (scale, least) = np.hstack((pairs & 15, pairs >> 4)), factors.reshape(-1, 2).T
    return (whole * scale[:, None] + least[:, None]).ravel()


@pytest.mark.long
def test_files_hold_every_number_of_the_model_once(written):
    folder, about = written
    tensors = smollm.load().state_dict()
    expected = {"last": tensors.pop("norm.weight")}
    for i in range(smollm.N_LAYERS):
        kinds = "norm_1", "norm_2", "attention.w_qkv", "attention.w_o", "gate", "up", "down"
        own = {kind: tensors.pop(f"layers.{i}.{kind}.weight") for kind in kinds}
        both = torch.cat((own["gate"], own["up"]))
        values = own["norm_1"], own["attention.w_qkv"], own["attention.w_o"], own["norm_2"], both
        names = "before", "qkv", "o", "after", "gate_up", "down"
        expected |= {
            f"{i}.{name}": x for name, x in zip(names, (*values, own["down"]), strict=True)
        }
    shards = tensors.pop("words").split(about["shard"])
    expected |= {f"words-{i}": words for i, words in enumerate(shards)}
    assert not tensors
    for part, listed in about["parts"].items():
        raw = handed_on(folder / about["folder"] / f"{part}.js")
        for name, n_whole, n_factors in listed:
            found = numbers(raw, n_whole, n_factors)
            assert np.allclose(found, expected.pop(name).numpy().ravel(), atol=1e-6), name
            raw = raw[n_whole + 2 * n_factors :]
        assert part == "merges" or not raw
    assert not expected


def test_the_folder_is_named_after_the_model_and_its_sizes_are_true(written):
    folder, about = written
    files = {path.stem: path.stat().st_size for path in (folder / about["folder"]).iterdir()}
    assert about["folder"].endswith(smollm.SHA256[smollm.FILE][:12])
    assert about["sizes"] == files and max(files.values()) < 2.3e6


def test_tokens_are_bytes_special_ones_or_what_a_merge_makes():
    tokens = ["<|end|>", "a", "Ġ", "Ċ", "é", "Ġa", "Ġaa"]
    first, merges = writing._tokens(tokens, ["Ġ a", "Ġa a"])
    assert first == ["<|end|>", 97, 32, 10, 0xE9]
    assert np.frombuffer(merges, "<u2").tolist() == [2, 1, 5, 1]
    with pytest.raises(ValueError, match="merges"):
        writing._tokens(tokens, ["Ġa a", "Ġ a"])
