"""cached_mask (19): right in many styles, and wrong."""

import torch

from answers import slips

EXERCISE = "cached_mask"


def triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    return (
        ones.triu(n_cached + 1)
        if window is None
        else ones.triu(n_cached + 1) | ones.tril(n_cached - window)
    )


def row_lists(n_new, n_cached, window):
    n = n_cached + n_new
    rows = []
    for at in range(n_cached, n):
        first = 0 if window is None else max(0, at - window + 1)
        rows.append([True] * first + [False] * (at - first + 1) + [True] * (n - at - 1))
    return torch.tensor(rows)


def rows_of_a_square(n_new, n_cached, window):
    n = n_cached + n_new
    blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
    if window is not None:
        blocked |= torch.ones(n, n, dtype=torch.bool).tril(-window)
    return blocked[n_cached:]


def cmask_cells(n_new, n_cached, window):
    mask = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        here = n_cached + i
        mask[i, here + 1 :] = True
        if window is not None:
            mask[i, : max(0, here - window + 1)] = True
    return mask


def mask_by_rolling(n_new, n_cached, window):
    n = n_cached + n_new
    band = torch.ones(n, n, dtype=torch.bool).tril()
    if window is not None:
        band = band & ~torch.ones(n, n, dtype=torch.bool).tril(-window)
    return torch.logical_not(band[n_cached:])


@slips("ends_there")
def a_table_of_1024(n_new, n_cached, window):
    n = n_cached + n_new
    i = torch.arange(1024)
    m = i > i[:, None]
    if window is not None:
        m = m | (i[:, None] - i >= window)
    return m[n_cached:n, :n]


@slips("one_too_wide")
def published_window_one_more(n_new, n_cached, window):
    distance = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance > window
    return mask


@slips("not_offset")
def published_causal_from_the_left(n_new, n_cached, window):
    distance = torch.arange(n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance >= window
    return mask


@slips("open_with_cache")
def published_prompt_unmasked(n_new, n_cached, window):
    distance = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance >= window
    return mask if n_cached == 0 else torch.zeros_like(mask)
