"""masked_softmax (9): right in many styles, and wrong."""

import math

import torch

from answers import slips

EXERCISE = "masked_softmax"


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


def in_double(scores, mask):
    x = scores.double().masked_fill(mask, -math.inf)
    x = x - x.amax(-1, keepdim=True).clamp(min=-1e300)
    e = x.exp()
    return (e / e.sum(-1, keepdim=True).clamp(min=1e-300)).to(scores.dtype)


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


@slips("changes_too")
def w3_loop(scores, mask):
    out = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        keep = ~mask[i]
        if keep.any():
            out[i, keep] = scores[i, keep].softmax(dim=0)
    return out


@slips("epsilon_added")
def w3_epsilon(scores, mask):
    top = scores.masked_fill(mask, -torch.finfo(scores.dtype).max).amax(-1, keepdim=True)
    e = torch.where(mask, 0.0, (scores - top).masked_fill(mask, 0.0).exp()).to(scores.dtype)
    return e / (e.sum(-1, keepdim=True) + 1e-3)


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


def zeros_where_blocked(scores, mask):
    dead = mask.all(-1, keepdim=True)
    weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1)
    return torch.where(dead, torch.zeros(weights.shape, dtype=weights.dtype), weights)


@slips("mask_of_sequence_0")
def published_mask_of_the_first(scores, mask):
    mask = mask.expand(scores.shape)[:1]
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(mask, 0.0)
