"""Exercise 13, notebook 08: how much a head looks at the previous token."""

from collections.abc import Iterator

import torch

from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, exercise


def weights_of_heads() -> Iterator[Case]:
    for seed, (h, T) in enumerate(((3, 5), (2, 3), (1, 7), (5, 2), (3, 3), (12, 7))):
        weights = normal(h, T, T, seed=seed, std=1.5).softmax(-1)
        sizes = {"n_heads": h, "T": T}
        yield Case((weights,), sizes)
        if seed == 0:
            yield Case((strided(weights),), sizes, "with weights not contiguous")
            future = torch.ones(T, T, dtype=torch.bool).triu(1)
            causal = normal(h, T, T, seed=50).masked_fill(future, -torch.inf).softmax(-1)
            yield Case((causal,), sizes, "with weights of a causal model")


@exercise(
    13,
    "08",
    reread="From looking to measuring",
    make_cases=weights_of_heads,
    gradient=False,
    gives=("scores (n_heads,)",),
)
def previous_token_score(weights, *, pick, reduce, give):
    """Mean over t of weights[:, t, t - 1]."""
    return give(reduce(pick(weights), weights.shape[-1]))


@previous_token_score.step
def pick(weights):
    """Row t is query t. In which column stands the weight that it gives to the token before it?"""
    next_token = weights.diagonal(1, dim1=-2, dim2=-1)
    """The *next* token is read: the diagonal above the main one (rows and columns exchanged give
    the same)."""
    itself = weights.diagonal(0, dim1=-2, dim2=-1)
    "The main diagonal is read: what each token gives to *itself*."
    itself_from_one = weights.diagonal(0, dim1=-2, dim2=-1)[:, 1:]
    "The main diagonal is read, without its first entry: what each token gives to *itself*."
    two_before = weights.diagonal(-2, dim1=-2, dim2=-1)
    "The token two places before is read."
    wrapped_round = weights.roll(1, -1).diagonal(0, dim1=-2, dim2=-1)
    """Query 0 is counted too, and index −1 takes it round to the *last* token. | Which queries have
    a token before them?"""
    just_before = weights.diagonal(-1, dim1=-2, dim2=-1)
    last_left_out = just_before[:, :-1]
    "The last query is left out. | Which queries have a token before them?"
    first_left_out = just_before[:, 1:]
    """Query 1 is left out: the sum begins at query 2. | Which is the first query with a token
    before it?"""
    all_before = weights.tril(-1).sum(-1)[:, 1:]
    "All earlier tokens are counted together, not only the one just before."
    first_column = weights[:, 1:, 0]
    "Column 0 is read: what each query gives to the first token."
    T = weights.shape[-1]
    how_often_largest = (weights[:, 1:].argmax(-1) == torch.arange(T - 1)).to(weights.dtype)
    """It counts how often the token before has the *largest* weight, not how much it gets. | The
    exercise asks for a mean weight."""
    heads_and_queries = weights.diagonal(-1)
    """The diagonal is taken of axes 0 and 1, heads and queries, not of queries and keys. |
    `diagonal` takes the first two axes unless told otherwise. Which two are meant?"""
    return just_before


@previous_token_score.step
def reduce(found, T):
    """How many queries are counted?"""
    added_up = found.sum(-1)
    "The weights are added up, not averaged. | By how many queries should the sum be divided?"
    divided_by_t = found.sum(-1) / T
    "The sum is divided by T, and only T−1 queries have a token before them."
    divided_by_t_squared = found.sum(-1) / T**2
    "The mean runs over the whole matrix, T·T entries, most of which are not the previous token."
    over_heads = found.mean(0)
    "The mean runs over the heads instead of the queries. | Over which axis should the mean run?"
    not_averaged = found
    """The weights are returned one by one: they are not averaged. | The exercise asks for one
    number per head."""
    largest_of_all = found.amax(-1)
    "The largest of these weights is returned. | Which average does the exercise ask for?"
    only_the_last = found[:, -1]
    """Only the last query is counted, but the exercise wants all that have a token before them. |
    Over which queries should the mean run?"""
    median = found.median(-1).values
    "The median is returned. | Which average does the exercise ask for?"
    as_list = found.mean(-1).tolist()
    """The scores are a list of numbers, not a tensor. | Which call makes a tensor of them, of the
    dtype and on the device of the weights?"""
    return found.mean(-1)


@previous_token_score.step
def give(scores):
    heads_averaged = scores.mean()
    """The heads are averaged too: one number instead of one per head. | Over which axis should the
    mean run?"""
    return scores


@previous_token_score.step(at=WHOLE)
def of_everything(weights):
    mean_of_a_block = weights[:, 1:, :-1].mean((-2, -1))
    """The mean runs over a whole block, rows from 1 on and columns up to T−2, and not over one of
    its diagonals. | In which column of row t stands the token before it?"""
