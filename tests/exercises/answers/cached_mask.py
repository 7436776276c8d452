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


def last_rows_of_the_square(n_new, n_cached, window):
    n = n_new + n_cached
    d = torch.arange(n).view(-1, 1) - torch.arange(n)
    return ~((d >= 0) & (d < (window or n + 1)))[n_cached:]


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


def by_positions(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (key <= query - window)


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


def mask_band(n_new, n_cached, window):
    keep = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).tril(n_cached)
    if window is not None:
        keep = keep.triu(n_cached - window + 1)
    return keep.logical_not()


@slips("one_place")
def mask_and(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked & (query - key >= window)


@slips("error:none_used")
def cmask_none(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return (key > query) | (query - key >= window)


@slips("truth_of_a_tensor")
def mask_or(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return (d < 0) or (window is not None and d >= window)


@slips("itself_too", "window_ignored")
def cmask_own_no_window(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    return torch.arange(n_cached + n_new) >= q


@slips("ends_there")
def a_table_of_1024(n_new, n_cached, window):
    n = n_cached + n_new
    i = torch.arange(1024)
    m = i > i[:, None]
    if window is not None:
        m = m | (i[:, None] - i >= window)
    return m[n_cached:n, :n]
