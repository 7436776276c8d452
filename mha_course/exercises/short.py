"""Two short exercises outside the numbered row: silence a head; which heads solve a task."""

from collections.abc import Iterator

import torch

from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, exercise


def heads_and_one() -> Iterator[Case]:
    rows = ((2, 3, 5, 7, 1), (1, 2, 3, 5, 0), (3, 5, 2, 3, 4), (2, 1, 3, 2, 0), (3, 3, 3, 3, 2))
    for seed, (B, h, T, d_k, i) in enumerate(rows):
        sizes = {"B": B, "h": h, "T": T, "d_k": d_k}
        heads = normal(B, h, T, d_k, seed=seed)
        yield Case((heads, i), sizes, f"with i = {i}")
        if seed == 0:
            yield Case((strided(heads), 2), sizes, "with heads not contiguous, i = 2")


@exercise(
    0,
    "07",
    reread="Silence a head",
    make_cases=heads_and_one,
    gives=("heads (B, h, T, d_k)",),
    keeps_inputs=True,
)
def silence(heads, i, *, where, put):
    """The same heads, head i at zero."""
    return put(heads, where(heads, i))


@silence.step(at="where")
def another_place(heads, i):
    """Which axis of (B, h, T, d_k) counts the heads?"""
    nothing, number = torch.zeros_like(heads).bool(), torch.tensor(i, device=heads.device)
    sequence_silenced = nothing.index_fill(0, number, True)
    "Sequence i is silenced (axis 0), not head i."
    token_silenced = nothing.index_fill(2, number, True)
    "Token i is silenced (axis 2), not head i."
    dimension_silenced = nothing.index_fill(3, number, True)
    "Dimension i is silenced (the last axis), not head i."
    head_before = nothing.index_fill(1, (number - 1) % heads.shape[1], True)
    "The head before i is silenced. | Which number has the first head?"
    first_heads = torch.arange(heads.shape[1])[:, None, None].expand(heads.shape) <= i
    "All heads up to i are silenced. | What does `:i` mean, and what `i`?"
    last_heads = torch.arange(heads.shape[1])[:, None, None].expand(heads.shape) >= i
    "All heads from i on are silenced. | What does `i:` mean, and what `i`?"
    head_i = nothing.index_fill(1, number, True)
    others = ~head_i
    "All heads *but* head i are silenced. | Which head should be zero?"
    not_at_all = nothing
    "Nothing is silenced. | Is a new tensor made, and is it the one that you return?"
    return head_i


@silence.step
def put(heads, where):
    own_mean = (torch.where(where, heads.mean(axis, keepdim=True), heads) for axis in (2, 0))
    "Head i becomes a mean of its own numbers instead of zero. | What should stand in head i?"
    return heads.masked_fill(where, 0.0)


@silence.step(at=WHOLE)
def another_shape(heads, i):
    taken_out = torch.cat([heads[:, :i], heads[:, i + 1 :]], 1)
    "Head i is taken out: h − 1 heads are returned. | Which four axes should the result have?"
    head_alone = heads[:, i]
    "Head i alone is returned, as it was. | Which heads should stay, and which be zero?"
    zeros_of_head = torch.zeros_like(heads[:, i])
    "Only zeros of one head's shape are returned. | Which four axes should the result have?"


def weights_and_positions() -> Iterator[Case]:
    rows = ((5, 7, 4, 1, 2), (3, 5, 2, 0, 4), (7, 3, 0, 2, 1), (1, 2, 1, 0, 1), (12, 5, 4, 3, 0))
    for seed, (h, T, query, right, wrong) in enumerate(rows):
        weights = normal(h, T, T, seed=seed, std=1.5).softmax(-1)
        if h > 1:
            weights[1, query, right] = weights[1, query, wrong] = 0.25  # a tie solves nothing
            weights[2, query, right], weights[2, query, wrong] = 0.304, 0.303  # close, and no tie
        if h > 3:
            weights[3, query, right], weights[3, query, wrong] = 2e-9, 1e-9  # small, and no tie
        sizes = {"n_heads": h, "T": T}
        note = f"with query {query}, right {right}, wrong {wrong}"
        yield Case((weights, query, right, wrong), sizes, note)
        if seed == 0:
            yield Case((strided(weights), 3, 0, 6), sizes, "with weights not contiguous")


@exercise(
    0,
    "08",
    reread="A fair test",
    make_cases=weights_and_positions,
    gives=("solved (n_heads,)",),
    gradient=False,
)
def solved(weights, query, right, wrong, *, read, compare, give):
    """Whether each head gives `right` more weight than `wrong`, in row `query`."""
    return give(compare(read(weights, query), right, wrong))


@solved.step
def read(weights, query):
    """Row t is query t. Which axis of (n_heads, T, T) counts the queries?"""
    column = weights[:, :, query]
    "Column `query` is read, not row `query`: what the others give to it."
    all_rows = weights.mean(1)
    "The rows of all queries are averaged, or added up: `query` is not used."
    return weights[:, query]


@solved.step
def compare(row, right, wrong):
    """What has a head to do to count as one that solves it?"""
    ties_too = row[:, right] >= row[:, wrong]
    "A tie counts as solved: strictly more is asked for."
    less_than = row[:, right] < row[:, wrong]
    "The comparison is the wrong way round."
    largest_of_all = row.argmax(-1) == right
    "A head counts only if `right` gets the most of *all* tokens, not just more than `wrong`."
    above_half = row[:, right] > 0.5
    "`right` is compared with one half, not with `wrong`."
    difference = row[:, right] - row[:, wrong]
    "The difference of the two weights is returned: numbers, not True and False."
    return row[:, right] > row[:, wrong]


@solved.step
def give(found):
    """What does the exercise ask for, and of which kind is it?"""
    as_numbers = found.to(torch.float32)
    "The result holds 0 and 1 as floats, not True and False."
    as_integers = found.long()
    "The result holds 0 and 1 as integers, not True and False."
    as_list = found.tolist()
    "The result is a list, not a tensor."
    share = found.to(torch.float32).mean()
    "The share of heads that solve it is returned: one number for all."
    all_heads = found.all()
    "One answer for all heads is returned: whether all of them solve it."
    turned = ~found
    "True and False are the wrong way round, ties included."
    axis_kept = found[:, None]
    "There is an axis too many, (n_heads, 1)."
    return found


@solved.step(at=WHOLE)
def without_heads(weights, query, right, wrong):
    """Which axis of (n_heads, T, T) counts the heads?"""
    query_for_head = weights[query, :, right] > weights[query, :, wrong]
    "The first axis, that of the heads, is indexed with `query`: one head's rows are returned."
    rows_compared = weights[:, right] > weights[:, wrong]
    "The rows of `right` and `wrong` are compared, (n_heads, T): `query` is not used."
    heads_forgotten = weights[query, right] > weights[query, wrong]
    "The first axis, that of the heads, is indexed with `query`."
