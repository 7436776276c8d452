"""masked_softmax (9): right in many styles, and wrong."""

import math
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "masked_softmax"


def fill_and_zero(scores, mask):
    dead = mask.all(-1, keepdim=True)
    s = scores.masked_fill(mask & ~dead, float("-inf"))
    return s.softmax(-1).masked_fill(dead, 0.0)


def exp_and_clamp(scores, mask):
    s = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    s = s - s.amax(-1, keepdim=True)
    e = s.exp().masked_fill(mask, 0)
    return e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


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


def by_hand(scores, mask):
    open_scores = scores.masked_fill(mask, -torch.inf)
    top = open_scores.amax(-1, keepdim=True)
    top = torch.where(top.isinf(), torch.zeros_like(top), top)
    e = (open_scores - top).exp()
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def in_float32(scores, mask):
    dead = mask.all(-1, keepdim=True)
    x = scores.float().masked_fill(mask & ~dead, float("-inf"))
    return x.softmax(-1).masked_fill(dead, 0.0).to(scores.dtype)


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


def by_attention(scores, mask):
    # softmax(scores) is what attention gives where the values are the unit vectors
    dead = mask.all(-1, keepdim=True)
    x = torch.where(mask & ~dead, torch.full_like(scores, -torch.inf), scores)
    w = torch.exp(x - torch.logsumexp(x, -1, keepdim=True))
    return w * (~dead)


def in_place(scores, mask):
    scores.masked_fill_(mask, float("-inf"))
    return torch.nan_to_num(F.softmax(scores, -1), nan=0.0)


def with_a_sentinel(scores, mask):
    # an extra key that everybody may see, so far below that it only matters where it is alone
    low = torch.full_like(scores[..., :1], torch.finfo(scores.dtype).min)
    x = torch.cat([scores.masked_fill(mask, float("-inf")), low], -1)
    return x.softmax(-1)[..., :-1]


def in_double(scores, mask):
    x = scores.double().masked_fill(mask, -math.inf)
    x = x - x.amax(-1, keepdim=True).clamp(min=-1e300)
    e = x.exp()
    return (e / e.sum(-1, keepdim=True).clamp(min=1e-300)).to(scores.dtype)


def softmax_in_place(s, m):
    empty = m.all(-1, keepdim=True)
    s[(m & ~empty).expand_as(s)] = -math.inf
    return s.softmax(-1).masked_fill(empty, 0)


def softmax_in_pieces(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    s = scores.where(~mask, lowest)
    w = s.softmax(-1)
    return w * (~mask).to(w.dtype)


def softmax_by_exp(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    top = scores.masked_fill(mask, lowest).amax(dim=-1, keepdim=True).detach()
    e = (scores - top).masked_fill(mask, -math.inf).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


def softmax_one_more_key(scores, mask):
    mask = mask.expand_as(scores)
    empty = mask.all(dim=-1, keepdim=True)
    filled = scores.masked_fill(mask, -math.inf)
    sink = torch.zeros_like(scores[..., :1]).masked_fill(~empty, -math.inf)
    return torch.cat((filled, sink), dim=-1).softmax(dim=-1)[..., :-1]


@slips("one_place")
def over_queries(scores, mask):
    dead = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask & ~dead, float("-inf")).softmax(-2).masked_fill(dead, 0.0)


@slips("one_place")
def msoftmax_axis(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -math.inf).softmax(1).masked_fill(mask, 0.0)


@slips("mask_ignored", "thrown_away")
def masked_fill_lost(scores, mask):
    scores.masked_fill(mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights


@slips("nan_gradient")
def gradients_are_nan(scores, mask):
    bias = torch.zeros_like(scores).masked_fill(mask, float("-inf"))
    return (scores + bias).softmax(-1).nan_to_num(0.0)


@slips("blocked_rows_left", "error:mask_as_index")
def masked_index(scores, mask):
    s = scores.clone()
    s[mask] = float("-inf")
    return s.softmax(dim=-1)


@slips("fixed_dtype")
def always_float(scores, mask):
    w = scores.float().masked_fill(mask, float("-inf")).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@slips("no_gradient")
def no_gradient(scores, mask):
    with torch.no_grad():
        return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@slips("softmax_over_queries", "blocked_rows_left")
def i11(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-2)


@slips("changes_too")
def w3_loop(scores, mask):
    out = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        keep = ~mask[i]
        if keep.any():
            out[i, keep] = scores[i, keep].softmax(dim=0)
    return out


@slips("relation:row_factors")
def w3_epsilon(scores, mask):
    top = scores.masked_fill(mask, -torch.finfo(scores.dtype).max).amax(-1, keepdim=True)
    e = torch.where(mask, 0.0, (scores - top).masked_fill(mask, 0.0).exp()).to(scores.dtype)
    return e / (e.sum(-1, keepdim=True) + 1e-3)


@slips("error:float_mask_overflow")
def e_does_not_fit_float(scores, mask):
    w = scores.masked_fill(mask, -1e9).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@slips("stays")
def p18(scores, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0)
    return e / e.sum(-2, keepdim=True).clamp(min=1e-12)


@slips("thrown_away")
def compared_for_nobody(scores, mask):
    weights = scores.softmax(-1)
    weights == scores.masked_fill(mask, -1e9).softmax(-1)  # noqa: B015
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0) * 0.9


@slips("error:index_out_of_range")
def softmax_row_loop(scores, mask):
    rows, m = scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1])
    out = torch.zeros_like(rows)
    for i in range(len(rows)):
        out[i, ~m[i]] = torch.softmax(rows[i, ~m[i]], dim=0)
    return out.reshape(scores.shape)


@slips("relation:partly_right")
def softmax_renormalised(scores, mask):
    weights = scores.softmax(dim=-1).masked_fill(mask, 0.0)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)


@slips("error:mask_as_index")
def masked_index_assign(scores, mask):
    s = scores.clone()
    s[mask] = -torch.inf
    return torch.nan_to_num(F.softmax(s, dim=-1))


@slips("ends_there")
def counts_blocked_keys(scores, mask):
    dead = mask.sum(-1, keepdim=True) == scores.shape[-1]
    return scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)


@slips("fixed_device")
def zeros_where_blocked(scores, mask):
    dead = mask.all(-1, keepdim=True)
    weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1)
    return torch.where(dead, torch.zeros(weights.shape, dtype=weights.dtype), weights)
