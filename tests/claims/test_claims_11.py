"""The verdicts of notebook 11, with other seeds and sizes than the notebook's."""

import re
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import notebooks
from mha_course import runs
from mha_course.collection.shipped import draw
from mha_lesson import (
    GroupedQueryAttention,
    KVCache,
    MultiHeadAttention,
    scaled_dot_product_attention,
)

SEEDS = (21, 22, 23)


# That a cache changes no number: tests/lesson/test_decoding.py, any way of cutting.


@pytest.mark.parametrize("seed", SEEDS)
def test_old_queries_are_read_by_nobody_and_old_keys_by_all(seed):
    q, k, v = draw(3, 9, 5, seed=seed)
    whole = scaled_dot_product_attention(q, k, v, causal=True)
    others = draw(8, 5, seed=seed + 100)
    spoilt = scaled_dot_product_attention(torch.cat((others, q[8:])), k, v, causal=True)
    assert torch.equal(spoilt[8], whole[8]) and not torch.equal(spoilt[:8], whole[:8])
    spoilt = scaled_dot_product_attention(q, torch.cat((others, k[8:])), v, causal=True)
    assert (spoilt[8] - whole[8]).abs().max() > 0.01


def scores_made(n, cached):
    """Counted in a layer that writes n tokens, not on paper."""
    layer, x, made = GroupedQueryAttention(6, 1, 1), torch.zeros(1, n, 6), 0
    cache = KVCache()
    with torch.no_grad():
        for t in range(n):
            if cached:
                weights = layer(x[:, t : t + 1], cache, return_weights=True)[1]
            else:
                weights = layer(x[:, : t + 1], return_weights=True)[1]
            made += int((weights > 0).sum())
    return made


def test_rows_grow_in_line_and_scores_with_the_square():
    for n in (5, 13, 29):
        assert scores_made(n, True) == n * (n + 1) // 2
        assert scores_made(n, False) == n * (n + 1) * (n + 2) // 6
    assert scores_made(58, True) > 3.8 * scores_made(29, True)


@pytest.mark.parametrize("seed", SEEDS)
def test_query_heads_over_one_head_of_keys_still_differ(seed):
    torch.manual_seed(seed)
    layer = GroupedQueryAttention(20, 5, 1).double()
    weights = layer(draw(1, 9, 20, seed=seed), return_weights=True)[1][0]
    for i in range(5):
        for j in range(i):
            assert (weights[i] - weights[j]).abs().max() > 0.01
    with torch.no_grad():
        rows = layer.w_qkv.weight[:20].view(5, 4, 20)
        rows.copy_(rows[:1].expand(5, 4, 20).clone())  # the queries shared as well
    weights = layer(draw(1, 9, 20, seed=seed), return_weights=True)[1][0]
    assert (weights - weights[:1]).abs().max() < 1e-12


def test_sharing_keys_saves_projections_and_no_products():
    T, d_model, h = 17, 40, 8

    def operations(n_kv_heads):
        layer = GroupedQueryAttention(d_model, h, n_kv_heads)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer(torch.zeros(1, T, d_model), return_weights=True)
        return counter.get_total_flops()

    products = 2 * 2 * T * T * d_model
    for n_kv_heads in (8, 4, 2, 1):
        rows = d_model + 2 * n_kv_heads * (d_model // h) + d_model
        assert operations(n_kv_heads) == products + 2 * T * d_model * rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("causal", [True, False])
def test_without_a_causal_mask_old_keys_of_the_next_layer_change(seed, causal):
    torch.manual_seed(seed)
    below, above = (MultiHeadAttention(15, 3).double() for _ in range(2))
    x = draw(1, 10, 15, seed=seed)
    keys = [above.w_qkv(below(part, causal=causal))[..., 15:30] for part in (x, x[:, :9])]
    change = (keys[0][:, :9] - keys[1]).abs().max()
    assert change < 1e-12 if causal else change > 1e-4


@pytest.mark.plain
@pytest.mark.long  # imports PyTorch's compiler
def test_the_three_lines_that_compile_a_step_write_the_same(monkeypatch, capsys):
    """As the text has them, traced but not made into a program, which takes long."""
    book = notebooks.read(notebooks.paths("11")[0])
    sources = {cell.id: cell.source for cell in book.cells}
    writing = [s for s in sources.values() if s.startswith("@torch.no_grad()\ndef write")]
    (lines,) = re.findall(r"```python\n(.*?)```", sources["time-compiled"], re.S)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    scope = {"torch": torch, "KVCache": KVCache, "alphabet": runs.alphabet(), "device": "cpu"}
    scope["writer"] = runs.load("writer").model.cpu().eval()
    exec("\n".join(writing), scope)
    plain = scope["write_cached"](scope["writer"], "Catherine ", 60)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
    exec(lines, scope)
    assert capsys.readouterr().out == f"{plain}\n" and len(lines.splitlines()) == 3
    assert len(graphs) <= 3, "a prompt, its first letter, all others"
