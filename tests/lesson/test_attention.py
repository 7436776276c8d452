"""The core against an independent reference, against PyTorch, and against what it must not do."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.testing import assert_close

import reference
from mha_lesson import (
    GroupedQueryAttention,
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)
from mha_lesson.attention import textbook_attention

PRIMES = [2, 3, 5, 7, 11, 13]  # distinct sizes: two swapped axes cannot go unseen
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# What rounding to so many bits costs, for outputs and weights of order 1.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}
MASKS = ["none", "T_q T_k", "B T_q T_k", "B h T_q T_k", "B 1 1 T_k", "1 h T_q 1", "1 1 T_q T_k"]
BOTH_PATHS = pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "explicit"])
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    """Equal up to the rounding of `ours`' dtype."""
    tolerance = TOLERANCE[ours.dtype]
    assert ours.shape == theirs.shape
    assert_close(ours.double().cpu(), theirs.double().cpu(), rtol=tolerance, atol=tolerance)


@st.composite
def cases(draw) -> SimpleNamespace:
    """Sizes, a mask's axes and a dtype, drawn together; tensors come from `normal`."""
    B, T_q, T_k, h, d_k, d_v = draw(st.permutations(PRIMES))
    if draw(st.booleans()):  # a GPU's fused kernels want multiples of 8
        d_k = d_v = 8
    causal = draw(st.booleans())
    sizes = {"B": B, "T_q": T_q, "T_k": T_q if causal else T_k, "h": h, "d_k": d_k, "d_v": d_v}
    return SimpleNamespace(
        **sizes,
        dtype=draw(st.sampled_from(DTYPES)),
        causal=causal,
        mask_axes=draw(st.sampled_from(MASKS)),
        share=draw(st.sampled_from([0.2, 0.9])),
        seed=(seed := draw(st.integers(0, 2**31))),
        generator=torch.Generator().manual_seed(seed),
    )


def normal(case: SimpleNamespace, *sizes: int) -> Tensor:
    """Drawn on the CPU: the same values on every device."""
    return torch.randn(sizes, generator=case.generator, dtype=torch.float64).to(case.dtype)


def mask_of(case: SimpleNamespace) -> Tensor | None:
    """Random cells, so with a large share blocked whole rows are, too."""
    if case.mask_axes == "none":
        return None
    sizes = [1 if axis == "1" else getattr(case, axis) for axis in case.mask_axes.split()]
    return torch.rand(sizes, generator=case.generator) < case.share


def inputs_of(case: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Of the function: query, key, value, and the mask."""
    sizes = (case.T_q, case.d_k), (case.T_k, case.d_k), (case.T_k, case.d_v)
    return *(normal(case, case.B, case.h, *size) for size in sizes), mask_of(case)


def first(result: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The output, with weights beside it or without."""
    return result[0] if isinstance(result, tuple) else result


def to(device: torch.device, *tensors: Tensor | None) -> list[Tensor | None]:
    return [None if x is None else x.to(device) for x in tensors]


# Splitting and merging


@given(st.permutations(PRIMES))
def test_split_heads_puts_every_number_in_its_place(device, sizes):
    B, T, h, d_k = sizes[:4]
    x = torch.arange(B * T * h * d_k, dtype=torch.float64, device=device).view(B, T, h * d_k)
    heads = split_heads(x, h)
    assert heads.shape == (B, h, T, d_k)
    assert heads.data_ptr() == x.data_ptr(), "splitting copies nothing"
    for i in range(h):
        assert torch.equal(heads[:, i], x[:, :, i * d_k : (i + 1) * d_k])
    assert torch.equal(merge_heads(heads), x)


# The function


@settings(max_examples=2 * settings.default.max_examples)
@given(cases(), st.sampled_from([4, 4, 3, 2]))
def test_function_equals_the_loop(device, case, n_axes):
    """Without h, or without B and h, as with axes of size 1, whatever the mask's axes."""
    case.h, case.B = (case.h if n_axes == 4 else 1), (case.B if n_axes > 2 else 1)
    *inputs, mask = inputs_of(case)
    expected, expected_weights = reference.attention(*inputs, mask, case.causal)
    blocked = reference.blocked_cells(mask, case.causal, tuple(expected_weights.shape))

    def fewer(x):
        return x.flatten(0, 4 - n_axes)

    query, key, value, mask = to(device, *map(fewer, inputs), mask)
    before = None if mask is None else mask.clone()
    explicit, weights = scaled_dot_product_attention(
        query, key, value, mask, causal=case.causal, return_weights=True
    )
    fused = scaled_dot_product_attention(query, key, value, mask, causal=case.causal)
    assert fused.dtype == explicit.dtype == weights.dtype == case.dtype
    assert fused.device == explicit.device == weights.device == query.device
    assert_near(weights, fewer(expected_weights))
    assert_near(explicit, fewer(expected))
    assert_near(fused, fewer(expected))
    assert not weights.cpu()[fewer(torch.from_numpy(blocked))].any(), "exactly 0"
    assert mask is None or torch.equal(mask, before)


@given(cases())
def test_the_textbook_formula_gives_the_same(device, case):
    """The formula as it is written, both ways of the faster function, and the gradients of all."""
    case.dtype = torch.float64
    *inputs, mask = to(device, *inputs_of(case))
    for x in inputs:
        x.requires_grad_()
    how = {"mask": mask, "causal": case.causal}
    tuned = scaled_dot_product_attention(*inputs, **how, return_weights=True)
    fused = scaled_dot_product_attention(*inputs, **how)

    if mask is None:
        mask = torch.zeros(case.T_q, case.T_k, dtype=torch.bool, device=device)
    if mask.ndim == 3:
        mask = mask[:, None]
    if case.causal:
        mask = mask | causal_mask(case.T_q, device=device)
    context, weights = textbook_attention(*inputs, mask)
    for ours, theirs, of in (
        (tuned[0], context, inputs),
        (tuned[1], weights, inputs[:2]),
        (fused, context, inputs),
    ):
        assert_near(ours, theirs)
        into = torch.randn_like(ours)
        gradients = torch.autograd.grad(ours, of, into, retain_graph=True)
        expected = torch.autograd.grad(theirs, of, into, retain_graph=True)
        for a, b in zip(gradients, expected, strict=True):
            assert_near(a, b)


# The class


GROUPED = GroupedQueryAttention(30, 6, 2, d_k=8, bias=True)
KINDS = ["self", "own values", "cross", "general"]


@given(cases(), st.sampled_from(KINDS), st.booleans(), st.booleans())
def test_module_equals_the_loop_over_heads(device, case, kind, bias, batched):
    case.B = case.B if batched else 1
    d_model = 17  # free d_k: h * d_k is something else
    mha = MultiHeadAttention(d_model, case.h, d_k=case.d_k, bias=bias).to(case.dtype)
    with torch.no_grad():
        for parameter in mha.parameters():
            parameter.copy_(normal(case, *parameter.shape) / math.sqrt(d_model))

    own_keys, more_values = kind in ("self", "own values"), kind in ("own values", "general")
    case.T_k = case.T_q if own_keys else case.T_k
    query = normal(case, case.B, case.T_q, d_model)
    key = query if own_keys else normal(case, case.B, case.T_k, d_model)
    value = normal(case, case.B, case.T_k, d_model) if more_values else key
    mask = mask_of(case)
    expected, expected_weights = reference.multi_head(mha, query, key, value, mask, case.causal)

    mha = mha.to(device)
    query, key, value = to(device, *(x if batched else x[0] for x in (query, key, value)))
    inputs = (query, query if own_keys else key, value)[: {"self": 1, "cross": 2}.get(kind, 3)]
    mask = None if mask is None else mask.to(device)
    output, weights = mha(*inputs, mask=mask, causal=case.causal, return_weights=True)
    fused = mha(*inputs, mask=mask, causal=case.causal)
    assert output.dtype == weights.dtype == fused.dtype == case.dtype
    assert output.device == weights.device == fused.device == inputs[0].device
    assert_near(weights, expected_weights if batched else expected_weights[0])
    assert_near(output, expected if batched else expected[0])
    assert_near(fused, expected if batched else expected[0])


@pytest.mark.parametrize("expanded", ["query", "key", "value"])
def test_a_sequence_expanded_to_a_batch_is_projected_once(device, expanded, monkeypatch):
    like, linear, projected = {"device": device, "dtype": torch.float64}, F.linear, []
    mha = MultiHeadAttention(13, 3, d_k=11).to(**like)
    rows = {name: torch.randn(5, 7, 13, **like) for name in ("query", "key", "value")}
    one = torch.randn(7, 13, **like, requires_grad=True)
    monkeypatch.setattr(F, "linear", lambda x, *more: projected.append(len(x)) or linear(x, *more))

    def called(sequences):
        output = mha(**rows | {expanded: sequences})
        return output, *torch.autograd.grad(output.square().sum(), [one, *mha.parameters()])

    plain, same = called(one.expand(5, -1, -1).clone()), called(one.expand(5, -1, -1))
    assert sorted(projected) == [1, *[5] * 7]  # W^O with them
    assert_close(plain, same, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_pytorchs_module_there_and_back(device, bias, training, dtype):
    theirs = nn.MultiheadAttention(15, 3, bias=bias, dropout=0.25, batch_first=True)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)  # biases, too
    theirs = theirs.to(device, dtype).train(training)
    ours = MultiHeadAttention.from_torch(theirs)
    assert (ours.d_model, ours.n_heads, ours.d_k) == (15, 3, 5)
    assert ours.training == training and ours.dropout == 0.25
    assert ours.w_o.weight.dtype == dtype
    assert ours.w_o.weight.device == theirs.out_proj.weight.device
    assert all(a.data_ptr() != b.data_ptr() for a in ours.parameters() for b in theirs.parameters())

    back = ours.to_torch()
    assert back.batch_first and back.training == training and back.dropout == 0.25
    assert_close(dict(back.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)

    ours, theirs = ours.eval(), theirs.eval()
    query, key, value = (torch.randn(2, T, 15, device=device, dtype=dtype) for T in (7, 11, 11))
    mask = padding_mask([11, 4], 11).to(device)
    expected, expected_weights = theirs(
        query, key, value, key_padding_mask=mask[:, 0, 0], average_attn_weights=False
    )
    output, weights = ours(query, key, value, mask, return_weights=True)
    assert_near(output, expected)
    assert_near(weights, expected_weights)
    assert_near(ours(query, key, value, mask), expected)
    blocked = causal_mask(7, device=device)
    expected, _ = theirs(query, query, query, attn_mask=blocked, need_weights=False)
    assert_near(ours(query, causal=True), expected)
    assert_near(ours(query, mask=blocked), expected)


def test_from_torch_does_not_care_for_batch_first():
    theirs = nn.MultiheadAttention(6, 2, batch_first=False)
    x = torch.randn(3, 5, 6)
    expected, _ = theirs(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))
    assert_near(MultiHeadAttention.from_torch(theirs)(x), expected.transpose(0, 1))


@pytest.mark.parametrize(
    "changed",
    [
        lambda layer, name: prune.l1_unstructured(layer, name, 6),
        lambda layer, name: parametrizations.weight_norm(layer, name),
    ],
    ids=["pruned", "parametrised"],
)
def test_weights_made_from_others_are_copied_as_they_are_used(changed):
    x = torch.randn(2, 5, 6)
    theirs, ours = nn.MultiheadAttention(6, 2, batch_first=True), MultiHeadAttention(6, 2)
    changed(theirs, "in_proj_weight")
    changed(theirs.out_proj, "weight")
    changed(ours.w_qkv, "weight")
    changed(ours.w_o, "weight")
    assert_near(MultiHeadAttention.from_torch(theirs)(x), theirs(x, x, x)[0])
    assert_near(ours.to_torch()(x, x, x)[0], ours(x))


def test_the_parameters_of_a_copy_learn():
    theirs = nn.MultiheadAttention(6, 2).requires_grad_(False)
    ours = MultiHeadAttention.from_torch(theirs)
    assert all(p.requires_grad for p in ours.parameters())
    assert all(p.requires_grad for p in ours.requires_grad_(False).to_torch().parameters())


# Masks of several axes


# Sizes, and what is done to the mask of these sizes.
ODD_MASKS = {
    "whole rows of a sequence": ((2, 1, 5, 1), lambda mask: mask),
    "whole rows of a head": ((1, 3, 5, 1), lambda mask: mask),
    "everything": ((2, 1, 1, 1), torch.ones_like),
    "turned": ((5, 5), lambda mask: mask.mT),
    "expanded over the keys": ((2, 3, 5, 1), lambda mask: mask.expand(2, 3, 5, 5)),
    "expanded over the queries": ((2, 1, 1, 5), lambda mask: mask.expand(2, 3, 5, 5)),
}


@pytest.mark.parametrize("kind", ODD_MASKS)
def test_a_gpus_fused_kernel_gets_each_row_of_a_mask_in_one_piece(monkeypatch, kind):
    """It refuses a mask whose last axis is not T_k numbers side by side; a CPU takes any."""
    sizes, changed = ODD_MASKS[kind]
    mask = changed(torch.rand(sizes) < 0.5)
    pytorchs, taken = F.scaled_dot_product_attention, []

    def watched(*args, attn_mask, **kwargs):
        taken.append(attn_mask)
        return pytorchs(*args, attn_mask=attn_mask, **kwargs)

    query, key, value = (torch.randn(2, 3, 5, 8) for _ in range(3))
    expected, _ = textbook_attention(query, key, value, mask)
    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    assert_near(scaled_dot_product_attention(query, key, value, mask), expected)
    (keep,) = taken
    assert keep is None or (keep.shape[-1] == 5 and keep.stride(-1) == 1)


# Never NaN


@BOTH_PATHS
@EVERY_DTYPE
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_query_with_every_key_blocked(device, return_weights, dtype, dropout):
    """One of sequence 0, and all of sequence 1."""
    tensors = [torch.randn(2, 3, 5, 7).to(device, dtype).requires_grad_() for _ in range(3)]
    mask = torch.rand(2, 1, 5, 5, device=device) < 0.3
    mask[0, :, 2] = mask[1] = True
    result = scaled_dot_product_attention(
        *tensors, mask, dropout=dropout, return_weights=return_weights
    )
    for x in result if return_weights else (result,):
        assert x.isfinite().all() and not x[0, :, 2].any() and not x[1].any()
    first(result).pow(2).sum().backward()
    for x in tensors:
        assert x.grad.isfinite().all() and x.grad[0].any() and not x.grad[1].any()
    assert not tensors[0].grad[0, :, 2].any()


@BOTH_PATHS
@EVERY_DTYPE
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("d_v", [7, 5])
def test_huge_scores(device, return_weights, dtype, masked, d_v):
    """Scores of ±1e4 and, in float16, products beyond its largest number, 65,504."""
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])[:, None]
    query = (signs * torch.full((2, 3, 5, 7), 150.0)).to(device, dtype).requires_grad_()
    key = (signs.flip(0) * torch.linspace(100, 200, 5)[:, None]).expand(2, 3, 5, 7)
    key = key.to(device, dtype).requires_grad_()
    value = torch.randn(2, 3, 5, d_v).to(device, dtype).requires_grad_()
    mask = padding_mask([3, 0], 5).to(device) if masked else None
    expected, expected_weights = reference.attention(query, key, value, mask)
    result = scaled_dot_product_attention(query, key, value, mask, return_weights=return_weights)
    if return_weights:
        assert_near(result[1], expected_weights)
    assert_near(first(result), expected)
    first(result).sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


@EVERY_DTYPE
@pytest.mark.parametrize("masked", [False, True])
def test_the_softmax_is_taken_in_at_least_float32(dtype, masked):
    """Rounded once, at its end; with a mask the second sequence has −∞ among its scores."""
    query, key = torch.randn(2, 1, 31).to(dtype), torch.randn(2, 301, 31).to(dtype)
    mask = padding_mask([301, 7], 301)[:, 0] if masked else None
    _, weights = scaled_dot_product_attention(query, key, key, mask, return_weights=True)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    scores = (query.to(wide) / math.sqrt(31)) @ key.to(wide).mT
    if masked:
        scores = scores.masked_fill(mask, -math.inf)
    assert torch.equal(weights, scores.softmax(dim=-1).to(dtype))


@pytest.mark.parametrize("how", [{}, {"causal": True}], ids=["whole", "causal"])
def test_without_a_gradient_some_rows_at_a_time(monkeypatch, how):
    query, key, value = (torch.randn(2, 3, 11, 7) for _ in range(3))
    mask = torch.rand(2, 1, 11, 11) < 0.5
    whole = scaled_dot_product_attention(query, key, value, mask, return_weights=True, **how)
    monkeypatch.setattr("mha_lesson.execution.SCORES_AT_ONCE", 2 * 2 * 3 * 11)
    rows = scaled_dot_product_attention(query, key, value, mask, return_weights=True, **how)
    for ours, theirs in zip(rows, whole, strict=True):
        assert_near(ours, theirs)


@BOTH_PATHS
@pytest.mark.parametrize("sizes", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (2, 0, 0)], ids=str)
def test_nothing_to_attend(return_weights, sizes):
    """No sequence, no query, no key: shapes hold, and a query without keys has a zero context."""
    B, T_q, T_k = sizes
    query, key = torch.randn(B, 2, T_q, 7), torch.randn(B, 2, T_k, 7)
    for mask in (None, torch.zeros(T_q, T_k, dtype=torch.bool)):
        result = scaled_dot_product_attention(query, key, key, mask, return_weights=return_weights)
        context = first(result)
        assert context.shape == (B, 2, T_q, 7) and context.isfinite().all()
        assert T_k > 0 or not context.any()
        assert not return_weights or result[1].shape == (B, 2, T_q, T_k)


# Gradients


def test_second_and_forward_derivatives_of_the_path_with_weights():
    """As the docstring says; PyTorch's fused attention has none."""
    mha = MultiHeadAttention(4, 2, d_k=3).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64).requires_grad_()

    def output(x):
        return mha(x, mask=padding_mask([3, 0], 3), causal=True, return_weights=True)[0]

    assert torch.autograd.gradgradcheck(output, (x,), check_fwd_over_rev=True, fast_mode=True)
    assert torch.autograd.gradcheck(output, (x,), check_forward_ad=True, fast_mode=True)


@BOTH_PATHS
def test_many_masks_at_once_by_vmap(return_weights):
    """As whoever cuts one link after the other asks for: only the masks are a batch."""
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    masks = torch.rand(13, 5, 11) < 0.5
    masks[0, 2] = True

    def context(mask):
        return first(
            scaled_dot_product_attention(query, key, key, mask, return_weights=return_weights)
        )

    assert_close(torch.func.vmap(context)(masks), torch.stack([*map(context, masks)]))


# Dropout


def test_dropout_zeroes_its_share_and_scales_the_rest(device):
    query, key, value = (torch.randn(2, 3, 101, 7, device=device) for _ in range(3))
    _, plain = scaled_dot_product_attention(query, key, value, return_weights=True)
    how = {"dropout": 0.25}
    context, weights = scaled_dot_product_attention(query, key, value, **how, return_weights=True)
    kept = weights != 0
    assert 0.73 < kept.double().mean() < 0.77  # 61,206 weights: 11 standard deviations
    assert_near(weights[kept], plain[kept] / 0.75)
    assert_near(context, weights @ value)
    fused = [scaled_dot_product_attention(query, key, value, **how) for _ in range(100)]
    assert not torch.allclose(fused[0], plain @ value, atol=1e-2)
    assert_close(torch.stack(fused).mean(0), plain @ value, rtol=0, atol=0.15)


@BOTH_PATHS
def test_dropout_only_in_training(device, return_weights):
    mha, x = MultiHeadAttention(6, 2, dropout=0.5).to(device), torch.randn(2, 11, 6, device=device)

    def output():
        return first(mha(x, return_weights=return_weights))

    dropped, again = output(), output()
    plain = mha.eval()(x)
    assert_near(output(), plain)
    assert not torch.allclose(dropped, plain, atol=1e-2) and not torch.equal(dropped, again)
    share = (mha.train()(x, return_weights=True)[1] == 0).double().mean()
    assert 0.35 < share < 0.65


# The module as a module


def test_its_parameters_and_defaults():
    for bias in (True, False):
        mha = MultiHeadAttention(6, 3, d_k=5, bias=bias)
        shapes = {name: tuple(x.shape) for name, x in mha.state_dict().items()}
        weights = {"w_qkv.weight": (45, 6), "w_o.weight": (6, 15)}
        assert shapes == weights | ({"w_qkv.bias": (45,), "w_o.bias": (6,)} if bias else {})
        assert isinstance(mha.w_qkv, nn.Linear) and isinstance(mha.w_o, nn.Linear)
    mha = MultiHeadAttention()
    assert mha.extra_repr() == "d_model=512, n_heads=8, d_k=64"
    assert mha.dropout == 0.0 and mha.w_o.bias is not None
    assert "dropout=0.5" in repr(MultiHeadAttention(6, 2, dropout=0.5))


@pytest.mark.parametrize(
    "layer", [MultiHeadAttention(30, 5, d_k=8), GROUPED], ids=["taught", "grouped"]
)
def test_each_projection_starts_by_glorots_rule_for_itself(layer):
    """Uniform on ±√(6 / (inputs + outputs)), with each projection's own number of outputs."""
    torch.manual_seed(1)
    nn.init.ones_(layer.w_o.bias)
    before = layer.w_qkv.weight.clone()
    layer.reset_parameters()
    parts = getattr(layer, "parts", 40)
    for weight in (*layer.w_qkv.weight.split(parts), layer.w_o.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.98 * bound < weight.abs().max() <= bound
        assert abs(weight.std() - bound / math.sqrt(3)) < 0.05 * bound
    assert not layer.w_qkv.bias.any() and not layer.w_o.bias.any()
    assert not torch.equal(layer.w_qkv.weight, before)


def test_scores_start_with_variance_1():
    """As the docstring says, and √d_k presumes."""
    q, k, _ = MultiHeadAttention(64, 1).w_qkv(torch.randn(501, 64)).chunk(3, dim=-1)
    for x in (q, k, q @ k.mT / 8):
        assert 0.8 < x.var() < 1.25


@BOTH_PATHS
def test_autocast(device, return_weights):
    """Weights in float32, arithmetic in bfloat16."""
    mha, x = MultiHeadAttention(6, 2).to(device), torch.randn(2, 5, 6, device=device)
    mask = padding_mask([5, 0], 5).to(device)
    expected, _ = mha(x, mask=mask, causal=True, return_weights=True)
    for given_dtype in (torch.float32, torch.bfloat16):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            result = mha(x.to(given_dtype), mask=mask, causal=True, return_weights=return_weights)
        assert first(result).dtype == torch.bfloat16
        assert_near(first(result), expected)


@BOTH_PATHS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_no_score_overflows_under_autocast_to_float16(device, return_weights, causal, dtype):
    """Scores of 80,000 and of 78,400, where float16 ends at 65,504."""
    q = torch.full((2, 3, 64), 100.0, dtype=dtype, device=device)
    q[:, 1] = 98
    v = torch.randn_like(q)
    options = {"causal": causal, "return_weights": return_weights}
    expected, _ = scaled_dot_product_attention(q, q, v, causal=causal, return_weights=True)
    with torch.autocast(device.type, dtype=torch.float16):
        output = first(scaled_dot_product_attention(q, q, v, **options))
    assert output.dtype == torch.float16
    assert_close(output, expected.half(), rtol=0, atol=4e-3)


@BOTH_PATHS
def test_a_blocked_row_is_zero_whatever_the_values_hold(device, return_weights):
    """A sequence that is all padding may hold what was left in memory; 0 times NaN is NaN."""
    x = torch.randn(2, 3, 7, 5, device=device)
    x[1] = torch.nan
    mask = padding_mask([7, 0], 7).to(device)
    output = first(scaled_dot_product_attention(x, x, x, mask, return_weights=return_weights))
    assert (output[1] == 0).all()
    assert_near(output[0], scaled_dot_product_attention(x[0], x[0], x[0]))


# Devices


@BOTH_PATHS
def test_everything_stays_on_the_meta_device(return_weights):
    """Meta tensors have no values, so whatever moves one, or asks `if mask.any()`, fails here."""
    mha, x = MultiHeadAttention(6, 2).to("meta"), torch.randn(3, 5, 6, device="meta")
    lengths = torch.zeros(3, dtype=torch.long, device="meta")
    for mask in (None, causal_mask(5, device="meta"), padding_mask(lengths, 5)):
        for causal in (False, True):
            result = mha(x, mask=mask, causal=causal, return_weights=return_weights)
            assert all(y.is_meta for y in (result if return_weights else (result,)))
    theirs = mha.to_torch()
    assert theirs.in_proj_weight.is_meta
    assert MultiHeadAttention.from_torch(theirs).w_o.weight.is_meta
