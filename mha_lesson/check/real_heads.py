"""Exercise 13, notebook 08: how much a head looks at the previous token."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import normal, strided


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


def just_before(weights: Tensor) -> Tensor:
    """(h, T-1): what query t gives to key t-1."""
    return weights.diagonal(-1, dim1=-2, dim2=-1)


def mean_over_queries(found: Tensor, T: int) -> Any:
    return found.mean(-1)


@exercise(13, "08", cases=weights_of_heads, gradient=None, gives=("scores (n_heads,)",))
def previous_token_score(
    weights: Tensor, *, pick: Any = just_before, reduce: Any = mean_over_queries
) -> Any:
    """Mean over t of weights[:, t, t - 1]."""
    return reduce(pick(weights), weights.shape[-1])


CELL = "Row t is query t. In which column stands the weight that it gives to the token before it?"


@previous_token_score.slip(
    "pick",
    "The *next* token is read: the diagonal above the main one (rows and columns exchanged come to "
    "the same).",
    CELL,
)
def next_token(weights: Tensor) -> Tensor:
    return weights.diagonal(1, dim1=-2, dim2=-1)


@previous_token_score.slip(
    "pick",
    "The main diagonal is read: what each token gives to *itself*.",
    CELL,
)
def itself(weights: Tensor) -> Tensor:
    return weights.diagonal(0, dim1=-2, dim2=-1)


@previous_token_score.slip(
    "pick",
    "The main diagonal is read, without its first entry: what each token gives to *itself*.",
    CELL,
)
def itself_from_one(weights: Tensor) -> Tensor:
    return itself(weights)[:, 1:]


@previous_token_score.slip(
    "pick",
    "The main diagonal is read, without its last entry: what each token gives to *itself*.",
    CELL,
)
def itself_but_last(weights: Tensor) -> Tensor:
    return itself(weights)[:, :-1]


@previous_token_score.slip(
    "pick",
    "The token two places before is read.",
    CELL,
)
def two_before(weights: Tensor) -> Tensor:
    return weights.diagonal(-2, dim1=-2, dim2=-1)


@previous_token_score.slip(
    "pick",
    "Query 0 is counted too, and index −1 takes it round to the *last* token.",
    "Which queries have a token before them?",
)
def wrapped_round(weights: Tensor) -> Tensor:
    return weights.roll(1, -1).diagonal(0, dim1=-2, dim2=-1)


@previous_token_score.slip(
    "pick",
    "The next token is read, and the last query goes round to token 0.",
    CELL,
)
def next_wrapped_round(weights: Tensor) -> Tensor:
    return weights.roll(-1, -1).diagonal(0, dim1=-2, dim2=-1)


@previous_token_score.slip(
    "pick",
    "The last query is left out.",
    "Which queries have a token before them?",
)
def last_left_out(weights: Tensor) -> Tensor:
    return just_before(weights)[:, :-1]


@previous_token_score.slip(
    "pick",
    "Query 1 is left out: the sum begins at query 2.",
    "Which is the first query with a token before it?",
)
def first_left_out(weights: Tensor) -> Tensor:
    return just_before(weights)[:, 1:]


@previous_token_score.slip(
    "pick",
    "All earlier tokens are counted together, not only the one just before.",
    CELL,
)
def all_before(weights: Tensor) -> Tensor:
    return weights.tril(-1).sum(-1)[:, 1:]


@previous_token_score.slip(
    "pick",
    "All earlier tokens and the token itself are counted together.",
    CELL,
)
def all_up_to(weights: Tensor) -> Tensor:
    return weights.tril().sum(-1)[:, 1:]


@previous_token_score.slip(
    "pick",
    "Column 0 is read: what each query gives to the first token.",
    CELL,
)
def first_column(weights: Tensor) -> Tensor:
    return weights[:, 1:, 0]


@previous_token_score.slip(
    "pick",
    "Column T−1 is read: what each query gives to the last token.",
    CELL,
)
def last_column(weights: Tensor) -> Tensor:
    return weights[:, :, -1]


@previous_token_score.slip(
    "pick",
    "Only the last query is read.",
    "Which queries have a token before them?",
)
def last_query(weights: Tensor) -> Tensor:
    return just_before(weights)[:, -1:]


@previous_token_score.slip(
    "pick",
    "Only query 1 is read.",
    "Which queries have a token before them?",
)
def query_one(weights: Tensor) -> Tensor:
    return just_before(weights)[:, :1]


@previous_token_score.slip(
    "pick",
    "It counts how often the token before has the *largest* weight, and not how much it gets.",
    "The stub promises a mean weight.",
)
def how_often_largest(weights: Tensor) -> Tensor:
    T = weights.shape[-1]
    return (weights[:, 1:].argmax(-1) == torch.arange(T - 1)).to(weights.dtype)


@previous_token_score.slip(
    "pick",
    "It takes the largest weight of each query, wherever it lies.",
    CELL,
)
def largest_anywhere(weights: Tensor) -> Tensor:
    return weights[:, 1:].amax(-1)


@previous_token_score.slip(
    "pick",
    "The diagonal is taken of axes 0 and 1, of heads and queries, and not of queries and keys.",
    "`diagonal` takes the first two axes unless told otherwise. Which two are meant?",
)
def heads_and_queries(weights: Tensor) -> Tensor:
    return weights.diagonal(-1)


@previous_token_score.slip(
    "reduce",
    "The weights are added up and not averaged.",
    "By how many queries should the sum be divided?",
)
def added_up(found: Tensor, T: int) -> Any:
    return found.sum(-1)


@previous_token_score.slip(
    "reduce",
    "The sum is divided by T, and only T−1 queries have a token before them.",
    "How many queries are counted?",
)
def divided_by_t(found: Tensor, T: int) -> Any:
    return found.sum(-1) / T


@previous_token_score.slip(
    "reduce",
    "The mean runs over the whole matrix, T·T entries, most of which are not the previous token.",
    "How many queries are counted?",
)
def divided_by_t_squared(found: Tensor, T: int) -> Any:
    return found.sum(-1) / T**2


@previous_token_score.slip(
    "reduce",
    "The sum is divided by T·(T−1).",
    "How many queries are counted?",
)
def divided_by_pairs(found: Tensor, T: int) -> Any:
    return found.sum(-1) / (T * (T - 1))


@previous_token_score.slip(
    "reduce",
    "The heads are averaged too: one number instead of one per head.",
    "Over which axis should the mean run?",
)
def heads_averaged(found: Tensor, T: int) -> Any:
    return found.mean()


@previous_token_score.slip(
    "reduce",
    "The mean runs over the heads instead of the queries.",
    "Over which axis should the mean run?",
)
def over_heads(found: Tensor, T: int) -> Any:
    return found.mean(0)


@previous_token_score.slip(
    "reduce",
    "Everything is added up to one number.",
    "The stub promises one number per head.",
)
def one_sum(found: Tensor, T: int) -> Any:
    return found.sum()


@previous_token_score.slip(
    "reduce",
    "The weights come back one by one: they are not averaged.",
    "The stub promises one number per head.",
)
def not_averaged(found: Tensor, T: int) -> Any:
    return found


@previous_token_score.slip(
    "reduce", "The largest of them comes back.", "Which average does the stub promise?"
)
def largest_of_all(found: Tensor, T: int) -> Any:
    return found.amax(-1)


@previous_token_score.slip(
    "reduce", "The median comes back.", "Which average does the stub promise?"
)
def median_of_all(found: Tensor, T: int) -> Any:
    return found.median(-1).values


@previous_token_score.slip(
    "reduce",
    "The scores come as a list of numbers, not as a tensor.",
    "Which call makes a tensor of them, of the dtype and on the device of the weights?",
)
def as_list(found: Tensor, T: int) -> Any:
    return found.mean(-1).tolist()


@previous_token_score.slip(
    "reduce",
    "The scores have an axis too many, (n_heads, 1).",
    "Which `keepdim` or index leaves it there?",
)
def axis_kept(found: Tensor, T: int) -> Any:
    return found.mean(-1, keepdim=True)


@previous_token_score.slip(
    WHOLE,
    "The mean of the whole matrix comes back: as every row sums to 1, that is always 1/T.",
    CELL,
)
def mean_of_everything(weights: Tensor) -> Any:
    return weights.mean((-2, -1))
