"""The verdicts of notebook 13, with other seeds and sizes than the notebook's."""

import json
import re

import pytest
import torch
from test_published_models import BOOK, lines_of_the_notebook

from mha_course.collection.shipped import draw
from mha_lesson import GroupedQueryAttention, causal_mask, text

SEEDS = (21, 22, 23)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stack_of_windows_is_heard_from_exactly_so_far_and_hardly(seed):
    assert heard_from_afar(seed, n_layers=5, window=3, T=19) < 0.01
    assert heard_from_afar(seed, n_layers=2, window=5, T=19) > 0.01, "few layers let it through"


def heard_from_afar(seed, n_layers, window, T):
    """How loud the farthest token is, beside the one before the last."""
    torch.manual_seed(seed)
    layers = [GroupedQueryAttention(12, 3, 3, window=window).double() for _ in range(n_layers)]

    def last(x):
        for layer in layers:
            x = x + layer(torch.nn.functional.rms_norm(x, (12,)))
        return x[0, -1]

    x = draw(1, T, 12, seed=seed)
    moved = []
    for t in range(T):
        other = x.clone()
        other[0, t] += 1e-3
        moved.append((last(other) - last(x)).abs().max().item())
    far = n_layers * (window - 1)
    assert all(m == 0 for m in moved[: T - 1 - far]) and moved[T - 1 - far] > 0
    return moved[T - 1 - far] / moved[-2]


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_chosen_before_the_mask_leak_or_leave_rows_empty(seed):
    T, n = 9, 3
    cheap, scores, future = draw(T, T, seed=seed), draw(T, T, seed=seed + 9), causal_mask(T)
    chosen = torch.zeros(T, T, dtype=torch.bool).scatter(1, cheap.topk(n, dim=-1).indices, True)
    weights = scores.masked_fill(~chosen, -torch.inf).softmax(dim=-1)
    assert weights[future].sum() > 1
    assert (chosen & ~future).sum(dim=-1).min() < n  # and yet every query but two sees n keys
    right = lines_of_the_notebook().select_keys(cheap, n)
    assert not (~right & future).any()
    assert (~right).sum(dim=-1).tolist() == [min(t + 1, n) for t in range(T)]


def test_a_cache_of_v4_pro_is_as_large_as_was_published():
    """Row by row, by a plain loop, at a length where it is quick; then in proportion."""
    T = 2**14
    selecting, squeezed = T // 4 * (512 + 128), T // 128 * 512
    near = 128 * 512
    at_a_million = 2 * (64 * (30 * selecting + 31 * squeezed) + 61 * near)
    assert abs(at_a_million / 2**30 - 9.62) < 0.01
    v32 = 2 * 2**20 * 61 * (512 + 64 + 128)
    assert abs(v32 / at_a_million - 8.7) < 0.05


def test_the_caches_side_by_side_grow_in_as_many_layers_as_the_words_beside_them_say():
    models = {m["name"]: m for m in json.loads(text.data_file("models.json").read_text())["models"]}
    cells = json.loads(BOOK.read_text("utf-8"))["cells"]
    [cell] = [c for c in cells if "".join(c["source"]).startswith("why = {")]
    _, *rows = "".join(cell["outputs"][0]["text"]).splitlines()
    assert len(rows) == 10
    for row in rows:
        about = models[row[:18].strip()]
        growing, of = re.search(r"(\d+)(?: of (\d+))?(?: layers)? grow", row).groups()
        far = [about["kinds"][one]["far"] for one in about["pattern"]]
        assert (int(growing), int(of or growing)) == (sum(map(bool, far)), len(far))
        for heads, width in re.findall(r"(\d+) (?:key )?heads of (\d+)$", row):
            kept = {kind["kept_far"] for kind in about["kinds"].values() if kind["far"]}
            assert kept == {2 * int(heads) * int(width)}


def test_kimi_linear_saves_nearly_three_quarters_and_only_in_long_texts():
    models = json.loads(text.data_file("models.json").read_text("utf-8"))["models"]
    [pattern] = [m["pattern"] for m in models if m["name"].startswith("Kimi")]
    n_mla, n_states = pattern.count("M"), pattern.count("S")
    assert (n_mla, n_states) == (7, 20)
    state = 32 * 128 * 128 + 3 * 3 * 32 * 128
    for T, most in ((2**20, 0.75), (2**16, 0.75), (2**8, 0.0)):
        assert 1 - (n_mla * 576 * T + n_states * state) / (27 * 576 * T) < most
    assert 1 - 7 / 27 > 0.74


@pytest.mark.parametrize("seed", SEEDS)
def test_speculative_decoding_draws_from_the_large_model(seed):
    """Drawn, not added up: the shares of 200,000 tokens."""
    p, q = draw(2, 7, seed=seed).mul(2).softmax(dim=-1)
    generator = torch.Generator().manual_seed(seed)
    n = 200_000
    guess = torch.multinomial(q, n, replacement=True, generator=generator)
    keep = torch.rand(n, generator=generator) < (p / q)[guess]
    anew = torch.multinomial((p - q).clamp(min=0), n, replacement=True, generator=generator)
    spoken = torch.where(keep, guess, anew).bincount(minlength=7) / n
    assert (spoken - p).abs().max() < 0.01
    assert (guess[keep].bincount(minlength=7) / keep.sum() - p).abs().max() > 0.03
    exact = lines_of_the_notebook().spoken
    for small in (q, p, p * (1 + 1e-14 * draw(7, seed=seed + 1))):  # itself, or nearly so, too
        assert (exact(p, small) - p).abs().max() < 1e-12
