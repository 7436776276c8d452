"""select_keys (21): right in many styles, and wrong."""

import math

import torch

from answers import slips

EXERCISE = "select_keys"


def scattered(index_scores, n_keep):
    T = index_scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool, device=index_scores.device).triu(1)
    chosen = index_scores.masked_fill(future, -math.inf).topk(min(n_keep, T), dim=-1).indices
    others = torch.ones_like(index_scores, dtype=torch.bool).scatter(-1, chosen, False)
    return others | future


def by_threshold(scores, n):
    T = scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    hidden = scores.masked_fill(future, -math.inf)
    return (hidden < hidden.topk(min(n, T), dim=-1).values[..., -1:]) | future


def by_rank(scores, n):
    T = scores.shape[-1]
    at = torch.arange(T, device=scores.device)
    future = at > at[:, None]
    hidden = torch.where(future, torch.full_like(scores, -torch.inf), scores)
    rank = hidden.argsort(dim=-1, descending=True).argsort(dim=-1)
    return (rank >= n) | future


def counting_the_higher(s, n):
    T = s.shape[-1]
    seen = torch.ones(T, T, dtype=torch.bool, device=s.device).tril()
    higher = ((s[..., None, :] > s[..., :, None]) & seen[..., None, :]).sum(-1)
    return ~(seen & (higher < n))


def with_lists(scores, n):
    flat = scores.reshape(-1, *scores.shape[-2:]).tolist()
    rows = []
    for matrix in flat:
        for t, row in enumerate(matrix):
            best = sorted(range(t + 1), key=lambda j, row=row: -row[j])[:n]
            rows.append([j not in best for j in range(len(row))])
    return torch.tensor(rows, device=scores.device).reshape(scores.shape)


def lowest_number_of_the_dtype(scores, n):
    T = scores.shape[-1]
    seen = torch.tril(torch.ones(T, T, device=scores.device)).bool()
    low = torch.finfo(scores.dtype).min
    keep = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    keep.scatter_(-1, scores.masked_fill(~seen, low).topk(min(T, n)).indices, True)
    return ~(keep & seen)


@slips("future_not_hidden")
def chosen_before_it_is_masked(scores, n_keep):
    T = scores.shape[-1]
    chosen = scores.topk(min(n_keep, T), dim=-1).indices
    others = torch.ones_like(scores, dtype=torch.bool).scatter(-1, chosen, False)
    return others | torch.ones(T, T, dtype=torch.bool).triu(1)


@slips("future_not_hidden", "future_open")
def as_it_stood_in_a_notebook(scores, n):
    chosen = scores.topk(min(n, scores.shape[-1]), dim=-1).indices
    return torch.ones_like(scores, dtype=torch.bool).scatter(-1, chosen, False)


@slips("future_open")
def made_up_from_the_future(scores, n):
    T = scores.shape[-1]
    hidden = scores.masked_fill(torch.ones(T, T).triu(1) == 1, -math.inf)
    chosen = hidden.topk(min(n, T), dim=-1).indices
    return torch.ones_like(scores, dtype=torch.bool).scatter(-1, chosen, False)


@slips("newest_first")
def a_window(scores, n):
    T = scores.shape[-1]
    back = torch.arange(T)[:, None] - torch.arange(T)
    return ((back < 0) | (back >= n)).expand(scores.shape)
