"""Rotated positions, shared keys and values, the cache: against loops, PyTorch and each other."""

import cmath
import itertools
import math
from copy import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha_lesson import (
    GroupedQueryAttention,
    KVCache,
    MultiHeadAttention,
    padding_mask,
    rotate,
)

B, T, H, D_MODEL, D_K = 3, 12, 4, 20, 6


def layer(h_kv=2, *, dtype=torch.float64, device="cpu", **options):
    torch.manual_seed(h_kv)
    made = GroupedQueryAttention(D_MODEL, H, h_kv, d_k=D_K, **options)
    return made.to(device, dtype)


def tokens(n=T, *, dtype=torch.float64, device="cpu", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, n, D_MODEL, generator=generator, dtype=torch.float64).to(device, dtype)


def in_pieces(module, x, lengths, mask=None):
    """The outputs of `x` handed over in pieces of these lengths, and the cache they leave."""
    cache, outputs, start = KVCache(), [], 0
    for length in lengths:
        end = start + length
        seen = None if mask is None else mask[..., :end]
        outputs.append(module(x[:, start:end], cache, mask=seen))
        start = end
    return torch.cat(outputs, dim=1), cache


def every_way_of_cutting(module, x, whole):
    """Hands over `x` in every way of cutting it; counts the ways.

    All ways that have come as far as a token go on from it at once, each as a batch of its own.
    """
    arrived = {0: [KVCache()]}
    for start in range(x.shape[1]):
        cache = side_by_side(arrived.pop(start))
        ways = 1 if cache.keys is None else len(cache.keys) // len(x)
        for end in range(start + 1, x.shape[1] + 1):
            branch = copy(cache)  # its tensors are never changed in place
            output = module(x[:, start:end].repeat(ways, 1, 1), branch)
            of_each_way = output.unflatten(0, (ways, len(x)))
            assert (of_each_way - whole[:, start:end]).abs().max() < 1e-6, (start, end)
            arrived.setdefault(end, []).append(branch)
    return len(side_by_side(arrived[x.shape[1]]).keys) // len(x)


def side_by_side(caches):
    """One cache that holds the sequences of all."""
    made = copy(caches[0])
    if made.keys is not None:
        made.keys = torch.cat([cache.keys for cache in caches])
        made.values = torch.cat([cache.values for cache in caches])
    return made


def by_hand(module, x, mask=None):
    """The layer as four nested loops over sequences, heads, queries and keys."""
    h, h_kv, d_k = module.n_heads, module.n_kv_heads, module.d_k
    w_q, w_k, w_v = module.w_qkv.weight.split([h * d_k, h_kv * d_k, h_kv * d_k])
    out = torch.zeros(*x.shape[:2], h * d_k, dtype=x.dtype)
    for b, i in itertools.product(range(x.shape[0]), range(h)):
        shared = i // (h // h_kv)
        rows = slice(i * d_k, (i + 1) * d_k), slice(shared * d_k, (shared + 1) * d_k)
        q, k, v = x[b] @ w_q[rows[0]].T, x[b] @ w_k[rows[1]].T, x[b] @ w_v[rows[1]].T
        for t in range(x.shape[1]):
            low = 0 if module.window is None else max(0, t - module.window + 1)
            seen = [s for s in range(low, t + 1) if mask is None or not mask[b, s]]
            if not seen:
                continue
            scores = [
                turned(q[t], t, module.rope_base) @ turned(k[s], s, module.rope_base) for s in seen
            ]
            shares = (torch.stack(scores) / math.sqrt(d_k)).softmax(dim=0)
            out[b, t, rows[0]] = sum(w * v[s] for w, s in zip(shares, seen, strict=True))
    return out @ module.w_o.weight.T


def turned(row, position, base):
    """One row rotated with complex numbers."""
    if base is None:
        return row
    half, numbers = len(row) // 2, row.tolist()
    pairs = map(complex, numbers[:half], numbers[half:])
    pairs = [z * cmath.exp(1j * position * base ** (-i / half)) for i, z in enumerate(pairs)]
    return torch.tensor([z.real for z in pairs] + [z.imag for z in pairs], dtype=row.dtype)


@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("rope_base", [None, 100.0])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_the_layer_equals_the_loop(h_kv, rope_base, window):
    module, x = layer(h_kv, rope_base=rope_base, window=window), tokens(7)
    torch.testing.assert_close(module(x), by_hand(module, x))


@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("rope_base", [None, 10_000.0])
@pytest.mark.parametrize("window", [None, 5])
@torch.no_grad()
def test_cached_equals_uncached_for_every_way_of_cutting(h_kv, rope_base, window):
    module, x = layer(h_kv, rope_base=rope_base, window=window), tokens()
    assert every_way_of_cutting(module, x, module(x)) == 2048


@given(
    st.data(),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 30.0]),
    st.sampled_from([None, 1, 3]),
)
@torch.no_grad()
def test_ragged_batches_with_left_padding(data, h_kv, rope_base, window):
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, T), min_size=B, max_size=B)))
    cuts = data.draw(st.lists(st.integers(1, T), max_size=4))
    ends = sorted({*cuts, T})
    pieces = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    module, x = layer(h_kv, rope_base=rope_base, window=window), tokens()
    padding = padding_mask(lengths, T).flip(-1)  # on the left
    output, _ = in_pieces(module, x, pieces, padding)
    for b, length in enumerate(lengths.tolist()):
        alone = module(x[b : b + 1, T - length :])
        torch.testing.assert_close(output[b : b + 1, T - length :], alone)
        assert (output[b, : T - length] == 0).all()  # they see nothing, and W^O has no bias


def test_the_device_and_dtype_of_the_input_are_kept(device):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        module = layer(2, rope_base=10_000.0, dtype=dtype, device=device)
        x = tokens(dtype=dtype, device=device)
        output, cache = in_pieces(module, x, [5, 1, 6])
        assert output.dtype == cache.keys.dtype == dtype and output.device == x.device
        tolerance = {torch.bfloat16: 0.05, torch.float32: 1e-5}.get(dtype, 1e-12)
        assert (output - module(x)).abs().max() < tolerance


def test_with_as_many_heads_it_is_the_taught_class(device):
    torch.manual_seed(0)
    taught = MultiHeadAttention(D_MODEL, H, d_k=D_K).to(device)
    module = GroupedQueryAttention(D_MODEL, H, H, d_k=D_K, bias=True).to(device)
    module.load_state_dict(taught.state_dict())
    x = tokens(dtype=torch.float32, device=device)
    torch.testing.assert_close(module(x), taught(x, causal=True))
    for ours, theirs in zip(
        module(x, return_weights=True), taught(x, causal=True, return_weights=True), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("window", [None, 3])
def test_weights_of_every_query_head(window):
    module, x = layer(2, window=window), tokens(7)
    output, weights = module(x, return_weights=True)
    assert weights.shape == (B, H, 7, 7)
    torch.testing.assert_close(output, module(x))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, 7, dtype=weights.dtype))
    assert (weights.triu(1) == 0).all() and (window is None or (weights.tril(-window) == 0).all())
    cache = KVCache()
    module(x[:, :5], cache)
    _, last = module(x[:, 5:], cache, return_weights=True)
    held = 5 if window is None else window - 1
    torch.testing.assert_close(last, weights[:, :, 5:, 5 - held :])


def test_masks_of_every_shape_mean_the_same():
    module, x = layer(2), tokens(5)
    free = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) < 0.3
    expected = module(x, mask=free)
    for mask in (free.expand(B, 5, 5), free.expand(1, 1, 5, 5), free.expand(B, 1, 5, 5),
                 free.expand(1, H, 5, 5), free.expand(B, H, 5, 5)):  # fmt: skip
        torch.testing.assert_close(module(x, mask=mask), expected)
    heads = torch.zeros(1, H, 1, 1, dtype=torch.bool)
    heads[:, 1] = True  # query head 1 sees nothing, the other one of its group does
    _, weights = module(x, mask=heads, return_weights=True)
    assert (weights[:, 1] == 0).all() and (weights[:, 0].sum(-1) > 0.99).all()


@pytest.mark.parametrize("n_heads", [1, H])
def test_a_mask_of_one_new_token_means_what_it_means_of_all(n_heads):
    module, x = layer(2), tokens(5)
    free = torch.rand(B, n_heads, 5, 5, generator=torch.Generator().manual_seed(2)) < 0.4
    for mask in (free, free[1:2]):
        cache = KVCache()
        module(x[:, :4], cache, mask=mask[..., :4, :4])
        whole = module(x, mask=mask, return_weights=True)
        last = module(x[:, 4:], cache, mask=mask[..., 4:, :], return_weights=True)
        torch.testing.assert_close(last[0], whole[0][:, 4:])
        torch.testing.assert_close(last[1], whole[1][:, :, 4:])


@pytest.mark.parametrize(("n", "h", "h_kv"), [(2, 2, 1), (2, 4, 2), (3, 6, 2)])
def test_masks_of_one_sequence_and_head_each_stand_alone(n, h, h_kv):
    module, x = GroupedQueryAttention(D_MODEL, h, h_kv, d_k=D_K).double(), tokens(5)[:n]
    free = torch.rand(n, h, 5, 5, generator=torch.Generator().manual_seed(3)) < 0.4
    together, cache = module(x, mask=free, return_weights=True)[1], KVCache()
    module(x[:, :4], cache)
    last = module(x[:, 4:], cache, mask=free[..., 4:, :], return_weights=True)[1]
    of_all_heads = module(x, mask=free[:, :1], return_weights=True)[1]
    for b, i in itertools.product(range(n), range(h)):
        one, mask = x[b : b + 1], free[b : b + 1, i : i + 1]
        alone = module(one, mask=mask, return_weights=True)[1][0, i]
        torch.testing.assert_close(together[b, i], alone)
        torch.testing.assert_close(last[b, i], alone[4:])
        alone = module(one, mask=free[b : b + 1, :1], return_weights=True)[1][0, i]
        torch.testing.assert_close(of_all_heads[b, i], alone)


@pytest.mark.parametrize("window", [1, 3])
def test_a_mask_counts_all_tokens_also_those_dropped(window):
    module, x = layer(2, window=window), tokens(9)
    blocked = torch.zeros(B, 1, 1, 9, dtype=torch.bool)
    blocked[1, ..., 6] = True
    whole = module(x, mask=blocked)
    for pieces in ([4, 3, 1, 1], [1, 1, 7]):
        torch.testing.assert_close(in_pieces(module, x, pieces, blocked)[0], whole)
    assert (whole[1] - module(x)[1]).abs().max() > 1e-3


def test_no_new_token_with_a_mask_and_nothing_held():
    module, cache = layer(2, window=1), KVCache()
    module(tokens(5), cache)
    blocked = torch.zeros(0, 5, dtype=torch.bool)
    output, weights = module(tokens(0), cache, mask=blocked, return_weights=True)
    assert output.shape == (B, 0, D_MODEL) and weights.shape == (B, H, 0, 0)


def test_each_projection_starts_by_glorots_rule_for_itself():
    """Uniform on ±√(6 / (inputs + outputs)), with each projection's own number of outputs."""
    torch.manual_seed(0)
    made = GroupedQueryAttention(30, 6, 2, d_k=8, bias=True)
    for weight in (*made.w_qkv.weight.split([48, 16, 16]), made.w_o.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.98 * bound < weight.abs().max() <= bound
    assert not made.w_qkv.bias.any() and not made.w_o.bias.any()


@pytest.mark.parametrize("window", [None, 16])
@torch.no_grad()
def test_exported_for_any_length_it_computes_the_same(window):
    """A window no narrower than the tokens needs no mask, and PyTorch wants a bool, no symbol."""
    module, length = layer(2, rope_base=10_000.0, window=window), torch.export.Dim("T", max=16)
    sizes = {"x": {1: length}}
    exported = torch.export.export(module, (tokens(7),), dynamic_shapes=sizes, strict=False)
    for n in (5, 16):
        torch.testing.assert_close(exported.module()(tokens(n)), module(tokens(n)))


@pytest.mark.plain
def test_numpy_numbers_are_numbers():
    sizes = {"d_k": np.int8(6), "rope_base": np.float32(100), "window": np.int8(3)}
    made = GroupedQueryAttention(np.int8(100), np.int32(4), np.int64(2), **sizes)
    taken = made.d_model, made.n_heads, made.n_kv_heads, made.d_k, made.window, *made.parts
    assert taken == (100, 4, 2, 6, 3, 24, 12, 12) and {type(n) for n in taken} == {int}
    assert type(made.rope_base) is float
    assert made(torch.randn(2, 5, 100)).shape == (2, 5, 100)


def test_gradients_reach_every_parameter_and_are_never_nan():
    module = layer(2, rope_base=10.0, bias=True)
    nothing = torch.ones(B, 1, 1, 5, dtype=torch.bool)
    for mask in (None, nothing):
        module.zero_grad()
        module(tokens(5), mask=mask).square().sum().backward()
        for name, parameter in module.named_parameters():
            assert not parameter.grad.isnan().any(), name
        assert (module.w_o.bias.grad != 0).any() or mask is not None
    x = tokens(5).requires_grad_()
    assert torch.autograd.gradcheck(module, (x,))


# ---------------------------------------------------------------- the cache


def test_bytes_of_the_cache_are_those_of_the_formula():
    for dtype, size in ((torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2)):
        cache = KVCache()
        assert cache.nbytes == 0 and cache.length == 0 and cache.keys is None
        module = layer(2, dtype=dtype)
        for n in (5, 1, 1):
            module(tokens(n, dtype=dtype), cache)
        assert cache.nbytes == 2 * B * 2 * D_K * 7 * size
        assert cache.keys.untyped_storage().nbytes() == cache.nbytes / 2


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("h_kv", [1, 4])
def test_the_first_tokens_of_one_sequence_keep_nothing_else(n, h_kv):
    cache = KVCache()
    layer(h_kv)(tokens(n)[:1], cache)
    for held in (cache.keys, cache.values):
        assert held.untyped_storage().nbytes() == cache.nbytes / 2


def test_a_window_frees_the_memory_of_what_it_drops():
    cache, module = KVCache(), layer(1, window=4)
    module(tokens(11), cache)
    assert cache.length == 11 and cache.keys.shape[2] == 3
    assert cache.keys.untyped_storage().nbytes() == B * 3 * D_K * 8


def test_reorder_goes_on_with_other_sequences(device):
    module, x = layer(2, rope_base=10_000.0, device=device), tokens(device=device)
    cache, index = KVCache(), torch.tensor([2, 0, 2, 1, 1])
    module(x[:, :7], cache)
    cache.reorder(index)
    assert cache.length == 7 and cache.keys.shape[0] == 5
    torch.testing.assert_close(module(x[index, 7:], cache), module(x)[index, 7:])


def test_a_refusal_leaves_the_cache_as_it_was():
    module, cache = layer(2), KVCache()
    module(tokens(4), cache)
    keys = cache.keys
    for x, mask in (
        (tokens(1)[:2], None),
        (tokens(1).float(), None),
        (tokens(1), torch.zeros(1, 4, dtype=torch.bool)),
    ):
        with pytest.raises((TypeError, ValueError)):
            module(x, cache, mask=mask)
        assert cache.keys is keys and cache.length == 4


# ---------------------------------------------------------------- rotation


@given(
    st.integers(1, 5),
    st.lists(st.integers(-50, 10**6), min_size=1, max_size=7),
    st.sampled_from([1.5, 10_000.0]),
)
def test_rotate_equals_complex_numbers(half, positions, base):
    x = torch.randn(3, len(positions), 2 * half, dtype=torch.float64)
    expected = torch.stack([
        torch.stack([turned(row, p, base) for row, p in zip(rows, positions, strict=True)])
        for rows in x
    ])  # fmt: skip
    torch.testing.assert_close(rotate(x, torch.tensor(positions), base), expected,
                               atol=1e-8, rtol=1e-8)  # fmt: skip


def test_the_base_is_that_of_the_paper_unless_it_is_given():
    x, at = tokens()[..., :6], torch.tensor([99, 7, *range(10)])
    torch.testing.assert_close(rotate(x, at), rotate(x, at, 10_000.0), rtol=0, atol=0)


def test_a_layer_says_its_sizes():
    said = repr(GroupedQueryAttention(12, 4, 2))
    assert "d_model=12, n_heads=4, n_kv_heads=2, d_k=3\n" in said and "bias=True" not in said
    said = repr(GroupedQueryAttention(24, 4, 2, rope_base=100.0, window=5))
    assert "d_k=6, rope_base=100.0, window=5\n" in said


def test_scores_depend_on_the_distance_only(device):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 5, 16, generator=generator, dtype=torch.float64).to(device)
    at = torch.arange(5, device=device)
    scores = rotate(q, at) @ rotate(k, at).mT
    for shift in range(1, 101):
        moved = rotate(q, at + shift) @ rotate(k, at + shift).mT
        assert (moved - scores).abs().max() < 1e-6
    assert (q @ k.mT - scores).abs().max() > 0.1  # and on the distance they do depend
    torch.testing.assert_close(rotate(q, at).norm(dim=-1), q.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_far_positions_lose_nothing_in_small_dtypes(dtype):
    x = torch.randn(3, 8).to(dtype)
    far = torch.tensor([0, 99_991, 1_000_003])
    result = rotate(x, far)
    assert result.dtype == dtype
    exact = rotate(x.double(), far)
    assert (result.double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps * exact.abs().max()


# ---------------------------------------------------------------- refusals


@pytest.mark.plain
def test_a_layer_whose_dimensions_cannot_turn_in_pairs_is_not_made():
    with pytest.raises(ValueError, match=r"^d_k must be even .* got 3"):
        GroupedQueryAttention(12, 4, 2, rope_base=1e4)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("elsewhere", "kind", "words"),
    [
        (torch.float32, TypeError, "x must have the dtype of the cache: .*float64 .*float32"),
        ("meta", ValueError, "x must be on the device of the cache: .* cpu, .* meta"),
    ],
)
def test_a_cache_of_another_dtype_or_device_is_refused(elsewhere, kind, words):
    cache = KVCache()
    layer(2)(tokens(3), cache)
    with pytest.raises(kind, match=words):
        layer(2).to(elsewhere)(tokens(1).to(elsewhere), cache)
    assert cache.length == 3


@pytest.mark.plain
def test_a_cache_of_another_layer_is_refused():
    cache = KVCache()
    layer(2)(tokens(3), cache)
    with pytest.raises(ValueError, match="another layer or batch"):
        layer(4)(tokens(3), cache)
    for index in (torch.tensor([3]), torch.tensor([[0]])):
        with pytest.raises(ValueError, match="index must"):
            cache.reorder(index)
    with pytest.raises(ValueError, match=r"^reorder .* this one is empty.$"):
        KVCache().reorder(torch.tensor([0]))
