"""solved: right in many styles, and wrong."""

import torch

from answers import slips

EXERCISE = "solved"


def by_sign(weights, query, right, wrong):
    return torch.sub(weights[:, query, right], weights[:, query, wrong]).sign() == 1


def by_tensor_of_bools(weights, query, right, wrong):
    return torch.stack([w[query, wrong] < w[query, right] for w in weights])


def compared(weights, query, right, wrong):
    return weights[:, query, right] > weights[:, query, wrong]


def one_head_at_a_time(A, q, r, w):
    return torch.tensor([bool(a[q, r] > a[q, w]) for a in A], device=A.device)


def solved_by_sign(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=1).squeeze(1).signbit()


def solved_index_select(weights, query, right, wrong):
    row = weights.select(1, query)
    pair = row.index_select(1, torch.tensor([right, wrong], device=row.device))
    return pair.diff(dim=1).squeeze(1) < 0


def solved_sign(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong]).eq(1)


def solved_sorted(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=-1).squeeze(-1).lt(0)


def solved_loop_2(weights, query, right, wrong):
    return torch.stack([head[query, right].gt(head[query, wrong]) for head in weights])


@slips("one_place")
def how_many(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).sum()


@slips("one_place")
def solved_any(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).any()


@slips("arguments_exchanged")
def solved_argument_order(attn, correct, incorrect, position):
    return attn[:, position, correct] > attn[:, position, incorrect]


@slips("truth_of_a_tensor")
def solved_and(weights, query, right, wrong):
    best = weights[:, query].max(dim=-1).values
    return weights[:, query, right] == best and weights[:, query, wrong] < best


@slips("column", "less_than")
def solved_column_less(weights, query, right, wrong):
    return weights[:, right, query] < weights[:, wrong, query]


@slips("returns_bool")
def solved_majority(weights, query, right, wrong):
    return bool((weights[:, query, right] > weights[:, query, wrong]).float().mean() > 0.5)


@slips("not_bool")
def solved_sign_2(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong])


@slips("relation:partly_right")
def solved_fair_share(weights, query, right, wrong):
    return weights[:, query, right] > 1 / weights.shape[-1]


@slips("relation:a_slice")
def of_the_first_head(weights, query, right, wrong):
    return weights[0, query, right] > weights[0, query, wrong]
