"""Masks and the softmax under them (7 to 9): right in many styles, and wrong."""

from einops import rearrange
from torch import nn
from torch.func import vmap
import einops
import math
import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


# causal_mask


@right("causal_mask")
def triu_one(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


@right("causal_mask")
def compare(T):
    i = torch.arange(T)
    return i[None, :] > i[:, None]


@right("causal_mask")
def not_tril(T):
    return ~torch.tril(torch.ones(T, T, dtype=torch.bool))


@right("causal_mask")
def loops(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(i + 1, T):
            m[i, j] = True
    return m


@right("causal_mask")
def not_tril_2(T):
    return ~torch.tril(torch.ones(T, T, dtype=torch.bool))


@right("causal_mask")
def cumulative(n):
    return torch.eye(n).cumsum(1).roll(1, 1).bool() & torch.ones(n, n).triu(1).bool()


@right("causal_mask")
def from_lists(T):
    return torch.tensor([[False] * (i + 1) + [True] * (T - i - 1) for i in range(T)])


@right("causal_mask")
def triu_of_ones(T):
    return torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)


@right("causal_mask")
def by_comparison(T):
    i = torch.arange(T)
    return i[None, :] > i[:, None]


@right("causal_mask")
def not_tril_3(T):
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
def from_lists_2(T):
    return torch.tensor([[j > i for j in range(T)] for i in range(T)])


@right("causal_mask")
def from_infinities(T):
    return torch.full((T, T), float("-inf")).triu(1) == float("-inf")


@right("causal_mask")
def with_indices(T):
    mask = torch.zeros((T, T), dtype=torch.bool)
    rows, columns = torch.triu_indices(T, T, offset=1)
    mask[rows, columns] = True
    return mask


@right("causal_mask")
def with_cumsum(T):
    return torch.eye(T).cumsum(0).logical_not()


@right("causal_mask")
def of_the_package(T):
    from mha_lesson import causal_mask

    return causal_mask(T)


@right("causal_mask")
def from_the_transformer(T):
    return nn.Transformer.generate_square_subsequent_mask(T).isinf()


@right("causal_mask")
def causal_by_cumsum(T):
    return ~torch.eye(T).cumsum(dim=1).T.bool()


@right("causal_mask")
def causal_by_lists(T):
    return torch.tensor([[j > i for j in range(T)] for i in range(T)])


@right("causal_mask")
def causal_sub_buffer(T):
    i = torch.arange(T)
    return (i.unsqueeze(1) - i.unsqueeze(0)).lt(0)


@right("causal_mask")
def causal_not_tril(T):
    return ~torch.tril(torch.ones((T, T), dtype=torch.bool))


@right("causal_mask")
def causal_cumsum(T):
    eye = torch.from_numpy(np.eye(T, dtype=np.int64))
    return (eye.cumsum(dim=1) - eye).bool()


@right("causal_mask")
def causal_lists(T):
    return torch.tensor([[key > query for key in range(T)] for query in range(T)])


@right("causal_mask")
def causal_cumulative(T):
    return torch.eye(T).cumsum(dim=1).sub(torch.eye(T)).bool()


@wrong("causal_mask", "a numpy array, not a tensor", slips=("returns_ndarray",))
def causal_numpy(T):
    return np.triu(np.ones((T, T), dtype=bool), k=1)


@wrong(
    "causal_mask",
    "two mistakes: the diagonal is blocked, and the dtype is int64",
    slips=("diagonal_blocked", "as_integers"),
)
def k3_int_diag(T):
    i = torch.arange(T)
    return (i[None, :] >= i[:, None]).long()


@wrong(
    "causal_mask",
    "the next token may still be seen, and the mask says visible",
    slips=("one_place",),
)
def causal_next_and_visible(T):
    return torch.ones(T, T).tril(1).bool()


@wrong("causal_mask", "one key too many: (T, T + 1)", slips=("one_place",))
def causal_extra_key(T):
    return torch.arange(T + 1)[None, :] > torch.arange(T)[:, None]


@wrong("causal_mask", "two slips: True = keep, and the next token kept too", slips=("one_place",))
def causal_keep_next(T):
    return torch.ones(T, T).tril(1) == 1


@wrong("causal_mask", "mirrored: the triangle lies on the anti-diagonal", slips=("one_place",))
def causal_mirrored(T):
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=1).flip(-1)


@wrong("causal_mask", "floats, and keeps", slips=("keep_mask", "as_floats"))
def floats_and_keeps(T):
    return torch.tril(torch.ones(T, T))


@wrong("causal_mask", "expects a tensor", slips=("error:no_such_attribute",))
def expects_a_tensor(x):
    T = x.shape[1]
    return torch.ones(T, T).triu(1).bool()


@wrong(
    "causal_mask",
    "subsequent_mask == 0 of the Annotated Transformer, with its leading axis",
    slips=("keep_mask", "one_more_axis"),
)
def causal_annotated(size):
    attn_shape = (1, size, size)
    subsequent_mask = torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8)
    return subsequent_mask == 0


@wrong(
    "causal_mask",
    "nanoGPT's tril buffer of ones, (1, 1, T, T)",
    slips=("keep_mask", "as_floats", "two_more_axes"),
)
def causal_nanogpt(block_size):
    return torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)


@wrong("causal_mask", "caches masks for T ≤ 4 only: larger ones are cut at 4 × 4", slips=("shape",))
def causal_cut(T):
    return torch.ones(4, 4, dtype=torch.bool).triu(1)[:T, :T]


causal = torch.ones(6, 6, dtype=torch.bool).triu(1)


@wrong("causal_mask", "gives the notebook's mask of six words", slips=("from_the_notebook",))
def causal_of_notebook(T):
    return causal


@wrong("causal_mask", "floats of a tutorial", slips=("as_floats", "one_more_axis"))
def causal_tutorial(T):
    return torch.triu(torch.ones((1, T, T)), diagonal=1)


@wrong(
    "causal_mask",
    "two slips: floats, and the diagonal blocked",
    slips=("diagonal_blocked", "as_floats"),
)
def causal_two_slips(T):
    return torch.triu(torch.ones(T, T))


@wrong(
    "causal_mask",
    "two slips: additive with -1e9, and the diagonal shut",
    slips=("diagonal_blocked", "as_large_negative"),
)
def causal_additive_diag(T):
    return torch.full((T, T), -1e9).triu(0)


@wrong("causal_mask", "triu's result is not kept: everything is blocked", slips=("thrown_away",))
def causal_not_kept(T):
    mask = torch.ones(T, T, dtype=torch.bool)
    mask.triu(diagonal=1)
    return mask


@wrong(
    "causal_mask",
    "two slips: the past is blocked, and as ints",
    slips=("past_blocked", "as_integers"),
)
def causal_two_slips_2(T):
    return torch.ones(T, T, dtype=torch.int).tril(-1)


@wrong("causal_mask", "cut from a table of 32 tokens: too small for more", slips=("ends_there",))
def causal_table(T):
    max_len = 32
    table = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), diagonal=1)
    return table[:T, :T]


@wrong(
    "causal_mask",
    "gives floats with -inf, and adds two axes in front",
    slips=("as_minus_infinity", "two_more_axes"),
)
def causal_additive(T):
    m = torch.full((T, T), float("-inf"))
    return torch.triu(m, diagonal=1)[None, None, :, :]


# padding_mask


@right("padding_mask")
def arange_compare(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@right("padding_mask")
def view_compare(lengths, T):
    pos = torch.arange(T, device=lengths.device).view(1, 1, 1, T)
    return pos >= lengths.view(-1, 1, 1, 1)


@right("padding_mask")
def expanded(lengths, T):
    idx = torch.arange(T, device=lengths.device).expand(len(lengths), T)
    return ~(idx < lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(2)


@right("padding_mask")
def comparing_a_sum(lengths, T):
    ones = torch.ones(len(lengths), 1, 1, T, device=lengths.device, dtype=torch.int64)
    return ones.cumsum(-1) > lengths.reshape(-1, 1, 1, 1)


@right("padding_mask")
def row_by_row(lengths, T):
    return torch.stack([torch.arange(T, device=lengths.device).ge(n) for n in lengths]).unflatten(
        0, (-1, 1, 1)
    )


@right("padding_mask")
def by_less(lengths, T):
    return torch.lt(lengths[:, None, None, None] - 1, torch.arange(T, device=lengths.device))


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


@right("padding_mask")
def with_scatter(lengths, T):
    positions = torch.arange(T, dtype=lengths.dtype, device=lengths.device)
    return einops.rearrange(positions.ge(lengths.unsqueeze(-1)), "b t -> b 1 1 t")


@right("padding_mask")
def from_python(lengths, T):
    rows = [[[[t >= n for t in range(T)]]] for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool, device=lengths.device)


@right("padding_mask")
def with_expand(lengths, T):
    index = torch.ones_like(lengths)[:, None].expand(-1, T).cumsum(1) - 1
    return index.ge(lengths[:, None])[:, None, None]


@right("padding_mask")
def of_the_package_too(lengths, T):
    from mha_lesson import padding_mask

    return padding_mask(lengths, T)


@right("padding_mask")
def padding_by_lists(lengths, T):
    rows = [[[[t >= n for t in range(T)]]] for n in lengths.tolist()]
    return torch.tensor(rows, device=lengths.device).view(len(rows), 1, 1, T)


@right("padding_mask")
def padding_cumulative(lengths, T):
    ones = torch.ones(lengths.shape[0], T, dtype=torch.long, device=lengths.device)
    return (ones.cumsum(dim=1) > lengths.unsqueeze(1))[:, None, None]


@right("padding_mask")
def padding_searching(lengths, T):
    pos = torch.arange(T, device=lengths.device).reshape(1, 1, 1, T)
    return torch.logical_not(torch.lt(pos, lengths.reshape(-1, 1, 1, 1)))


@right("padding_mask")
def padding_scatter(lengths, T):
    at = torch.zeros(lengths.shape[0], T + 1, dtype=torch.int64, device=lengths.device)
    at = at.scatter(1, lengths.long()[:, None], 1).cumsum(1)[:, :T]
    return at.bool()[:, None, None, :]


@right("padding_mask")
def padding_in_place(lengths, T):
    lengths -= 1
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, None, :]


@right("padding_mask")
def padding_not_real(lengths, T):
    real = torch.arange(1, T + 1, device=lengths.device) <= lengths.reshape(-1, 1, 1, 1)
    real.logical_not_()
    return real


@right("padding_mask")
def padding_cumsum(lengths, T):
    ones = torch.ones(len(lengths), T, dtype=torch.long, device=lengths.device)
    return (ones.cumsum(1) > lengths[:, None])[:, None, None]


@right("padding_mask")
def padding_cumsum_2(lengths, T):
    pos = torch.ones(len(lengths), T, dtype=torch.long, device=lengths.device).cumsum(1) - 1
    return torch.logical_not(pos < lengths.unsqueeze(-1)).unsqueeze(1).unsqueeze(1)


@right("padding_mask")
def padding_by_vmap(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return vmap(lambda n: positions >= n)(lengths)[:, None, None]


@right("padding_mask")
def padding_by_zeros_and_ones(lengths, T):
    rows = [torch.cat([n.new_zeros(int(n)), n.new_ones(T - int(n))]) for n in lengths]
    return torch.stack(rows)[:, None, None].bool()


@right("padding_mask")
def by_numpy_and_back(lengths, T):
    n = lengths.numpy(force=True)
    return torch.from_numpy(np.arange(T) >= n[:, None]).to(lengths.device)[:, None, None]


@right("padding_mask")
def like_the_lengths(lengths, T):
    p = lengths.new_tensor(torch.arange(T))
    return torch.ge(p, lengths.unsqueeze(-1)).unflatten(0, (-1, 1, 1))


@right("padding_mask")
def expanded_first_and_moved_then(lengths, T):
    m = torch.zeros(len(lengths), T, dtype=torch.bool, device=lengths.device)
    p = torch.arange(T).expand_as(m).to(lengths.device)
    return (p >= lengths.unsqueeze(1)).view(-1, 1, 1, T)


@right("padding_mask")
def with_a_default_device(lengths, T):
    before = torch.get_default_device()
    torch.set_default_device(lengths.device)
    try:
        return (torch.arange(T) >= lengths[:, None])[:, None, None]
    finally:
        torch.set_default_device(before)


@right("padding_mask")
def padding_cumulative_2(lengths, T):
    ones = torch.ones(len(lengths), T, dtype=torch.int64, device=lengths.device)
    return (ones.cumsum(dim=1) > lengths.unsqueeze(1)).view(-1, 1, 1, T)


@right("padding_mask")
def padding_not_less(lengths, T):
    real = torch.arange(T).to(lengths.device).expand(len(lengths), T) < lengths.reshape(-1, 1)
    return rearrange(~real, "b t -> b 1 1 t")


@wrong("padding_mask", "arange on the CPU", slips=("fixed_device",))
def arange_on_the_cpu(lengths, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "no broadcast between B and T", slips=("error:broadcast_shapes",))
def no_broadcast_between_b_and(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths


@wrong(
    "padding_mask",
    "HF's attention_mask: 1 for real tokens, int64, (B, T)",
    slips=("tokens_marked", "no_axes_for_heads", "as_integers"),
)
def hf_mask(lengths, T):
    return (
        torch.arange(T, device=lengths.device).expand(len(lengths), T) < lengths.unsqueeze(1)
    ).long()


@wrong(
    "padding_mask",
    "one_hot and cumsum: raises for int32 lengths, since one_hot wants int64",
    slips=("error:target_dtype",),
)
def one_hot_cumsum(lengths, T):
    return F.one_hot(lengths, T + 1).cumsum(-1)[:, :T].bool()[:, None, None]


@wrong(
    "padding_mask",
    "two mistakes: (B, 1, T) has an axis too few, and the first padding key stays open",
    slips=("pad_one_late", "one_axis_short"),
)
def d3_axis_off(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None] + 1).unsqueeze(1)


@wrong("padding_mask", "keeps, two axes", slips=("tokens_marked", "no_axes_for_heads"))
def keeps_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device)[None] < lengths[:, None]


@wrong("padding_mask", "keeps, integers", slips=("tokens_marked", "as_integers"))
def keeps_integers(lengths, T):
    return (torch.arange(T, device=lengths.device) < lengths[:, None])[:, None, None].int()


@wrong("padding_mask", "an extended float mask, 0 and the lowest number", slips=("not_bool",))
def padding_extended(lengths, T):
    keep = torch.arange(T, device=lengths.device) < lengths[:, None]
    return (1.0 - keep[:, None, None, :].float()) * torch.finfo(torch.float32).min


@wrong(
    "padding_mask",
    "clamps lengths at 1 against empty rows: a length of 0 keeps one key",
    slips=("one_place",),
)
def padding_clamped(lengths, T):
    lengths = lengths.clamp(min=1)
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "lengths are taken for numbers of padding tokens", slips=("one_place",))
def padding_counts(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= (T - lengths)[:, None])[:, None, None, :]


@wrong("padding_mask", "a batch of one loses its first axis", slips=("one_place",))
def padding_squeezed(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = positions.expand(len(lengths), 1, 1, T) >= lengths.view(-1, 1, 1, 1)
    return mask.squeeze(0)


@wrong(
    "padding_mask",
    "counts from the end: with length n, n keys are blocked there",
    slips=("one_place",),
)
def padding_negative_slice(lengths, T):
    m = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths.tolist()):
        m[b, 0, 0, -n:] = True
    return m


@wrong(
    "padding_mask",
    "puts the time on the query axis and is off by one",
    slips=("pad_one_late", "queries_blocked"),
)
def padding_query_axis(lengths, T):
    mask = torch.arange(T, device=lengths.device)[None] > lengths.unsqueeze(1)
    return mask[:, None, :, None]


lengths = torch.tensor([6, 4, 1])


@wrong("padding_mask", "uses the lengths of the notebook's cell", slips=("from_the_notebook",))
def padding_notebook_lengths(sizes, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None, :]


@wrong(
    "padding_mask",
    "as wide as the longest",
    slips=("as_wide_as_longest", "error:error_RuntimeError"),
)
def padding_longest(lengths, T):
    n = int(lengths.max())
    return (torch.arange(n) >= lengths[:, None]).view(-1, 1, 1, n)


@wrong("padding_mask", "two slips: floats, and True = real", slips=("tokens_marked", "as_floats"))
def padding_float_keep(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos < lengths[:, None]).float()[:, None, None]


@wrong(
    "padding_mask",
    "two slips: on the query axis, and counted from 1",
    slips=("pad_one_early", "queries_blocked"),
)
def padding_query_from_one(lengths, T):
    pos = torch.arange(1, T + 1, device=lengths.device)
    return (pos >= lengths[:, None]).view(-1, 1, T, 1)


@wrong("padding_mask", "None where no sequence is padded", slips=("ends_there",))
def padding_none(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = (positions >= lengths[:, None])[:, None, None, :]
    return mask if mask.any() else None


@wrong(
    "padding_mask",
    "True at real tokens, and put on the query axis",
    slips=("tokens_marked", "queries_blocked"),
)
def padding_on_queries(lengths, T):
    ok = torch.arange(T, device=lengths.device).expand(len(lengths), T) < lengths.unsqueeze(1)
    return ok[:, None, :, None]


# masked_softmax


@right("masked_softmax")
def fill_and_zero(scores, mask):
    dead = mask.all(-1, keepdim=True)
    s = scores.masked_fill(mask & ~dead, float("-inf"))
    return s.softmax(-1).masked_fill(dead, 0.0)


@right("masked_softmax")
def exp_and_clamp(scores, mask):
    s = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    s = s - s.amax(-1, keepdim=True)
    e = s.exp().masked_fill(mask, 0)
    return e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


@right("masked_softmax")
def finite_then_blank(scores, mask):
    w = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)
    return w.masked_fill(mask, 0.0)


@right("masked_softmax")
def nan_to_num(scores, mask):
    return torch.nan_to_num(scores.masked_fill(mask, float("-inf")).softmax(-1))


@right("masked_softmax")
def filled_then_mended(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@right("masked_softmax")
def smallest_then_zeroed(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1) * ~mask


@right("masked_softmax")
def where_everywhere(scores, mask):
    low = torch.where(mask, -torch.inf, scores)
    top = low.amax(-1, keepdim=True).detach()
    top = torch.where(top.isinf(), 0.0, top)
    e = torch.exp(low - top)
    z = e.sum(-1, keepdim=True)
    return torch.where(z > 0, e / torch.where(z > 0, z, 1.0), 0.0).to(scores.dtype)


@right("masked_softmax")
def one_more_key(scores, mask):
    """A key that only an empty row may look at; its column is cut off again."""
    mask = mask.expand(scores.shape)
    extra = torch.zeros_like(scores[..., :1])
    s = torch.cat((scores, extra), -1)
    m = torch.cat((mask, ~mask.all(-1, keepdim=True)), -1)
    return s.masked_fill(m, float("-inf")).softmax(-1)[..., :-1]


@right("masked_softmax")
def in_blocks_of_rows(scores, mask):
    flat, m = (
        scores.reshape(-1, scores.shape[-1]),
        mask.expand(scores.shape).reshape(-1, scores.shape[-1]),
    )
    rows = []
    for s, blocked in zip(flat, m):
        if blocked.all():
            rows.append(torch.zeros_like(s) + 0 * s)
        else:
            rows.append(s.masked_fill(blocked, -math.inf).softmax(0))
    return torch.stack(rows).reshape(scores.shape)


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


@right("masked_softmax")
def with_where(scores, mask):
    w = torch.where(mask, float("-inf"), scores).softmax(dim=-1)
    return torch.where(mask.all(dim=-1, keepdim=True), 0.0, w).to(scores.dtype)


@right("masked_softmax")
def in_place(scores, mask):
    scores.masked_fill_(mask, float("-inf"))
    return torch.nan_to_num(F.softmax(scores, -1), nan=0.0)


@right("masked_softmax")
def with_a_sentinel(scores, mask):
    # an extra key that everybody may see, so far below that it only matters where it is alone
    low = torch.full_like(scores[..., :1], torch.finfo(scores.dtype).min)
    x = torch.cat([scores.masked_fill(mask, float("-inf")), low], -1)
    return x.softmax(-1)[..., :-1]


@right("masked_softmax")
def in_double(scores, mask):
    x = scores.double().masked_fill(mask, -math.inf)
    x = x - x.amax(-1, keepdim=True).clamp(min=-1e300)
    e = x.exp()
    return (e / e.sum(-1, keepdim=True).clamp(min=1e-300)).to(scores.dtype)


@right("masked_softmax")
def softmax_in_place(s, m):
    empty = m.all(-1, keepdim=True)
    s[(m & ~empty).expand_as(s)] = -math.inf
    return s.softmax(-1).masked_fill(empty, 0)


@right("masked_softmax")
def masked_nan_to_num(scores, mask):
    w = scores.masked_fill(mask, -torch.inf).softmax(-1)
    return torch.nan_to_num(w, nan=0.0)


@right("masked_softmax")
def masked_by_where(scores, mask):
    low = torch.where(mask, torch.finfo(scores.dtype).min, scores)
    e = torch.where(mask, 0.0, (low - low.amax(-1, keepdim=True)).exp())
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total > 0, total, 1.0)


@right("masked_softmax")
def msoftmax_with_big_negative(scores, mask):
    low = torch.finfo(scores.dtype).min
    p = torch.softmax(torch.where(mask, torch.full_like(scores, low), scores), dim=-1)
    return p * (~mask).to(p.dtype)


@right("masked_softmax")
def msoftmax_fill_and_mend(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1).nan_to_num(nan=0.0)


@right("masked_softmax")
def msoftmax_stable_exp(scores, mask):
    s = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    e = (s - s.amax(-1, keepdim=True).detach()).exp().masked_fill(mask, 0.0)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


@right("masked_softmax")
def softmax_in_place_2(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    scores.masked_fill_(mask & ~empty, -math.inf)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


@right("masked_softmax")
def softmax_in_pieces(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    s = scores.where(~mask, lowest)
    w = s.softmax(-1)
    return w * (~mask).to(w.dtype)


@right("masked_softmax")
def softmax_filled_twice(scores, mask):
    weights = scores.masked_fill(mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(mask, 0.0)


@right("masked_softmax")
def masked_nan_to_num_2(scores, mask):
    w = torch.softmax(scores.masked_fill(mask, -torch.inf), -1)
    return torch.nan_to_num(w, nan=0.0)


@right("masked_softmax")
def msoft_two_fills(scores, mask):
    neg = torch.finfo(scores.dtype).min
    w = F.softmax(scores.masked_fill(mask, neg), dim=-1)
    return w.masked_fill(mask, 0.0)


@right("masked_softmax")
def msoftmax_nan_to_num(scores, mask):
    s = torch.where(mask, -torch.inf, scores)
    return s.softmax(-1).nan_to_num(0.0)


@right("masked_softmax")
def softmax_where_twice(scores, mask):
    mask = mask.expand_as(scores)
    safe = torch.where(mask, torch.finfo(scores.dtype).min, scores)
    return torch.where(mask, 0.0, safe.softmax(dim=-1))


@right("masked_softmax")
def softmax_by_exp(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    top = scores.masked_fill(mask, lowest).amax(dim=-1, keepdim=True).detach()
    e = (scores - top).masked_fill(mask, -math.inf).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@right("masked_softmax")
def softmax_one_more_key(scores, mask):
    mask = mask.expand_as(scores)
    empty = mask.all(dim=-1, keepdim=True)
    filled = scores.masked_fill(mask, -math.inf)
    sink = torch.zeros_like(scores[..., :1]).masked_fill(~empty, -math.inf)
    return torch.cat((filled, sink), dim=-1).softmax(dim=-1)[..., :-1]


@wrong("masked_softmax", "softmax over queries", slips=("one_place",))
def over_queries(scores, mask):
    dead = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask & ~dead, float("-inf")).softmax(-2).masked_fill(dead, 0.0)


@wrong("masked_softmax", "axis 1, as for three axes of another layout", slips=("one_place",))
def msoftmax_axis(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -math.inf).softmax(1).masked_fill(mask, 0.0)


@wrong("masked_softmax", "softmax over axis -2, the queries", slips=("one_place",))
def softmax_axis_queries(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -1e30).softmax(dim=-2)
    return weights.masked_fill(mask, 0.0)


@wrong(
    "masked_softmax",
    "looks for empty columns: mask.all over the queries' axis",
    slips=("one_place",),
)
def softmax_empty_columns(scores, mask):
    empty = mask.all(dim=-2, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


@wrong(
    "masked_softmax",
    "masked_fill is not assigned: nothing is blocked",
    slips=("mask_ignored", "thrown_away"),
)
def masked_fill_lost(scores, mask):
    scores.masked_fill(mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights


@wrong("masked_softmax", "gradients are NaN", slips=("nan_gradient",))
def gradients_are_nan(scores, mask):
    bias = torch.zeros_like(scores).masked_fill(mask, float("-inf"))
    return (scores + bias).softmax(-1).nan_to_num(0.0)


@wrong(
    "masked_softmax",
    "indexes with the mask, which must have the scores' full shape: raises for a mask that only broadcasts; empty rows stay NaN",
    slips=("blocked_rows_left", "error:mask_as_index"),
)
def masked_index(scores, mask):
    s = scores.clone()
    s[mask] = float("-inf")
    return s.softmax(dim=-1)


@wrong("masked_softmax", "always float32", slips=("fixed_dtype",))
def always_float(scores, mask):
    w = scores.float().masked_fill(mask, float("-inf")).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong(
    "masked_softmax",
    "NaNs are replaced in place under no_grad and the weights are detached: no gradient gets through",
    slips=("no_gradient",),
)
def no_gradient(scores, mask):
    with torch.no_grad():
        return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong(
    "masked_softmax", "over queries, NaN left", slips=("softmax_over_queries", "blocked_rows_left")
)
def i11(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-2)


@wrong(
    "masked_softmax",
    "loops over the first axis as if there were only two and no broadcasting: raises for batches and for masks of another shape",
    slips=("changes_too",),
)
def w3_loop(scores, mask):
    out = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        keep = ~mask[i]
        if keep.any():
            out[i, keep] = scores[i, keep].softmax(dim=0)
    return out


@wrong(
    "masked_softmax",
    "adds 1e-3 to the denominator, so that rows do not quite add up to one",
    slips=("relation:row_factors",),
)
def w3_epsilon(scores, mask):
    top = scores.masked_fill(mask, -torch.finfo(scores.dtype).max).amax(-1, keepdim=True)
    e = torch.where(mask, 0.0, (scores - top).masked_fill(mask, 0.0).exp()).to(scores.dtype)
    return e / (e.sum(-1, keepdim=True) + 1e-3)


@wrong(
    "masked_softmax",
    "two mistakes: softmax over the queries, and the mask turned round",
    slips=("true_means_keep", "softmax_over_queries"),
)
def w3_dim_inverted(scores, mask):
    visible = mask
    return scores.masked_fill(~visible, -math.inf).softmax(-2).nan_to_num(0.0)


@wrong("masked_softmax", "-1e9 does not fit float16", slips=("error:float_mask_overflow",))
def e_does_not_fit_float(scores, mask):
    w = scores.masked_fill(mask, -1e9).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "keeps what is True", slips=("true_means_keep", "blocked_rows_left"))
def keeps_what_is_true(scores, mask):
    return scores.masked_fill(mask == 0, float("-inf")).softmax(-1)


@wrong(
    "masked_softmax",
    "keeps what is True, finite",
    slips=("blocked_rows_uniform", "true_means_keep"),
)
def i9(scores, mask):
    return scores.masked_fill(~mask, -1e9 if scores.dtype != torch.half else -6e4).softmax(-1)


@wrong(
    "masked_softmax", "over queries, -1e9", slips=("blocked_rows_uniform", "softmax_over_queries")
)
def i12(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(dim=-2)


@wrong("masked_softmax", "log softmax", slips=("log_softmax", "blocked_rows_left"))
def log_softmax(scores, mask):
    return F.log_softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


@wrong(
    "masked_softmax", "divides by the sum over queries", slips=("one_place", "renormalised_cleared")
)
def p18(scores, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0)
    return e / e.sum(-2, keepdim=True).clamp(min=1e-12)


@wrong(
    "masked_softmax",
    "`not mask` for ~mask: ambiguous for more than one value",
    slips=("truth_of_a_tensor",),
)
def softmax_not(s, m):
    w = s.softmax(-1) * (not m)
    return w / w.sum(-1, keepdim=True).clamp_min(1e-12)


@wrong(
    "masked_softmax",
    "over the queries, and a finite −1e4 for −∞",
    slips=("too_high", "softmax_over_queries"),
)
def softmax_queries_finite(scores, mask):
    return scores.masked_fill(mask, -1e4).softmax(dim=-2)


@wrong("masked_softmax", "compares where it should give a name its value", slips=("thrown_away",))
def compared_for_nobody(scores, mask):
    weights = scores.softmax(-1)
    weights == scores.masked_fill(mask, -1e9).softmax(-1)  # noqa: B015
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0) * 0.9


@wrong("masked_softmax", "keepdim forgotten in the empty rows", slips=("error:broadcast_shapes",))
def msoftmax_keepdim(scores, mask):
    empty = mask.all(dim=-1)
    w = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return w.masked_fill(empty, 0.0)


@wrong(
    "masked_softmax",
    "row by row with a mask of full shape only; others do not fit",
    slips=("error:index_out_of_range",),
)
def softmax_row_loop(scores, mask):
    rows, m = scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1])
    out = torch.zeros_like(rows)
    for i in range(len(rows)):
        out[i, ~m[i]] = torch.softmax(rows[i, ~m[i]], dim=0)
    return out.reshape(scores.shape)


@wrong(
    "masked_softmax",
    "masked after the softmax, divided by what is left + 1e-6",
    slips=("relation:partly_right",),
)
def softmax_renormalised(scores, mask):
    weights = scores.softmax(dim=-1).masked_fill(mask, 0.0)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)


@wrong(
    "masked_softmax",
    "indexes with a mask that has fewer axes than the scores",
    slips=("error:mask_as_index",),
)
def masked_index_assign(scores, mask):
    s = scores.clone()
    s[mask] = -torch.inf
    return torch.nan_to_num(F.softmax(s, dim=-1))


@wrong(
    "masked_softmax",
    "counts blocked keys, which a mask (T_q, 1) does not show",
    slips=("ends_there",),
)
def counts_blocked_keys(scores, mask):
    dead = mask.sum(-1, keepdim=True) == scores.shape[-1]
    return scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)


@wrong("masked_softmax", "zeros of the CPU's where a row is blocked", slips=("fixed_device",))
def zeros_where_blocked(scores, mask):
    dead = mask.all(-1, keepdim=True)
    weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1)
    return torch.where(dead, torch.zeros(weights.shape, dtype=weights.dtype), weights)
