"""Exercises 5 to 14, in one hand: plain code, with what learners leave lying about."""

import math

import einops
import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong

# --- split_heads ---------------------------------------------------------------------------------


@right("split_heads")
def view_transpose(x, n_heads):
    B, T, D = x.shape
    return x.view(B, T, n_heads, D // n_heads).transpose(1, 2)


@right("split_heads")
def by_slices(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(n_heads)], dim=1)


@right("split_heads")
def by_einops(x, n_heads):
    return einops.rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def transposed_first(x, n_heads):
    B, T, D = x.shape
    return x.mT.reshape(B, n_heads, D // n_heads, T).mT


@right("split_heads")
def entry_for_entry(x, n_heads):
    B, T, D = x.shape
    d_k = D // n_heads
    out = torch.empty(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for h in range(n_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out


@right("split_heads")
def asserts_divisibility(x, n_heads):
    assert x.size(-1) % n_heads == 0, "d_model must be divisible by n_heads"
    return x.unflatten(-1, (n_heads, -1)).movedim(2, 1).contiguous()


@wrong("split_heads", "view only", slips=("view_only",))
def e1(x, n_heads):
    B, T, D = x.size()
    return x.reshape(B, n_heads, T, D // n_heads)


@wrong("split_heads", "view only, and refuses what is not contiguous")
def e2(x, n_heads):
    B, T, D = x.size()
    return x.view(B, n_heads, T, D // n_heads)


@wrong("split_heads", "no permute", slips=("order_B_T_h_d_k",))
def e3(x, h):
    return x.unflatten(-1, (h, -1))


@wrong("split_heads", "interleaved", slips=("interleaved",))
def e4(x, h):
    B, T, D = x.shape
    return x.reshape(B, T, D // h, h).permute(0, 3, 1, 2)


@wrong("split_heads", "h and d_k exchanged", slips=("sizes_exchanged",))
def e5(x, h):
    B, T, D = x.shape
    return x.reshape(B, T, -1, h).transpose(1, 2)


@wrong("split_heads", "heads in front of the batch", slips=("order_h_B_T_d_k",))
def e6(x, h):
    return torch.stack(x.chunk(h, dim=-1))


@wrong("split_heads", "a list of heads", slips=("list_of_heads",))
def e7(x, h):
    return list(x.chunk(h, -1))


@wrong("split_heads", "tokens last", slips=("order_B_h_d_k_T",))
def e8(x, h):
    B, T, D = x.shape
    return x.view(B, T, h, D // h).permute(0, 2, 3, 1)


@wrong("split_heads", "float division", slips=("error:integer_needed",))
def e9(x, h):
    B, T, D = x.shape
    return x.view(B, T, h, D / h).transpose(1, 2)


@wrong("split_heads", "heads in the batch", slips=("folded_into_batch",))
def e10(x, h):
    B, T, D = x.shape
    return x.view(B, T, h, D // h).transpose(1, 2).reshape(B * h, T, D // h)


@wrong("split_heads", "transposed tokens, then a view")
def e11(x, h):
    B, T, D = x.shape
    return x.transpose(1, 2).reshape(B, h, T, D // h)


@wrong("split_heads", "interleaved, and not permuted", slips=("interleaved", "order_B_T_h_d_k"))
def e12(x, h):
    B, T, D = x.shape
    return x.reshape(B, T, D // h, h).transpose(2, 3)


@wrong("split_heads", "repeats the tensor", slips=("repeated",))
def e13(x, h):
    return x.unsqueeze(1).repeat(1, h, 1, 1)


@wrong("split_heads", "chunks the tokens")
def e14(x, h):
    return torch.stack(x.chunk(h, dim=1), dim=1)


@wrong("split_heads", "heads in reverse order", slips=("heads_reversed",))
def e15(x, h):
    return torch.stack(x.chunk(h, -1)[::-1], 1)


@wrong("split_heads", "forgets B in the unpacking", slips=("error:unpacking",))
def e16(x, h):
    T, D = x.shape
    return x.view(T, h, D // h).transpose(0, 1)


@wrong("split_heads", "wrong attribute of a tensor", slips=("error:no_such_attribute",))
def e17(x, h):
    return x.split_into(h).transpose(1, 2)


# --- merge_heads ---------------------------------------------------------------------------------


@right("merge_heads")
def permute_and_reshape(x):
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, h * d_k)


@right("merge_heads")
def contiguous_view(x):
    b, h, t, d = x.size()
    return x.transpose(1, 2).contiguous().view(b, t, -1)


@right("merge_heads")
def concatenated(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=-1)


@right("merge_heads")
def merged_by_einops(x):
    return einops.rearrange(x, "b h t d -> b t (h d)")


@right("merge_heads")
def concatenated_below(x):
    b, h, t, d = x.shape
    return x.mT.reshape(b, h * d, t).transpose(1, 2)


@wrong("merge_heads", "no permute back", slips=("not_permuted_back",))
def f1(x):
    B, h, T, d_k = x.shape
    return x.reshape(B, T, h * d_k)


@wrong("merge_heads", "view after permute", slips=("error:view_needs_contiguous",))
def f2(x):
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).view(B, T, h * d_k)


@wrong("merge_heads", "mean over heads", slips=("heads_averaged",))
def f3(x):
    return x.mean(dim=1)


@wrong("merge_heads", "sum over heads", slips=("heads_added",))
def f4(x):
    return x.sum(1)


@wrong("merge_heads", "dimensions before heads", slips=("dimensions_before_heads",))
def f5(x):
    return x.permute(0, 2, 3, 1).flatten(-2)


@wrong("merge_heads", "not joined", slips=("not_joined",))
def f6(x):
    return x.transpose(1, 2)


@wrong("merge_heads", "cat along tokens")
def f7(x):
    return torch.cat(list(x.unbind(1)), dim=1)


@wrong("merge_heads", "cat along the batch", slips=("heads_along_batch",))
def f8(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])])


@wrong("merge_heads", "transposes the last two instead", slips=("order_B_h_d_k_T",))
def f9(x):
    B, h, T, d = x.shape
    return x.transpose(-1, -2).reshape(B, T, h * d)


@wrong("merge_heads", "sequence and feature exchanged at the end")
def f10(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).reshape(B, h * d, T)


@wrong("merge_heads", "takes the batch apart", slips=("sequences_side_by_side",))
def f11(x):
    return torch.cat([part for part in x], dim=-1)


@wrong("merge_heads", "an axis too many", slips=("error:axis_out_of_range",))
def f12(x):
    return x.permute(0, 2, 1, 3, 4).flatten(2)


@wrong("merge_heads", "only head 0", slips=("first_head_only",))
def f13(x):
    return x[:, 0]


@wrong("merge_heads", "heads reversed", slips=("merged_in_reverse",))
def f14(x):
    return x.flip(1).transpose(1, 2).flatten(2)


# --- causal_mask ---------------------------------------------------------------------------------


@right("causal_mask")
def triu_of_ones(T):
    return torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)


@right("causal_mask")
def by_comparison(T):
    i = torch.arange(T)
    return i[None, :] > i[:, None]


@right("causal_mask")
def not_tril(T):
    return ~torch.tril(torch.ones((T, T))).bool()


@right("causal_mask")
def by_loops(T):
    mask = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(T):
            if j > i:
                mask[i, j] = True
    return mask


@right("causal_mask")
def from_lists(T):
    return torch.tensor([[j > i for j in range(T)] for i in range(T)])


@right("causal_mask")
def from_infinities(T):
    return torch.full((T, T), float("-inf")).triu(1) == float("-inf")


@wrong("causal_mask", "keeps instead of blocks", slips=("keep_mask",))
def g1(T):
    return torch.tril(torch.ones(T, T)).bool()


@wrong("causal_mask", "diagonal blocked", slips=("diagonal_blocked",))
def g2(T):
    return torch.triu(torch.ones(T, T, dtype=torch.bool))


@wrong("causal_mask", "past blocked", slips=("past_blocked",))
def g3(T):
    return torch.tril(torch.ones(T, T, dtype=torch.bool), diagonal=-1)


@wrong("causal_mask", "floats", slips=("as_floats",))
def g4(T):
    return torch.triu(torch.ones(T, T), diagonal=1)


@wrong("causal_mask", "floats, and keeps", slips=("keep_mask", "as_floats"))
def g5(T):
    return torch.tril(torch.ones(T, T))


@wrong("causal_mask", "minus infinity to be added", slips=("as_minus_infinity",))
def g6(T):
    return torch.full((T, T), float("-inf")).triu(1)


@wrong("causal_mask", "four axes", slips=("two_more_axes",))
def g7(T):
    return torch.ones(T, T).triu(1).bool().view(1, 1, T, T)


@wrong("causal_mask", "nothing blocked", slips=("nothing_blocked",))
def g8(T):
    return torch.zeros(T, T).bool()


@wrong("causal_mask", "one too late", slips=("one_too_late",))
def g9(T):
    return torch.ones(T, T).triu(2).bool()


@wrong("causal_mask", "integers with the diagonal", slips=("diagonal_blocked", "as_integers"))
def g10(T):
    return torch.ones(T, T, dtype=torch.int64).triu()


@wrong("causal_mask", "0 · ∞", slips=("as_nan",))
def g11(T):
    return torch.triu(torch.ones(T, T), 1) * float("-inf")


@wrong("causal_mask", "a list of lists", slips=("as_list",))
def g12(T):
    return [[j > i for j in range(T)] for i in range(T)]


@wrong("causal_mask", "expects a tensor")
def g13(x):
    T = x.shape[1]
    return torch.ones(T, T).triu(1).bool()


# --- padding_mask --------------------------------------------------------------------------------


@right("padding_mask")
def arange_and_compare(lengths, T):
    return (torch.arange(T, device=lengths.device)[None, :] >= lengths[:, None])[:, None, None, :]


@right("padding_mask")
def by_loop(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths.tolist()):
        mask[b, :, :, n:] = True
    return mask


@right("padding_mask")
def not_smaller(lengths, T):
    positions = torch.arange(T).to(lengths)
    return ~(positions.view(1, 1, 1, T) < lengths.view(-1, 1, 1, 1))


@right("padding_mask")
def by_cumulating(lengths, T):
    ones = torch.ones(lengths.shape[0], T, device=lengths.device)
    return (ones.cumsum(-1) > lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)


@wrong("padding_mask", "greater instead of greater or equal", slips=("pad_one_late",))
def h1(lengths, T):
    return (torch.arange(T, device=lengths.device) > lengths[:, None])[:, None, None]


@wrong("padding_mask", "keeps", slips=("tokens_marked",))
def h2(lengths, T):
    return (torch.arange(T, device=lengths.device) < lengths[:, None])[:, None, None]


@wrong("padding_mask", "(B, T)", slips=("no_axes_for_heads",))
def h3(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths[:, None]


@wrong("padding_mask", "blocks queries", slips=("queries_blocked",))
def h4(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, :, None]


@wrong("padding_mask", "arange on the CPU", slips=("fixed_device",))
def h5(lengths, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "zeros on the CPU", slips=("fixed_device",))
def h6(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool)
    for b, n in enumerate(lengths):
        mask[b, 0, 0, int(n) :] = True
    return mask


@wrong("padding_mask", "as long as the longest")
def h7(lengths, T):
    n = int(lengths.max())
    return (torch.arange(n, device=lengths.device) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "floats", slips=("as_floats",))
def h8(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None].float()


@wrong("padding_mask", "padding in front", slips=("padding_in_front",))
def h9(lengths, T):
    return (torch.arange(T, device=lengths.device) < T - lengths[:, None])[:, None, None]


@wrong("padding_mask", "keeps, two axes", slips=("tokens_marked", "no_axes_for_heads"))
def h10(lengths, T):
    return torch.arange(T, device=lengths.device)[None] < lengths[:, None]


@wrong("padding_mask", "no broadcast between B and T", slips=("error:broadcast_shapes",))
def h11(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths


@wrong("padding_mask", "full square", slips=("spread_over_queries",))
def h12(lengths, T):
    m = (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]
    return m.expand(-1, -1, T, -1)


@wrong("padding_mask", "last token blocked too", slips=("pad_one_early",))
def h13(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None] - 1)[:, None, None]


# --- masked_softmax ------------------------------------------------------------------------------


@right("masked_softmax")
def fill_softmax_fill(scores, mask):
    w = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0.0)


@right("masked_softmax")
def smallest_then_zero(scores, mask):
    w = torch.softmax(scores.masked_fill(mask, torch.finfo(scores.dtype).min), dim=-1)
    return torch.where(mask, torch.zeros_like(w), w)


@right("masked_softmax")
def nan_to_num_is_fine_here(scores, mask):
    return scores.masked_fill(mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@right("masked_softmax")
def by_hand(scores, mask):
    open_scores = scores.masked_fill(mask, -torch.inf)
    top = open_scores.amax(-1, keepdim=True)
    top = torch.where(top.isinf(), torch.zeros_like(top), top)
    e = (open_scores - top).exp()
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


@right("masked_softmax")
def in_float32(scores, mask):
    dead = mask.all(-1, keepdim=True)
    x = scores.float().masked_fill(mask & ~dead, float("-inf"))
    return x.softmax(-1).masked_fill(dead, 0.0).to(scores.dtype)


@right("masked_softmax")
def row_after_row(scores, mask):
    mask = mask.expand(scores.shape)
    flat, blocked = scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1])
    rows = []
    for s, m in zip(flat, blocked, strict=True):
        row = torch.zeros_like(s)
        if (~m).any():
            row[~m] = s[~m].softmax(0)
        rows.append(row)
    return torch.stack(rows).view(scores.shape)


@right("masked_softmax")
def by_attention(scores, mask):
    # softmax(scores) is what attention gives where the values are the unit vectors
    dead = mask.all(-1, keepdim=True)
    x = torch.where(mask & ~dead, torch.full_like(scores, -torch.inf), scores)
    w = torch.exp(x - torch.logsumexp(x, -1, keepdim=True))
    return w * (~dead)


@wrong("masked_softmax", "NaN rows", slips=("blocked_rows_left",))
def i1(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-1)


@wrong("masked_softmax", "-1e9: uniform rows", slips=("blocked_rows_uniform",))
def i2(scores, mask):
    low = -1e9 if scores.dtype != torch.half else -6e4
    return scores.clone().masked_fill(mask.bool(), low).softmax(-1)


@wrong("masked_softmax", "smallest number: uniform rows", slips=("blocked_rows_uniform",))
def i3(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)


@wrong("masked_softmax", "-1e9 does not fit float16", slips=("error:float_mask_overflow",))
def i4(scores, mask):
    w = scores.masked_fill(mask, -1e9).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "gradients are NaN", slips=("nan_gradient",))
def i5(scores, mask):
    bias = torch.zeros_like(scores).masked_fill(mask, float("-inf"))
    return (scores + bias).softmax(-1).nan_to_num(0.0)


@wrong("masked_softmax", "zeroes after the softmax", slips=("zeroed_after",))
def i6(scores, mask):
    w = scores.softmax(-1)
    return w * (~mask)


@wrong("masked_softmax", "renormalises after", slips=("renormalised_after",))
def i7(scores, mask):
    w = scores.softmax(-1).masked_fill(mask, 0)
    return w / w.sum(-1, keepdim=True)


@wrong("masked_softmax", "keeps what is True")
def i8(scores, mask):
    return scores.masked_fill(mask == 0, float("-inf")).softmax(-1)


@wrong("masked_softmax", "keeps what is True, finite", slips=None)
def i9(scores, mask):
    return scores.masked_fill(~mask, -1e9 if scores.dtype != torch.half else -6e4).softmax(-1)


@wrong("masked_softmax", "-10000, as an old library has it")
def i10(scores, mask):
    return (scores + mask.to(scores.dtype) * -10000.0).softmax(-1)


@wrong(
    "masked_softmax", "over queries, NaN left", slips=("blocked_rows_left", "softmax_over_queries")
)
def i11(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-2)


@wrong("masked_softmax", "over queries, -1e9")
def i12(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(dim=-2)


@wrong("masked_softmax", "any instead of all", slips=("any_for_all",))
def i13(scores, mask):
    w = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return w.masked_fill(mask.any(-1, keepdim=True), 0.0)


@wrong("masked_softmax", "naive exp", slips=("naive_exponentials",))
def i14(scores, mask):
    e = torch.exp(scores.masked_fill(mask, float("-inf")))
    w = e / e.sum(-1, keepdim=True)
    return torch.where(mask.all(-1, keepdim=True), torch.zeros_like(w), w)


@wrong("masked_softmax", "0 · −∞", slips=("times_infinity",))
def i15(scores, mask):
    w = (scores + mask.to(scores.dtype) * float("-inf")).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "scores set to zero")
def i16(scores, mask):
    scores[mask.expand_as(scores)] = 0
    return scores.softmax(-1)


@wrong("masked_softmax", "eps instead of -inf")
def i17(scores, mask):
    return scores.masked_fill(mask, 1e-9).softmax(-1)


@wrong("masked_softmax", "-100 is low enough, surely")
def i18(scores, mask):
    w = scores.masked_fill(mask, -100.0).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "always float32", slips=("fixed_dtype",))
def i19(scores, mask):
    w = scores.float().masked_fill(mask, float("-inf")).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "additive, NaN left", slips=("blocked_rows_left",))
def i20(scores, mask):
    add = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    add[mask] = float("-inf")
    return torch.softmax(scores + add, -1)


@wrong("masked_softmax", "log softmax")
def i21(scores, mask):
    return F.log_softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


@wrong("masked_softmax", "blocked rows spread evenly")
def i22(scores, mask):
    w = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return torch.where(w.isnan(), 1 / w.shape[-1], w)


# --- sum_of_head_writes --------------------------------------------------------------------------


@right("sum_of_head_writes")
def a_loop(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype, device=heads.device)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@right("sum_of_head_writes")
def concatenated_after_all(heads, W_o):
    B, h, T, d_k = heads.shape
    return heads.transpose(1, 2).reshape(B, T, h * d_k) @ W_o.T


@right("sum_of_head_writes")
def one_einsum(heads, W_o):
    slabs = W_o.reshape(W_o.shape[0], heads.shape[1], heads.shape[-1])
    return torch.einsum("bhtk,mhk->btm", heads, slabs)


@right("sum_of_head_writes")
def stacked_sum(heads, W_o):
    slabs = torch.stack(W_o.chunk(heads.shape[1], dim=1))
    return (heads @ slabs.mT).sum(dim=1)


@right("sum_of_head_writes")
def linear_per_head(heads, W_o):
    parts = zip(heads.unbind(1), W_o.split(heads.shape[-1], dim=1), strict=True)
    return sum(F.linear(x, w) for x, w in parts)


@wrong("sum_of_head_writes", "rows instead of columns")
def j1(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[i * d : (i + 1) * d].T for i in range(h))


@wrong("sum_of_head_writes", "rows of the untransposed matrix")
def j2(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[i * d : (i + 1) * d] for i in range(h))


@wrong("sum_of_head_writes", "mean", slips=("averaged",))
def j3(heads, W_o):
    B, h, T, d = heads.shape
    return torch.stack([heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h)]).mean(0)


@wrong("sum_of_head_writes", "not summed", slips=("not_added",))
def j4(heads, W_o):
    slabs = torch.stack(W_o.chunk(heads.shape[1], dim=1))
    return heads @ slabs.mT


@wrong("sum_of_head_writes", "the last one stays", slips=("last_only",))
def j5(heads, W_o):
    d = heads.shape[-1]
    for i in range(heads.shape[1]):
        out = heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "returns within the loop", slips=("first_only",))
def j6(heads, W_o):
    d = heads.shape[-1]
    out = 0
    for i in range(heads.shape[1]):
        out = out + heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
        return out


@wrong("sum_of_head_writes", "interleaved columns", slips=("columns_dealt",))
def j7(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].T for i in range(h))


@wrong("sum_of_head_writes", "heads are added first", slips=("first_slab_for_all",))
def j8(heads, W_o):
    return heads.sum(1) @ W_o[:, : heads.shape[-1]].T


@wrong("sum_of_head_writes", "joined in memory order", slips=("torn_apart",))
def j9(heads, W_o):
    B, h, T, d = heads.shape
    return heads.reshape(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "W_o forgotten", slips=None)
def j10(heads, W_o):
    return heads.sum(1)


@wrong("sum_of_head_writes", "no transpose", slips=("error:matrix_shapes",))
def j11(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).reshape(B, T, h * d) @ W_o[:, :1]


@wrong("sum_of_head_writes", "view of what is transposed", slips=("error:view_needs_contiguous",))
def j12(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).view(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "a buffer on the CPU", slips=("fixed_device",))
def j13(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "mean of interleaved slabs", slips=("columns_dealt", "averaged"))
def j14(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].T for i in range(h)) / h


# --- MultiHeadAttention --------------------------------------------------------------------------


class Plain(nn.Module):
    """Right; the wrong ones below each change one method."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def cut(self, x):
        return x.view(*x.shape[:2], self.n_heads, self.d_k).transpose(1, 2)

    def scale(self, scores):
        return scores / math.sqrt(self.d_k)

    def weigh(self, scores, mask):
        if mask is None:
            return scores.softmax(-1)
        w = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return w.nan_to_num(0.0)

    def join(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def project(self, x):
        return self.w_q(x), self.w_k(x), self.w_v(x)

    def forward(self, x, mask=None):
        q, k, v = (self.cut(part) for part in self.project(x))
        w = self.weigh(self.scale(q @ k.transpose(-2, -1)), mask)
        return self.w_o(self.join(w @ v))


@right("MultiHeadAttention")
class Inherited(Plain):
    pass


@right("MultiHeadAttention")
class WithADropoutOfZero(Plain):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads)
        self.dropout = nn.Dropout(dropout)

    def weigh(self, scores, mask):
        return self.dropout(super().weigh(scores, mask))


@right("MultiHeadAttention")
class Fused(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False):
        super().__init__()
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))
            nn.init.xavier_uniform_(getattr(self, name).weight)
        self.h = n_heads

    def forward(self, x, mask=None):
        q, k, v = (
            einops.rearrange(w(x), "b t (h d) -> b h t d", h=self.h)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        keep = None if mask is None else ~mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.w_o(einops.rearrange(out, "b h t d -> b t (h d)"))


@right("MultiHeadAttention")
class OverThePackage(Plain):
    def forward(self, x, mask=None):
        from mha_lesson import merge_heads, scaled_dot_product_attention, split_heads

        q, k, v = (split_heads(part, self.n_heads) for part in self.project(x))
        return self.w_o(merge_heads(scaled_dot_product_attention(q, k, v, mask)))


@right("MultiHeadAttention")
class AllZeroAtFirst(Plain):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        nn.init.zeros_(self.w_o.weight)


@wrong("MultiHeadAttention", "root of d_model", slips=("by_root_d_model",))
class K1(Plain):
    def scale(self, scores):
        return scores / math.sqrt(self.w_q.in_features)


@wrong("MultiHeadAttention", "no scale", slips=("no_scale",))
class K2(Plain):
    def scale(self, scores):
        return scores


@wrong("MultiHeadAttention", "view only", slips=("split_by_view",))
class K3(Plain):
    def cut(self, x):
        return x.view(x.shape[0], self.n_heads, x.shape[1], self.d_k)


@wrong("MultiHeadAttention", "no permute back", slips=("not_permuted_back",))
class K4(Plain):
    def join(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


@wrong("MultiHeadAttention", "view in and out", slips=("split_by_view", "not_permuted_back"))
class K5(K3):
    def join(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


@wrong("MultiHeadAttention", "NaN rows", slips=("blocked_rows_left",))
class K6(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "uniform rows", slips=("blocked_rows_uniform",))
class K7(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "mask turned round, another way", slips=("true_means_keep",))
class K8(Plain):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(part) for part in self.project(x))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(self.join(out))


@wrong("MultiHeadAttention", "mask unused", slips=("mask_ignored",))
class K9(Plain):
    def weigh(self, scores, mask):
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "w_o unused", slips=("without_w_o",))
class K10(Plain):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(part) for part in self.project(x))
        w = self.weigh(self.scale(q @ k.transpose(-2, -1)), mask)
        return self.join(w @ v)


@wrong("MultiHeadAttention", "keys by w_q", slips=("made_by_qqv",))
class K11(Plain):
    def project(self, x):
        return self.w_q(x), self.w_q(x), self.w_v(x)


@wrong("MultiHeadAttention", "q and k exchanged", slips=("made_by_kqv",))
class K12(Plain):
    def project(self, x):
        return self.w_k(x), self.w_q(x), self.w_v(x)


@wrong("MultiHeadAttention", "dropout by default", slips=("random",))
class K13(Plain):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__(d_model, n_heads)
        self.dropout = nn.Dropout(dropout)

    def weigh(self, scores, mask):
        return self.dropout(super().weigh(scores, mask))


@wrong("MultiHeadAttention", "one fused layer", slips=("layer_names",))
class K14(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.w_qkv, self.w_o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return x


@wrong("MultiHeadAttention", "no super().__init__", slips=None)
class K15(nn.Module):
    def __init__(self, d_model, n_heads):
        self.w_q = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return self.w_q(x)


@wrong("MultiHeadAttention", "projections of one head's width", slips=("layer_sizes",))
class K16(Plain):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.w_q = nn.Linear(d_model, self.d_k)


@wrong("MultiHeadAttention", "residual inside", slips=("with_residual",))
class K17(Plain):
    def forward(self, x, mask=None):
        return x + super().forward(x, mask)


@wrong("MultiHeadAttention", "weights come too", slips=("output_and_weights",))
class K18(Plain):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(part) for part in self.project(x))
        w = self.weigh(self.scale(q @ k.transpose(-2, -1)), mask)
        return self.w_o(self.join(w @ v)), w


@wrong("MultiHeadAttention", "softmax over the heads", slips=None)
class K19(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        return scores.softmax(1)


@wrong("MultiHeadAttention", "always causal", slips=None)
class K20(Plain):
    def weigh(self, scores, mask):
        T = scores.shape[-1]
        causal = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
        return super().weigh(scores, causal if mask is None else mask | causal)


@wrong("MultiHeadAttention", "no mask argument", slips=("error:wrong_signature",))
class K21(Plain):
    def forward(self, x):
        return super().forward(x)


@wrong("MultiHeadAttention", "mask on a fixed device", slips=("fixed_device",))
class K22(Plain):
    def weigh(self, scores, mask):
        if mask is None:
            mask = torch.zeros(scores.shape[-2:], dtype=torch.bool)
        return super().weigh(scores, mask)


@wrong(
    "MultiHeadAttention",
    "root of d_model, view out",
    slips=("by_root_d_model", "not_permuted_back"),
)
class K23(K4):
    def scale(self, scores):
        return scores / self.w_q.in_features**0.5


@wrong("MultiHeadAttention", "zeroed after w_o", slips=None)
class K24(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-1)

    def forward(self, x, mask=None):
        return super().forward(x, mask).nan_to_num(0.0)


@wrong("MultiHeadAttention", "in a list, so nothing is found", slips=("layer_names",))
class K25(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, x, mask=None):
        return self.linears[3](x)


@wrong("MultiHeadAttention", "interleaved heads", slips=("split_interleaved",))
class K26(Plain):
    def cut(self, x):
        return x.reshape(*x.shape[:2], self.d_k, self.n_heads).permute(0, 3, 1, 2)


@wrong("MultiHeadAttention", "no cut into heads", slips=None)
class K27(Plain):
    def forward(self, x, mask=None):
        q, k, v = self.project(x)
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(mask.reshape(-1, *mask.shape[-2:])[:1], float("-inf"))
        return self.w_o(s.softmax(-1).nan_to_num() @ v)


# --- next_token_loss -----------------------------------------------------------------------------


@right("next_token_loss")
def cross_entropy_flat(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1).long())


@right("next_token_loss")
def cross_entropy_moved(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].to(torch.int64))


@right("next_token_loss")
def by_log_softmax(logits, tokens):
    logs = torch.log_softmax(logits[:, :-1], dim=-1)
    return -logs.gather(-1, tokens[:, 1:, None].long()).mean()


@right("next_token_loss")
def by_logsumexp(logits, tokens):
    x, y = logits[:, :-1], tokens[:, 1:].long()
    hit = F.one_hot(y, x.shape[-1]).to(x.dtype)
    return (x.logsumexp(-1) - (x * hit).sum(-1)).mean()


@right("next_token_loss")
def by_loops_and_a_sum(logits, tokens):
    total, count = 0.0, 0
    for row, ids in zip(logits, tokens, strict=True):
        for t in range(len(ids) - 1):
            total = total - row[t].log_softmax(0)[ids[t + 1]]
            count += 1
    return total / count


@right("next_token_loss")
def by_the_module(logits, tokens):
    loss = nn.CrossEntropyLoss()
    return loss(logits[:, :-1, :].flatten(0, 1), tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "no shift", slips=("no_shift",))
def l1(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long())


@wrong("next_token_loss", "wrong way", slips=("shift_backwards",))
def l2(logits, tokens):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten().long())


@wrong("next_token_loss", "sum", slips=("total",))
def l3(logits, tokens):
    x, y = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long()
    return F.cross_entropy(x, y, reduction="sum")


@wrong("next_token_loss", "softmax twice", slips=("softmax_twice",))
def l4(logits, tokens):
    p = logits.softmax(-1)
    return F.cross_entropy(p[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "nll of probabilities", slips=("probabilities",))
def l5(logits, tokens):
    p = logits[:, :-1].softmax(-1).flatten(0, 1)
    return F.nll_loss(p, tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "nll of logits", slips=("raw_logits",))
def l6(logits, tokens):
    return F.nll_loss(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "token 0 is ignored", slips=("zero_is_padding",))
def l7(logits, tokens):
    x, y = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long()
    return F.cross_entropy(x, y, ignore_index=0)


@wrong("next_token_loss", "rolled", slips=("rolled",))
def l8(logits, tokens):
    y = torch.roll(tokens, -1, dims=1).long()
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@wrong("next_token_loss", "shifted flat", slips=("shifted_across_sequences",))
def l9(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1)[:-1], tokens.flatten()[1:].long())


@right("next_token_loss")
def l10(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss", "view of a slice", slips=("error:view_needs_contiguous",))
def l11(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].view(-1, V), tokens[:, 1:].view(-1).long())


@wrong("next_token_loss", "classes in the wrong axis", slips=("error:loss_axes",))
def l12(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:].long())


@wrong("next_token_loss", "view to (B, V, T)")
def l13(logits, tokens):
    x = logits[:, :-1]
    B, T, V = x.shape
    return F.cross_entropy(x.reshape(B, V, T), tokens[:, 1:].long())


@wrong("next_token_loss", "no minus", slips=("sign_missing",))
def l14(logits, tokens):
    logs = logits[:, :-1].log_softmax(-1)
    return logs.gather(-1, tokens[:, 1:, None].long()).mean()


@wrong("next_token_loss", "log of softmax underflows", slips=("log_of_softmax",))
def l15(logits, tokens):
    p = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None].long())
    return -p.log().mean()


@wrong("next_token_loss", "per token", slips=None)
def l16(logits, tokens):
    x, y = logits[:, :-1].mT, tokens[:, 1:].long()
    return F.cross_entropy(x, y, reduction="none")


@wrong("next_token_loss", "accuracy")
def l17(logits, tokens):
    return (logits[:, :-1].argmax(-1) == tokens[:, 1:]).to(logits.dtype).mean()


@wrong("next_token_loss", "a number", slips=("number_only",))
def l18(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long()).item()


@wrong("next_token_loss", "no shift, and a sum", slips=("no_shift", "total"))
def l19(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long(), reduction="sum")


@wrong("next_token_loss", "wrong way, softmax twice", slips=("shift_backwards", "softmax_twice"))
def l20(logits, tokens):
    p = logits.softmax(-1)
    return F.cross_entropy(p[:, 1:].flatten(0, 1), tokens[:, :-1].flatten().long())


@wrong("next_token_loss", "divided by T")
def l21(logits, tokens):
    x, y = logits[:, :-1].mT, tokens[:, 1:].long()
    return F.cross_entropy(x, y, reduction="none").sum(1).mean() / tokens.shape[1]


@wrong("next_token_loss", "perplexity", slips=("perplexity",))
def l22(logits, tokens):
    x, y = logits[:, :-1].mT, tokens[:, 1:].long()
    return F.cross_entropy(x, y).exp()


# --- previous_token_score ------------------------------------------------------------------------


@right("previous_token_score")
def diagonal_mean(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


@right("previous_token_score")
def by_indexing(weights):
    t = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, t, t - 1].mean(dim=1)


@right("previous_token_score")
def a_loop_of_heads(A):
    T = A.shape[-1]
    return torch.stack([sum(a[t, t - 1] for t in range(1, T)) / (T - 1) for a in A])


@right("previous_token_score")
def by_trace(weights):
    lower = weights[:, 1:, :-1]
    return torch.einsum("htt->h", lower) / lower.shape[-1]


@wrong("previous_token_score", "next token", slips=("next_token",))
def m1(weights):
    return weights.diagonal(1, -2, -1).mean(-1)


@wrong("previous_token_score", "itself", slips=("itself",))
def m2(weights):
    return weights.diagonal(0, -2, -1).mean(-1)


@wrong("previous_token_score", "sum", slips=("added_up",))
def m3(weights):
    return weights.diagonal(-1, -2, -1).sum(-1)


@wrong("previous_token_score", "divided by T", slips=("divided_by_t",))
def m4(weights):
    T = weights.shape[-1]
    return sum(weights[:, t, t - 1] for t in range(1, T)) / T


@wrong("previous_token_score", "round the corner", slips=("wrapped_round",))
def m5(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 1] for t in range(T)]).mean(0)


@wrong("previous_token_score", "one number", slips=("heads_averaged",))
def m6(weights):
    return weights.diagonal(-1, -2, -1).mean()


@wrong("previous_token_score", "per query", slips=("over_heads",))
def m7(weights):
    return weights.diagonal(-1, -2, -1).mean(0)


@wrong("previous_token_score", "diagonal of the first two axes", slips=("heads_and_queries",))
def m8(weights):
    return weights.diagonal(-1).mean(-1)


@wrong("previous_token_score", "the largest", slips=("largest_of_all",))
def m9(weights):
    return weights.diagonal(-1, -2, -1).max(-1).values


@wrong("previous_token_score", "how often it wins", slips=("how_often_largest",))
def m10(weights):
    T = weights.shape[-1]
    best = weights.argmax(-1)[:, 1:]
    return (best == torch.arange(T - 1, device=weights.device)).to(weights.dtype).mean(-1)


@wrong("previous_token_score", "a list", slips=("as_list",))
def m11(weights):
    return [float(a.diagonal(-1).mean()) for a in weights]


@wrong("previous_token_score", "a fresh tensor on the CPU", slips=("fixed_device",))
def m12(weights):
    return torch.tensor([float(a.diagonal(-1).mean()) for a in weights], dtype=weights.dtype)


@wrong("previous_token_score", "whole matrix", slips=None)
def m13(weights):
    return weights.tril(-1).triu(-1).mean((1, 2))


@wrong("previous_token_score", "next, and a sum", slips=("next_token", "added_up"))
def m14(weights):
    return torch.stack([a.diagonal(1).sum() for a in weights])


# --- count_flops ---------------------------------------------------------------------------------


@right("count_flops")
def by_formula(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


@right("count_flops")
def by_parts(T, d, h):
    d_k = d // h
    projections = 4 * (2 * T * d * d)
    products = h * (2 * T * T * d_k + 2 * T * T * d_k)
    return projections + products


@right("count_flops")
def by_counting(T, d, h):
    def matmul(a, b, c):
        return 2 * a * b * c

    total = sum(matmul(T, d, d) for _ in range(4))
    for _ in range(h):
        total += matmul(T, d // h, T) + matmul(T, T, d // h)
    return total


@wrong("count_flops", "multiply-add as one", slips=("one_each",))
def n1(T, d, h):
    return 4 * T * d * d + 2 * T * T * d


@wrong("count_flops", "W_o missing", slips=("three_projections",))
def n2(T, d, h):
    return 6 * T * d * d + 4 * T * T * d


@wrong("count_flops", "one product", slips=("one_product",))
def n3(T, d, h):
    return 8 * T * d * d + 2 * T * T * d


@wrong("count_flops", "one head", slips=("products_of_one_head",))
def n4(T, d, h):
    return 8 * T * d * d + 4 * T * T * (d // h)


@wrong("count_flops", "h times too many", slips=("products_with_full_width",))
def n5(T, d, h):
    return 8 * T * d * d + h * 4 * T * T * d


@wrong("count_flops", "a float", slips=("as_float",))
def n6(T, d, h):
    return 8 * T * d * d + 4 * T * T * h * (d / h)


@wrong("count_flops", "softmax counted", slips=None)
def n7(T, d, h):
    return 8 * T * d * d + 4 * T * T * d + 5 * h * T * T


@wrong("count_flops", "only products", slips=("no_projections",))
def n8(T, d, h):
    return 4 * T * T * d


@wrong("count_flops", "only projections", slips=("no_products",))
def n9(T, d, h):
    return 8 * T * d * d


@wrong("count_flops", "one each, one product", slips=("one_product", "one_each"))
def n10(T, d, h):
    return 4 * T * d * d + T * T * d


@wrong("count_flops", "T forgotten in the projections", slips=("one_token_projected",))
def n11(T, d, h):
    return 2 * 4 * d * d + 4 * T * T * d


@wrong("count_flops", "biases counted", slips=("biases_too",))
def n12(T, d, h):
    return 8 * T * d * d + 4 * T * d + 4 * T * T * d


@wrong("count_flops", "T squared in the projections")
def n13(T, d, h):
    return 8 * T * T * d * d + 4 * T * T * d


# --- more of MultiHeadAttention ------------------------------------------------------------------


@wrong(
    "MultiHeadAttention",
    "True kept, and uniform rows",
    slips=("true_means_keep", "blocked_rows_uniform"),
)
class K28(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "does not reckon with no mask", slips=("error:none_used",))
class K29(Plain):
    def weigh(self, scores, mask):
        return scores.masked_fill(mask, float("-inf")).softmax(-1).nan_to_num(0.0)


@wrong("MultiHeadAttention", "no super().__init__", slips=("error:module_not_started",))
class K30(nn.Module):
    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return self.w_q(x)


@wrong("MultiHeadAttention", "every head reads the columns of head 0")
class K31(Plain):
    def forward(self, x, mask=None):
        q, k, v = (part[..., : self.d_k] for part in self.project(x))
        full = None if mask is None else mask.expand(len(x), self.n_heads, x.shape[1], x.shape[1])
        outs = []
        for i in range(self.n_heads):
            m = None if full is None else full[:, i]
            outs.append(self.weigh(self.scale(q @ k.mT), m) @ v)
        return self.w_o(torch.cat(outs, -1))


@wrong("MultiHeadAttention", "values are cut by view alone")
class K32(Plain):
    def forward(self, x, mask=None):
        q, k, v = self.project(x)
        q, k = self.cut(q), self.cut(k)
        v = v.reshape(x.shape[0], self.n_heads, x.shape[1], self.d_k)
        w = self.weigh(self.scale(q @ k.transpose(-2, -1)), mask)
        return self.w_o(self.join(w @ v))


@wrong("MultiHeadAttention", "mask of -10000 as in an old library", slips=None)
class K33(Plain):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores + mask.to(scores.dtype) * -10000.0
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "masks after the softmax", slips=("zeroed_after",))
class K34(Plain):
    def weigh(self, scores, mask):
        w = scores.softmax(-1)
        return w if mask is None else w.masked_fill(mask, 0.0)


@wrong("MultiHeadAttention", "a layer norm at the end")
class K35(Plain):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        return self.norm(x + super().forward(x, mask))


@wrong("MultiHeadAttention", "scales twice, in q and in the scores", slips=("by_d_k",))
class K36(Plain):
    def project(self, x):
        q, k, v = super().project(x)
        return q / math.sqrt(self.d_k), k, v


@wrong("MultiHeadAttention", "one head's mask for all", slips=("mask_of_head_0",))
class K37(Plain):
    def weigh(self, scores, mask):
        if mask is not None and mask.ndim == 4:
            mask = mask[:, :1]
        return super().weigh(scores, mask)


@wrong("next_token_loss", "loss of the last prediction of every row, summed")
def l23(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1].long(), reduction="sum")


@wrong("next_token_loss", "token 0 ignored, and no shift", slips=("no_shift", "zero_is_padding"))
def l24(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long(), ignore_index=0)


@wrong("attention", "K transposed twice", slips=None)
def q1(Q, K, V):
    w = (Q @ K.T.T / Q.shape[-1] ** 0.5).softmax(-1)
    return w @ V, w


@wrong("attention", "weights sum over queries after a softmax over keys")
def q2(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    w = w / w.sum(-2, keepdim=True)
    return w @ V, w


@wrong("split_heads", "cuts rightly, and joins head and token", slips=None)
def e18(x, h):
    B, T, D = x.shape
    return x.view(B, T, h, D // h).reshape(B, T * h, D // h)
