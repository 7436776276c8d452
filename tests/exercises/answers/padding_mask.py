"""padding_mask (8): right in many styles, and wrong."""

import torch
from torch.func import vmap

from answers import slips

EXERCISE = "padding_mask"


def by_loop(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths.tolist()):
        mask[b, :, :, n:] = True
    return mask


def of_the_package_too(lengths, T):
    from mha_lesson import padding_mask

    return padding_mask(lengths, T)


def padding_scatter(lengths, T):
    at = torch.zeros(lengths.shape[0], T + 1, dtype=torch.int64, device=lengths.device)
    at = at.scatter(1, lengths.long()[:, None], 1).cumsum(1)[:, :T]
    return at.bool()[:, None, None, :]


def padding_by_vmap(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return vmap(lambda n: positions >= n)(lengths)[:, None, None]


def expanded_first_and_moved_then(lengths, T):
    m = torch.zeros(len(lengths), T, dtype=torch.bool, device=lengths.device)
    p = torch.arange(T).expand_as(m).to(lengths.device)
    return (p >= lengths.unsqueeze(1)).view(-1, 1, 1, T)


def with_a_default_device(lengths, T):
    before = torch.get_default_device()
    torch.set_default_device(lengths.device)
    try:
        return (torch.arange(T) >= lengths[:, None])[:, None, None]
    finally:
        torch.set_default_device(before)


lengths = torch.tensor([6, 4, 1])


@slips("from_the_notebook")
def padding_notebook_lengths(sizes, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None, :]
