"""causal_mask (7): right in many styles, and wrong."""

from torch import nn
import numpy as np
import torch

from answers import slips

EXERCISE = "causal_mask"


def triu_one(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def compare(T):
    i = torch.arange(T)
    return i[None, :] > i[:, None]


def loops(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(i + 1, T):
            m[i, j] = True
    return m


def cumulative(n):
    return torch.eye(n).cumsum(1).roll(1, 1).bool() & torch.ones(n, n).triu(1).bool()


def from_lists(T):
    return torch.tensor([[False] * (i + 1) + [True] * (T - i - 1) for i in range(T)])


def triu_of_ones(T):
    return torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)


def not_tril_3(T):
    return ~torch.tril(torch.ones((T, T))).bool()


def from_infinities(T):
    return torch.full((T, T), float("-inf")).triu(1) == float("-inf")


def with_indices(T):
    mask = torch.zeros((T, T), dtype=torch.bool)
    rows, columns = torch.triu_indices(T, T, offset=1)
    mask[rows, columns] = True
    return mask


def with_cumsum(T):
    return torch.eye(T).cumsum(0).logical_not()


def of_the_package(T):
    from mha_lesson import causal_mask

    return causal_mask(T)


def from_the_transformer(T):
    return nn.Transformer.generate_square_subsequent_mask(T).isinf()


def causal_by_cumsum(T):
    return ~torch.eye(T).cumsum(dim=1).T.bool()


def causal_sub_buffer(T):
    i = torch.arange(T)
    return (i.unsqueeze(1) - i.unsqueeze(0)).lt(0)


def causal_cumsum(T):
    eye = torch.from_numpy(np.eye(T, dtype=np.int64))
    return (eye.cumsum(dim=1) - eye).bool()


def causal_cumulative(T):
    return torch.eye(T).cumsum(dim=1).sub(torch.eye(T)).bool()


@slips("one_place")
def causal_extra_key(T):
    return torch.arange(T + 1)[None, :] > torch.arange(T)[:, None]


@slips("one_place")
def causal_keep_next(T):
    return torch.ones(T, T).tril(1) == 1


@slips("keep_mask", "as_floats")
def floats_and_keeps(T):
    return torch.tril(torch.ones(T, T))


@slips("error:no_such_attribute")
def expects_a_tensor(x):
    T = x.shape[1]
    return torch.ones(T, T).triu(1).bool()


@slips("shape")
def causal_cut(T):
    return torch.ones(4, 4, dtype=torch.bool).triu(1)[:T, :T]


@slips("thrown_away")
def causal_not_kept(T):
    mask = torch.ones(T, T, dtype=torch.bool)
    mask.triu(diagonal=1)
    return mask


@slips("ends_there")
def causal_table(T):
    max_len = 32
    table = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), diagonal=1)
    return table[:T, :T]
