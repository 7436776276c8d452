"""The core against an independent reference, against PyTorch, and against its own promises."""

import copy
import math

import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mha_lesson import (
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)

# What rounding may do: scores and a mean of up to 13 values of size about 1.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.bfloat16: 4e-2,
    torch.float16: 6e-3,
}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: str(d).split(".")[1])
both_cores = pytest.mark.parametrize("explicit", [False, True], ids=["fused", "explicit"])

primes = st.sampled_from([1, 2, 3, 5, 7])
seeds = st.integers(0, 2**16)


def normal(*shape, seed=0, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)


def close(actual, expected, dtype=torch.float32):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        actual.cpu().double(), expected.cpu().double(), rtol=tolerance, atol=tolerance
    )


def core(query, key, value, mask=None, *, explicit, **options):
    """The context of either core."""
    if explicit:
        return scaled_dot_product_attention(
            query, key, value, mask, return_weights=True, **options
        )[0]
    return scaled_dot_product_attention(query, key, value, mask, **options)


def random_mask(kind, B, h, t_q, t_k, seed):
    shape = {
        "none": None,
        "2": (t_q, t_k),
        "3": (B, t_q, t_k),
        "4": (B, h, t_q, t_k),
        "keys": (B, 1, 1, t_k),
        "queries": (1, h, t_q, 1),
    }[kind]
    return None if shape is None else normal(*shape, seed=seed + 99) > 0.3


mask_kinds = st.sampled_from(["none", "2", "3", "4", "keys", "queries"])


# ------------------------------------------------------------------ splitting and merging


@given(primes, primes, primes, st.sampled_from([2, 3, 5]), seeds)
def test_split_heads_gives_each_head_its_block_of_columns(B, T, h, d_k, seed):
    x = normal(B, T, h * d_k, seed=seed)
    heads = split_heads(x, h)
    assert heads.shape == (B, h, T, d_k)
    for i in range(h):
        assert torch.equal(heads[:, i], x[:, :, i * d_k : (i + 1) * d_k])
    assert heads.data_ptr() == x.data_ptr()


@given(primes, primes, primes, st.sampled_from([2, 3, 5]), seeds)
def test_merge_heads_lays_the_heads_side_by_side(B, T, h, d_k, seed):
    x = normal(B, h, T, d_k, seed=seed)
    assert torch.equal(merge_heads(x), torch.cat([x[:, i] for i in range(h)], dim=-1))
    assert torch.equal(split_heads(merge_heads(x), h), x)


def test_split_and_merge_take_slices_of_larger_tensors():
    x = normal(7, 5, 2, 12).transpose(0, 2)[:, ::2]  # (2, 3, 7, 12), nothing contiguous
    assert torch.equal(merge_heads(x), merge_heads(x.contiguous()))
    assert torch.equal(split_heads(x[:, 0], 3), split_heads(x[:, 0].contiguous(), 3))


# ------------------------------------------------------------------ against the reference


@given(primes, primes, primes, primes, primes, primes, mask_kinds, seeds)
def test_both_cores_equal_the_loops(B, h, t_q, t_k, d_k, d_v, kind, seed):
    q, k = normal(B, h, t_q, d_k, seed=seed), normal(B, h, t_k, d_k, seed=seed + 1)
    v = normal(B, h, t_k, d_v, seed=seed + 2)
    mask = random_mask(kind, B, h, t_q, t_k, seed)
    expected, expected_weights = reference.attend_all(q, k, v, mask)
    context, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True)
    close(context, expected)
    close(weights, expected_weights)
    close(scaled_dot_product_attention(q, k, v, mask), expected)


@given(primes, primes, st.sampled_from([2, 3, 5]), mask_kinds, seeds)
def test_causal_joins_the_mask_on_both_cores(B, h, T, kind, seed):
    q, k, v = (normal(B, h, T, 3, seed=seed + i) for i in range(3))
    mask = random_mask(kind, B, h, T, T, seed)
    expected, expected_weights = reference.attend_all(q, k, v, mask, causal=True)
    context, weights = scaled_dot_product_attention(
        q, k, v, mask, causal=True, return_weights=True
    )
    close(context, expected)
    close(weights, expected_weights)
    close(scaled_dot_product_attention(q, k, v, mask, causal=True), expected)


@every_dtype
@both_cores
@pytest.mark.parametrize("kind", ["none", "3", "keys"])
def test_every_dtype_on_both_cores(dtype, explicit, kind, device):
    q, k = normal(2, 3, 5, 11, dtype=dtype), normal(2, 3, 7, 11, seed=1, dtype=dtype)
    v = normal(2, 3, 7, 13, seed=2, dtype=dtype)
    mask = random_mask(kind, 2, 3, 5, 7, seed=3)
    expected, _ = reference.attend_all(q, k, v, mask)
    context = core(
        *(x.to(device) for x in (q, k, v)),
        None if mask is None else mask.to(device),
        explicit=explicit,
    )
    assert context.dtype == dtype and context.device.type == device.type
    close(context, expected, dtype)


@pytest.mark.parametrize("axes", [(), (2,), (2, 3)], ids=["none", "B", "B h"])
@both_cores
def test_any_axes_before_the_last_two(axes, explicit):
    q, k, v = normal(*axes, 5, 3), normal(*axes, 7, 3, seed=1), normal(*axes, 7, 2, seed=2)
    mask = normal(5, 7, seed=3) > 0
    context = core(q, k, v, mask, explicit=explicit)
    full = [x.reshape(*([1] * (4 - x.ndim)), *x.shape) for x in (q, k, v)]
    expected, _ = reference.attend_all(*full, mask)
    close(context, expected.reshape(context.shape))


@both_cores
def test_a_mask_with_an_axis_for_heads_serves_a_single_head(explicit):
    q, k, v = normal(2, 5, 3), normal(2, 5, 3, seed=1), normal(2, 5, 3, seed=2)
    mask = padding_mask([3, 5], 5)  # (B, 1, 1, T)
    with_head_axis = core(q[:, None], k[:, None], v[:, None], mask, explicit=explicit)
    close(core(q, k, v, mask, explicit=explicit), with_head_axis[:, 0])
    close(core(q[0], k[0], v[0], mask[:1], explicit=explicit), with_head_axis[0, 0])


@pytest.mark.parametrize("mask_axes", [2, 4])
def test_equal_to_pytorchs_function_with_its_convention(mask_axes):
    q, k, v = normal(2, 3, 5, 7), normal(2, 3, 11, 7, seed=1), normal(2, 3, 11, 7, seed=2)
    keep = normal(*(5, 11) if mask_axes == 2 else (2, 3, 5, 11), seed=3) > -0.5
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
    for explicit in (False, True):
        close(core(q, k, v, ~keep, explicit=explicit), expected)


# ------------------------------------------------------------------ the module


SIZES = {"d_k tied": (12, 3, None), "d_k free": (7, 3, 5), "one head": (5, 1, None)}
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def module(sizes, seed=0, **options):
    torch.manual_seed(seed)
    d_model, n_heads, d_k = sizes
    mha = MultiHeadAttention(d_model, n_heads, d_k=d_k, **options)
    if mha.w_o.bias is not None:  # zero after construction: a forgotten bias would not show
        nn.init.normal_(mha.w_qkv.bias)
        nn.init.normal_(mha.w_o.bias)
    return mha


@every_size
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["none", "2", "3", "4"])
def test_module_equals_the_paper(sizes, bias, kind):
    mha = module(sizes, bias=bias)
    query, key = normal(2, 5, sizes[0]), normal(2, 7, sizes[0], seed=1)
    value = normal(2, 7, sizes[0], seed=2)
    mask = random_mask(kind, 2, sizes[1], 5, 7, seed=3)
    expected, expected_weights = reference.multi_head(mha, query, key, value, mask)
    output, weights = mha(query, key, value, mask, return_weights=True)
    close(output, expected)
    close(weights, expected_weights)
    close(mha(query, key, value, mask), expected)


@every_size
def test_key_defaults_to_query_and_value_to_key(sizes):
    mha = module(sizes)
    x, memory, other = (normal(2, 5, sizes[0], seed=i) for i in range(3))
    assert torch.equal(mha(x), mha(x, x, x))
    close(mha(x), reference.multi_head(mha, x, x, x)[0])
    close(mha(x, memory), reference.multi_head(mha, x, memory, memory)[0])
    close(mha(x, value=other), reference.multi_head(mha, x, x, other)[0])
    assert not torch.allclose(mha(x, memory), mha(x, other))


@both_cores
def test_without_a_batch(explicit):
    mha = module(SIZES["d_k free"])
    x, memory = normal(5, 7), normal(11, 7, seed=1)
    mask = normal(5, 11, seed=2) > 0
    batched = mha(x[None], memory[None], mask=mask, return_weights=explicit)
    single = mha(x, memory, mask=mask, return_weights=explicit)
    if explicit:
        assert single[0].shape == (5, 7) and single[1].shape == (3, 5, 11)
        assert torch.equal(single[0], batched[0][0]) and torch.equal(single[1], batched[1][0])
    else:
        assert torch.equal(single, batched[0])


@pytest.mark.parametrize("bias", [True, False])
@every_dtype
def test_from_and_to_torch_are_equal_and_inverse(bias, dtype, device):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, dropout=0.25, batch_first=True)
    theirs = theirs.to(device, dtype).eval()
    for name, parameter in theirs.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    ours = MultiHeadAttention.from_torch(theirs)
    assert (ours.dropout, ours.training, ours.w_o.weight.dtype) == (0.25, False, dtype)
    assert ours.w_o.weight.device.type == device.type
    x, memory = (normal(2, n, 12, seed=n, dtype=dtype, device=device) for n in (5, 7))
    expected, weights = theirs(x, memory, memory, average_attn_weights=False)
    close(ours(x, memory), expected, dtype)
    close(ours(x, memory, return_weights=True)[1], weights, dtype)
    back = ours.to_torch()
    assert (back.dropout, back.training, back.batch_first) == (0.25, False, True)
    assert list(back.state_dict()) == list(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor) and tensor.dtype == dtype
    ours.w_o.weight.data.zero_()  # a copy, not a second name for the same memory
    assert theirs.out_proj.weight.abs().sum() > 0 and back.out_proj.weight.abs().sum() > 0


def test_from_torch_keeps_training_mode_and_ignores_the_order_of_axes():
    theirs = nn.MultiheadAttention(12, 3)
    ours = MultiHeadAttention.from_torch(theirs)
    assert ours.training and ours.to_torch().training
    x = normal(5, 2, 12)
    expected, _ = theirs(x, x, x, need_weights=False)
    close(ours(x.transpose(0, 1)), expected.transpose(0, 1))


def test_names_and_shapes_of_the_parameters():
    mha = MultiHeadAttention(7, 3, d_k=5)
    assert {n: tuple(p.shape) for n, p in mha.named_parameters()} == {
        "w_qkv.weight": (45, 7), "w_qkv.bias": (45,), "w_o.weight": (7, 15), "w_o.bias": (7,),
    }  # fmt: skip
    assert (mha.d_model, mha.n_heads, mha.d_k) == (7, 3, 5)
    assert MultiHeadAttention().d_k == 64
    assert len(list(MultiHeadAttention(12, 3, bias=False).parameters())) == 2
    assert "d_model=7, n_heads=3, d_k=5" in repr(mha) and "dropout" not in repr(mha)
    assert "dropout=0.1" in repr(MultiHeadAttention(12, 3, dropout=0.1))


def test_each_projection_is_drawn_as_a_layer_of_its_own():
    torch.manual_seed(0)
    mha = MultiHeadAttention(256, 4, d_k=16)
    limit = math.sqrt(6 / (256 + 64))
    for weight in (*mha.w_qkv.weight.chunk(3), mha.w_o.weight):
        assert 0.98 * limit < weight.abs().max() <= limit
    assert mha.w_qkv.bias.abs().max() == mha.w_o.bias.abs().max() == 0
    before = mha.w_o.weight.clone()
    mha.reset_parameters()
    assert not torch.equal(before, mha.w_o.weight)


def test_output_is_the_sum_of_every_heads_slab():
    mha = module((12, 3, None))
    x = normal(2, 5, 12)
    q, k, v = (split_heads(part, 3) for part in mha.w_qkv(x).chunk(3, -1))
    heads = scaled_dot_product_attention(q, k, v)
    slabs = mha.w_o.weight.split(4, dim=1)
    total = sum(heads[:, i] @ slabs[i].T for i in range(3)) + mha.w_o.bias
    close(mha(x), total)


def test_a_copy_is_independent_and_equal():
    mha = module(SIZES["d_k free"], dropout=0.1).eval()
    twin = copy.deepcopy(mha)
    x = normal(2, 5, 7)
    assert torch.equal(mha(x), twin(x))
    twin.w_o.weight.data.zero_()
    assert not torch.equal(mha(x), twin(x))


# ------------------------------------------------------------------ properties


@both_cores
def test_causality(explicit):
    mha = module((12, 3, None))
    x = normal(2, 7, 12)
    later = x.clone()
    later[:, 4] = 9.0
    before, after = (
        mha(y, causal=True, return_weights=explicit)[0] if explicit else mha(y, causal=True)
        for y in (x, later)
    )
    assert torch.equal(before[..., :4, :], after[..., :4, :])
    assert not torch.allclose(before[..., 4, :], after[..., 4, :])
    assert not torch.allclose(mha(x)[:, :4], mha(later)[:, :4])


@given(st.integers(1, 5), seeds)
def test_padding_changes_no_real_row(more, seed):
    mha = module((12, 3, None), seed=seed)
    x = normal(2, 5, 12, seed=seed)
    padded = torch.cat([x, 1e3 * normal(2, more, 12, seed=seed + 1)], dim=1)
    mask = padding_mask([5, 5], 5 + more)
    close(mha(padded, mask=mask)[:, :5], mha(x))
    close(mha(padded, mask=mask, causal=True)[:, :5], mha(x, causal=True))
    close(mha(padded, mask=mask, return_weights=True)[0][:, :5], mha(x))


@given(st.permutations(range(5)), seeds)
def test_without_a_mask_the_order_of_tokens_does_not_matter(order, seed):
    mha = module((12, 3, None), seed=seed)
    x = normal(2, 5, 12, seed=seed)
    close(mha(x[:, order]), mha(x)[:, order])
    close(mha(normal(2, 3, 12), x[:, order]), mha(normal(2, 3, 12), x))


@given(primes, primes, mask_kinds, seeds)
def test_weights_are_shares(t_q, t_k, kind, seed):
    q, k = normal(2, 3, t_q, 5, seed=seed), normal(2, 3, t_k, 5, seed=seed + 1)
    mask = random_mask(kind, 2, 3, t_q, t_k, seed)
    context, weights = scaled_dot_product_attention(q, k, k, mask, return_weights=True)
    blocked = reference.full_mask(mask, 2, 3, t_q, t_k)
    assert (weights >= 0).all() and (weights[blocked] == 0).all()
    close(weights.sum(-1), (~blocked.all(-1)).float())
    close(context, weights @ k)


def test_scores_are_divided_by_the_root_of_d_k_not_of_anything_else():
    q, k = normal(1, 1, 3, 11), normal(1, 1, 5, 11, seed=1)
    _, weights = scaled_dot_product_attention(q, k, k, return_weights=True)
    close(weights.log().diff(dim=-1), (q @ k.mT / math.sqrt(11)).diff(dim=-1))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"return_weights": True}])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_equal_finite_differences(options, masked):
    q, k, v = (normal(1, 2, 3, 2, seed=i, dtype=torch.float64).requires_grad_() for i in range(3))
    mask = torch.tensor([[False, True, False], [True, True, True], [False, False, False]])
    torch.autograd.gradcheck(
        lambda *a: scaled_dot_product_attention(*a, mask if masked else None, **options), (q, k, v)
    )


# ------------------------------------------------------------------ blocked rows, extremes


@every_dtype
@both_cores
@pytest.mark.parametrize("scale", [1.0, 100.0], ids=["small", "scores to 1e4"])
def test_a_blocked_query_has_a_zero_context_and_nothing_is_nan(dtype, explicit, scale, device):
    q, k, v = (
        (normal(2, 3, 5, 7, seed=i, dtype=dtype, device=device) * (scale if i < 2 else 1))
        .requires_grad_()
        for i in range(3)
    )
    mask = torch.zeros(2, 1, 5, 5, dtype=torch.bool, device=device)
    mask[0, :, 1] = True  # one query
    mask[1] = True  # a whole sequence, as of length 0
    context = core(q, k, v, mask, explicit=explicit)
    context.float().square().sum().backward()
    assert (context[0, :, 1] == 0).all() and (context[1] == 0).all()
    assert (context[0, :, [0, 2, 3, 4]] != 0).any(dim=-1).all()
    for x in (context, q.grad, k.grad, v.grad):
        assert x.isfinite().all()
    assert (q.grad[0, :, 1] == 0).all() and (v.grad[1] == 0).all()


@both_cores
def test_a_length_of_zero_goes_through_the_module(explicit):
    mha = module((12, 3, None))
    x = normal(2, 5, 12).requires_grad_()
    out = mha(x, mask=padding_mask([0, 3], 5), return_weights=explicit)
    output = out[0] if explicit else out
    if explicit:
        assert (out[1][0] == 0).all()
    close(output[0], mha.w_o.bias.expand(5, 12))
    output.sum().backward()
    for parameter in (x, *mha.parameters()):
        assert parameter.grad.isfinite().all()


@both_cores
def test_float16_scores_beyond_its_range_do_not_overflow(explicit, device):
    q = torch.full((1, 1, 2, 64), 200.0, dtype=torch.float16, device=device)
    k = torch.stack([q[0, 0, 0], q[0, 0, 0] / 2])[None, None]  # scores 320,000 and 160,000
    v = normal(1, 1, 2, 3, dtype=torch.float16, device=device)
    context = core(q, k, v, explicit=explicit)
    close(context, v[:, :, :1].expand_as(context), torch.float16)


def test_bfloat16_weights_are_made_in_float32():
    """Small weights survive: a softmax in bfloat16 would round its sum."""
    q = torch.zeros(1, 1, 1, 2, dtype=torch.bfloat16)
    k = torch.zeros(1, 1, 1000, 2, dtype=torch.bfloat16)
    _, weights = scaled_dot_product_attention(q, k, k, return_weights=True)
    assert weights.dtype == torch.bfloat16
    close(weights.double(), torch.full((1, 1, 1, 1000), 1e-3), torch.float16)


# ------------------------------------------------------------------ dropout


@both_cores
def test_dropout_keeps_the_mean_and_drops_the_share_it_was_asked_to(explicit):
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 1, 2)
    k, v = torch.zeros(1, 1, 20_000, 2), torch.ones(1, 1, 20_000, 1)
    context = core(q, k, v, explicit=explicit, dropout=0.25)
    assert context.item() != 1 and abs(context.item() - 1) < 0.02


def test_returned_weights_are_those_that_were_used():
    torch.manual_seed(0)
    q, v = torch.zeros(1, 1, 3, 2), normal(1, 1, 1000, 5)
    context, weights = scaled_dot_product_attention(
        q, torch.zeros(1, 1, 1000, 2), v, dropout=0.25, return_weights=True
    )
    assert torch.allclose(context, weights @ v)
    assert 0.2 < (weights == 0).float().mean() < 0.3
    close(weights.max(), torch.tensor(1 / 1000 / 0.75))


@both_cores
def test_dropout_is_for_training_only(explicit):
    mha = module((12, 3, None), dropout=0.5)
    x = normal(2, 5, 12)

    def run():
        out = mha(x, return_weights=explicit)
        return out[0] if explicit else out

    assert not torch.equal(run(), run())
    mha.eval()
    assert torch.equal(run(), run())
    close(run(), reference.multi_head(mha, x, x, x)[0])


# ------------------------------------------------------------------ devices and state


@pytest.mark.parametrize("explicit", [False, True])
def test_nothing_moves_to_another_device(explicit, device):
    for where in {"meta", device.type}:
        with torch.device(where):
            mha = MultiHeadAttention(12, 3)
            x = torch.empty(2, 5, 12)
            lengths = torch.tensor([3, 5]) if where != "meta" else torch.empty(2, dtype=torch.int64)
        mask = padding_mask(lengths, 5)
        out = mha(x, mask=mask, causal=True, return_weights=explicit)
        for tensor in out if explicit else (out,):
            assert tensor.device.type == where


def test_autocast_is_let_through():
    mha = module((12, 3, None))
    x = normal(2, 5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = mha(x, mask=padding_mask([3, 5]))
        assert output.dtype == torch.bfloat16
        assert mha(output).dtype == torch.bfloat16
    close(output, mha(x, mask=padding_mask([3, 5])), torch.bfloat16)


@both_cores
def test_inputs_and_masks_are_left_as_they_were(explicit):
    q, k, v = (normal(2, 3, 5, 7, seed=i) for i in range(3))
    mask = random_mask("4", 2, 3, 5, 5, seed=5)
    mask[0, 0, 0] = True
    before = [x.clone() for x in (q, k, v, mask)]
    core(q, k, v, mask, explicit=explicit, causal=True)
    assert all(torch.equal(a, b) for a, b in zip(before, (q, k, v, mask), strict=True))


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_smallest_sequences(T, masked):
    mha = module(SIZES["one head"])
    x = normal(1, T, 5)
    mask = causal_mask(T) if masked else None
    close(mha(x, mask=mask), reference.multi_head(mha, x, x, x, mask)[0])
