"""causal_mask (7): right in many styles, and wrong."""

import torch

EXERCISE = "causal_mask"


def loops(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(i + 1, T):
            m[i, j] = True
    return m


def with_indices(T):
    mask = torch.zeros((T, T), dtype=torch.bool)
    rows, columns = torch.triu_indices(T, T, offset=1)
    mask[rows, columns] = True
    return mask


def of_the_package(T):
    from mha_lesson import causal_mask

    return causal_mask(T)
