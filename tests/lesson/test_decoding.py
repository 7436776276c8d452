"""Rotated positions, shared keys and values, the cache: against loops, PyTorch and each other."""

import cmath
import copy
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from mha_lesson import GroupedQueryAttention, KVCache, padding_mask, rotate

B, T, H, D_MODEL, D_K = 3, 12, 4, 20, 6
AXES = ["", "T T", "n T T", "n 1 T T", "n 1 1 T", "1 h T T", "n h T T", "n h T 1"]  # of a mask


def layer(h_kv=2, *, h=H, dtype=torch.float64, device="cpu", **options):
    torch.manual_seed(h_kv)
    made = GroupedQueryAttention(D_MODEL, h, h_kv, d_k=D_K, **options)
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


def by_hand(module, x, blocked):
    """The layer as loops over sequences, heads and queries: the output, and each head's weights."""
    h, h_kv, d_k = module.n_heads, module.n_kv_heads, module.d_k
    w_q, w_k, w_v = module.w_qkv.weight.split([h * d_k, h_kv * d_k, h_kv * d_k])
    out = torch.zeros(*x.shape[:2], h * d_k, dtype=x.dtype)
    weights = torch.zeros(blocked.shape, dtype=x.dtype)
    for b, i in itertools.product(range(x.shape[0]), range(h)):
        shared = i // (h // h_kv)
        rows = slice(i * d_k, (i + 1) * d_k), slice(shared * d_k, (shared + 1) * d_k)
        q, k, v = x[b] @ w_q[rows[0]].T, x[b] @ w_k[rows[1]].T, x[b] @ w_v[rows[1]].T
        for t in range(x.shape[1]):
            low = 0 if module.window is None else max(0, t - module.window + 1)
            seen = [s for s in range(low, t + 1) if not blocked[b, i, t, s]]
            if not seen:
                continue
            scores = [
                turned(q[t], t, module.rope_base) @ turned(k[s], s, module.rope_base) for s in seen
            ]
            weights[b, i, t, seen] = (torch.stack(scores) / math.sqrt(d_k)).softmax(dim=0)
        out[b, :, rows[0]] = weights[b, i] @ v
    return out @ module.w_o.weight.T, weights


def turned(row, position, base):
    """One row rotated with complex numbers."""
    if base is None:
        return row
    half, numbers = len(row) // 2, row.tolist()
    pairs = map(complex, numbers[:half], numbers[half:])
    pairs = [z * cmath.exp(1j * position * base ** (-i / half)) for i, z in enumerate(pairs)]
    return torch.tensor([z.real for z in pairs] + [z.imag for z in pairs], dtype=row.dtype)


def part(mask, queries, keys):
    """The mask of these tokens; an axis of size 1 stands for all."""
    if mask is None:
        return None
    mask = mask if mask.shape[-2] == 1 else mask[..., queries, :]
    return mask if mask.shape[-1] == 1 else mask[..., keys]


@given(
    n=st.sampled_from([1, 2, 3]),
    heads=st.sampled_from([(4, 1), (4, 2), (4, 4), (2, 1)]),
    n_tokens=st.sampled_from([2, 7]),
    rope_base=st.sampled_from([None, 100.0]),
    window=st.sampled_from([None, 1, 3]),
    axes=st.sampled_from(AXES),
    share=st.sampled_from([0.3, 0.8]),
    first=st.integers(1, 6),
)
@torch.no_grad()
def test_the_layer_equals_the_loop(n, heads, n_tokens, rope_base, window, axes, share, first):
    """At once and in two pieces, of one token or more; a mask counts the tokens dropped, too."""
    h, h_kv = heads
    first = min(first, n_tokens - 1)
    module, x = layer(h_kv, h=h, rope_base=rope_base, window=window), tokens(n_tokens)[:n]
    sizes = [{"n": n, "h": h, "T": n_tokens, "1": 1}[axis] for axis in axes.split()]
    mask = torch.rand(sizes, generator=torch.Generator().manual_seed(n)) < share if axes else None
    each = torch.zeros(1, 1, 1, 1) if mask is None else mask[:, None] if mask.ndim == 3 else mask
    expected, shares = by_hand(module, x, each.expand(n, h, n_tokens, n_tokens))
    output, weights = module(x, mask=mask, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, shares)
    torch.testing.assert_close(module(x, mask=mask), expected)
    cache, rest = KVCache(), slice(first, None)
    begun = module(x[:, :first], cache, mask=part(mask, slice(first), slice(first)))
    more, last = module(
        x[:, first:], cache, mask=part(mask, rest, slice(None)), return_weights=True
    )
    torch.testing.assert_close(torch.cat((begun, more), dim=1), expected)
    dropped = n_tokens - last.shape[-1]
    torch.testing.assert_close(last, shares[:, :, first:, dropped:])
    assert not shares[:, :, first:, :dropped].any()


@given(
    st.data(),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 30.0]),
    st.sampled_from([None, 1, 3, 5]),
    st.booleans(),
)
@torch.no_grad()
def test_in_pieces_and_with_left_padding_as_alone_and_at_once(
    data, h_kv, rope_base, window, padded
):
    """For any way of cutting; notebook 11 tries all 2,048 of one layer."""
    lengths = data.draw(st.lists(st.integers(1, T), min_size=B, max_size=B)) if padded else [T] * B
    ends = sorted({*data.draw(st.lists(st.integers(1, T), max_size=T)), T})
    pieces = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    module, x = layer(h_kv, rope_base=rope_base, window=window), tokens()
    padding = padding_mask(torch.tensor(lengths), T).flip(-1) if padded else None  # on the left
    output, _ = in_pieces(module, x, pieces, padding)
    for b, length in enumerate(lengths):
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


@pytest.mark.parametrize("sizes", [(B, 0), (0, 0), (0, 1), (0, 3)], ids=str)
def test_no_new_token_and_no_sequence(sizes):
    """With a mask of every kind; the window leaves nothing held."""
    n, n_new = sizes
    for axes in ("T_new T", "n 1 T_new T", "n h T_new T", "1 h T_new T"):
        module, cache = layer(2, window=1), KVCache()
        module(tokens(5)[:n], cache)
        named = {"n": n, "h": H, "T_new": n_new, "T": 5 + n_new, "1": 1}
        blocked = torch.zeros([named[axis] for axis in axes.split()], dtype=torch.bool)
        output, weights = module(tokens(n_new)[:n], cache, mask=blocked, return_weights=True)
        assert output.shape == (n, n_new, D_MODEL) and weights.shape == (n, H, n_new, n_new)


class WithCache(torch.nn.Module):
    """As an export takes it: the cache's tensors go in and come out."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, keys, values):
        cache = KVCache()
        cache.keys, cache.values, cache.length = keys, values, keys.shape[2]
        return self.module(x, cache), cache.keys, cache.values


@pytest.mark.plain  # a length that is a symbol is no int to beartype
@pytest.mark.long  # what compiles is traced in the same way
@pytest.mark.parametrize("window", [16, None])
@torch.no_grad()
def test_exported_it_computes_the_same_for_lengths_on_both_sides_of_the_window(window):
    n_new, n_held = torch.export.Dim("T_new", max=40), torch.export.Dim("T_held", min=2, max=40)
    alone = layer(2, rope_base=10_000.0, window=window)
    cached, held = WithCache(alone), {2: n_held}

    def given(n, n_before):
        keys = torch.randn(2, B, 2, n_before, D_K, dtype=torch.float64)
        return (tokens(n), *keys)

    def exported(module, inputs, *sizes):
        return torch.export.export(module, inputs, dynamic_shapes=sizes, strict=False).module()

    whole = exported(alone, (tokens(7),), {1: n_new})
    more, one = (
        exported(cached, given(n, 7), size, held, held) for n, size in ((5, {1: n_new}), (1, None))
    )
    for n in (5, 16, 17, 40):
        torch.testing.assert_close(whole(tokens(n)), alone(tokens(n)))
        for step, n_first in ((more, 4), (more, 23), (one, 1)):
            inputs = given(n_first, n)
            torch.testing.assert_close(step(*inputs), cached(*inputs))


@pytest.mark.plain
@pytest.mark.long  # a graph with a cache and one without, for each length
@torch.no_grad()
def test_compiled_whole_it_computes_the_same_on_both_sides_of_the_window():
    torch.compiler.reset()
    alone = layer(2, rope_base=10_000.0, window=16)
    compiled = torch.compile(alone, fullgraph=True, backend="eager")
    for n in (5, 17, 40):
        torch.testing.assert_close(compiled(tokens(n)), alone(tokens(n)))
        plain, traced = KVCache(), KVCache()
        for length in (n, 1):
            x = tokens(length)
            torch.testing.assert_close(compiled(x, traced), alone(x, plain))


@pytest.mark.plain
@torch.no_grad()
def test_compiled_one_graph_serves_any_length():
    torch.compiler.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer(window=16), fullgraph=True, backend=backend, dynamic=True)
    for n in (5, 17, 40):
        compiled(tokens(n))
    assert len(graphs) == 1


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
    assert torch.autograd.gradcheck(module, (x,), fast_mode=True)


# ---------------------------------------------------------------- the cache


@pytest.mark.parametrize("pieces", [[1], [3], [11], [5, 1, 1]], ids=str)
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_cache_holds_as_many_bytes_as_the_formula_says(pieces, window, dtype, recorded):
    """And keeps no memory alive but what it may spare: a window frees what it drops."""
    empty = KVCache()
    assert empty.nbytes == 0 and empty.length == 0 and empty.keys is None
    n = sum(pieces)
    for h_kv, n_sequences in itertools.product((1, 4), (1, B)):
        x = tokens(n, dtype=dtype)[:n_sequences]
        with torch.set_grad_enabled(recorded):
            _, cache = in_pieces(layer(h_kv, window=window, dtype=dtype), x, pieces)
        held = n if window is None else min(n, window - 1)
        assert cache.length == n and cache.keys.shape[2] == held
        assert cache.nbytes == 2 * n_sequences * h_kv * held * D_K * dtype.itemsize
        spare = min(held, max(16, held // 4))
        for x in (cache.keys, cache.values):
            room = (held + spare) * n_sequences * h_kv * D_K * dtype.itemsize
            assert x.untyped_storage().nbytes() <= (cache.nbytes / 2 if recorded else room)


def test_reorder_goes_on_with_other_sequences(device):
    module, x = layer(2, rope_base=10_000.0, device=device), tokens(device=device)
    cache, index = KVCache(), torch.tensor([2, 0, 2, 1, 1])
    module(x[:, :7], cache)
    cache.reorder(index)
    assert cache.length == 7 and cache.keys.shape[0] == 5
    torch.testing.assert_close(module(x[index, 7:], cache), module(x)[index, 7:])


def test_a_copy_goes_on_alone_and_gradients_go_back_through_it():
    module, x = layer(2), tokens(5).requires_grad_()
    cache = KVCache()
    module(x[:, :4], cache)
    twin = copy.deepcopy({"first": cache, "again": cache})
    assert twin["first"] is twin["again"] and twin["first"].keys is not cache.keys
    (expected,) = torch.autograd.grad(module(x[:, 4:], cache).sum(), x, retain_graph=True)
    (gradient,) = torch.autograd.grad(module(x[:, 4:], twin["first"]).sum(), x)
    torch.testing.assert_close(gradient, expected)
    assert copy.deepcopy(KVCache()).keys is None


def test_a_cache_belongs_to_the_layer_that_first_used_it():
    """Another one of the same sizes would read its keys in silence."""
    model = torch.nn.ModuleList([layer(2), layer(2)])
    caches, x = KVCache.for_layers(model), tokens(4)
    assert len(caches) == 2
    for module, cache in zip(model, caches, strict=True):
        module(x, cache)
    kept = pickle.loads(pickle.dumps(caches[0]))  # a file does not hold the layer
    model[0](x, copy.copy(caches[0]))
    twins, copies = copy.deepcopy((model, caches))
    twins[0](x, copies[0])
    for cache in (caches[0], copy.copy(caches[0]), copy.deepcopy(caches[0]), copies[0]):
        with pytest.raises(ValueError, match=r"^cache must be used by one layer"):
            model[1](x, cache)
    model[1](x, kept)


@pytest.mark.parametrize("window", [None, 5])
def test_memory_to_spare_is_shared_with_no_copy_and_no_gradient(window):
    """Branches write behind one and the same past, and modes of autograd take turns."""
    module, x = layer(2, rope_base=100.0, window=window), tokens()
    expected, other, cache = module(x), tokens(2, seed=1), KVCache()
    modes = [torch.inference_mode, torch.no_grad, torch.enable_grad, torch.no_grad]
    for start, mode in zip(range(0, T, 3), modes, strict=True):
        for t in range(start, start + 3):
            with mode():
                module(other[:, :1], copy.copy(cache))
                module(other, copy.deepcopy(cache))
                output = module(x[:, t : t + 1], cache)
            torch.testing.assert_close(output, expected[:, t : t + 1])
            assert output.requires_grad == (mode is torch.enable_grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_takes_no_cache(reentrant):
    """Its second run, in the backward pass, would hold every token twice."""
    module, x, cache = layer(2), tokens(3).requires_grad_(), KVCache()
    output = checkpoint(module, x, cache, use_reentrant=reentrant)
    torch.testing.assert_close(output, module(x))
    with pytest.raises(ValueError, match=r"^cache must be None in .*checkpoint"):
        output.sum().backward()
    assert cache.length == cache.keys.shape[2] == 3
    checkpoint(module, x, use_reentrant=reentrant).sum().backward()
    assert x.grad.any()


def test_a_cache_that_is_begun_in_a_backward_pass_goes_on_there():
    module, x, written = layer(2), tokens(5), []
    leaf = torch.zeros(1, requires_grad=True)
    leaf.register_hook(lambda _: written.append(in_pieces(module, x, [3, 1, 1])[0]))
    leaf.sum().backward()
    torch.testing.assert_close(written[0], module(x))


# ---------------------------------------------------------------- rotation


@given(
    st.integers(1, 5),
    st.lists(st.integers(-50, 10**6), min_size=1, max_size=7),
    st.sampled_from([1.5, 10_000.0]),
)
def test_rotate_equals_complex_numbers(half, positions, base):
    x = torch.randn(3, len(positions), 2 * half, dtype=torch.float64)
    expected = torch.stack(
        [
            torch.stack([turned(row, p, base) for row, p in zip(rows, positions, strict=True)])
            for rows in x
        ]
    )
    torch.testing.assert_close(
        rotate(x, torch.tensor(positions), base), expected, atol=1e-8, rtol=1e-8
    )


def test_the_base_is_that_of_the_paper_unless_it_is_given():
    x, at = tokens()[..., :6], torch.tensor([99, 7, *range(10)])
    torch.testing.assert_close(rotate(x, at), rotate(x, at, 10_000.0), rtol=0, atol=0)


def test_a_layer_says_its_sizes():
    said = repr(GroupedQueryAttention(12, 4, 2))
    assert "d_model=12, n_heads=4, n_kv_heads=2, d_k=3\n" in said and "bias=True" not in said
    said = repr(GroupedQueryAttention(24, 4, 2, rope_base=100.0, window=5))
    assert "d_k=6, rope_base=100.0, window=5\n" in said


@pytest.mark.parametrize("first", ["hessian", "functionalize", "inference"])
def test_angles_that_are_kept_serve_whatever_runs_next(first):
    layer = GroupedQueryAttention(8, 2, 1, rope_base=101.0 + len(first))  # none are kept so far
    x = torch.randn(1, 3, 8)

    def loss(x):
        return layer(x, return_weights=True)[0].square().sum()

    if first == "inference":
        torch.inference_mode()(loss)(x)
    else:
        getattr(torch.func, first)(loss)(x)
    slope = torch.func.grad(loss)(x)
    y = x.clone().requires_grad_()
    torch.testing.assert_close(slope, *torch.autograd.grad(loss(y), y))
    with torch.inference_mode():
        assert torch.equal(loss(x), loss(x.clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rotate_rounds_only_its_result_however_far(dtype):
    """Angles in the input's own dtype would be off by radians, and double the error nearby."""
    x, far = torch.randn(5, 13, 22).to(dtype), torch.arange(13) * 83_333 + 7
    result, exact = rotate(x, far), rotate(x.double(), far)
    assert result.dtype == dtype
    assert dtype == torch.float32 or (result == exact.to(dtype)).double().mean() > 0.99
    assert (result.double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps * exact.abs().max()


# ---------------------------------------------------------------- refusals


@pytest.mark.plain
def test_what_a_cache_cannot_take_is_refused_and_leaves_it_as_it_was():
    module, cache = layer(2), KVCache()
    module(tokens(4), cache)
    keys, one, short = cache.keys, tokens(1), torch.zeros(1, 4, dtype=torch.bool)
    for call, words in (
        (lambda: module(one[:2], cache), "another layer or batch"),
        (lambda: layer(4)(one, cache), "another layer or batch"),
        (lambda: module(one, cache, mask=short), "mask must have shape"),
        (lambda: layer(2).float()(one.float(), cache), "dtype of the cache, torch.float64; .*32"),
        (lambda: layer(2).to("meta")(one.to("meta"), cache), "device of the cache, cpu; .* meta"),
        (lambda: cache.reorder(torch.tensor([3])), "index must lie between 0 and 2"),
        (lambda: cache.reorder(torch.tensor([[0]])), r"index must have one axis, \(B_new,\)"),
        (lambda: KVCache().reorder(torch.tensor([0])), "^reorder .* this one is empty.$"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
        assert cache.keys is keys and cache.length == 4
