"""padding_mask (8): right in many styles, and wrong."""

from einops import rearrange
from torch.func import vmap
import einops
import numpy as np
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "padding_mask"


def arange_compare(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


def comparing_a_sum(lengths, T):
    ones = torch.ones(len(lengths), 1, 1, T, device=lengths.device, dtype=torch.int64)
    return ones.cumsum(-1) > lengths.reshape(-1, 1, 1, 1)


def arange_and_compare(lengths, T):
    return (torch.arange(T, device=lengths.device)[None, :] >= lengths[:, None])[:, None, None, :]


def by_loop(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths.tolist()):
        mask[b, :, :, n:] = True
    return mask


def with_scatter(lengths, T):
    positions = torch.arange(T, dtype=lengths.dtype, device=lengths.device)
    return einops.rearrange(positions.ge(lengths.unsqueeze(-1)), "b t -> b 1 1 t")


def from_python(lengths, T):
    rows = [[[[t >= n for t in range(T)]]] for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool, device=lengths.device)


def with_expand(lengths, T):
    index = torch.ones_like(lengths)[:, None].expand(-1, T).cumsum(1) - 1
    return index.ge(lengths[:, None])[:, None, None]


def of_the_package_too(lengths, T):
    from mha_lesson import padding_mask

    return padding_mask(lengths, T)


def padding_searching(lengths, T):
    pos = torch.arange(T, device=lengths.device).reshape(1, 1, 1, T)
    return torch.logical_not(torch.lt(pos, lengths.reshape(-1, 1, 1, 1)))


def padding_scatter(lengths, T):
    at = torch.zeros(lengths.shape[0], T + 1, dtype=torch.int64, device=lengths.device)
    at = at.scatter(1, lengths.long()[:, None], 1).cumsum(1)[:, :T]
    return at.bool()[:, None, None, :]


def padding_in_place(lengths, T):
    lengths -= 1
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, None, :]


def padding_not_real(lengths, T):
    real = torch.arange(1, T + 1, device=lengths.device) <= lengths.reshape(-1, 1, 1, 1)
    real.logical_not_()
    return real


def padding_by_vmap(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return vmap(lambda n: positions >= n)(lengths)[:, None, None]


def padding_by_zeros_and_ones(lengths, T):
    rows = [torch.cat([n.new_zeros(int(n)), n.new_ones(T - int(n))]) for n in lengths]
    return torch.stack(rows)[:, None, None].bool()


def by_numpy_and_back(lengths, T):
    n = lengths.numpy(force=True)
    return torch.from_numpy(np.arange(T) >= n[:, None]).to(lengths.device)[:, None, None]


def like_the_lengths(lengths, T):
    p = lengths.new_tensor(torch.arange(T))
    return torch.ge(p, lengths.unsqueeze(-1)).unflatten(0, (-1, 1, 1))


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


def padding_cumulative_2(lengths, T):
    ones = torch.ones(len(lengths), T, dtype=torch.int64, device=lengths.device)
    return (ones.cumsum(dim=1) > lengths.unsqueeze(1)).view(-1, 1, 1, T)


def padding_not_less(lengths, T):
    real = torch.arange(T).to(lengths.device).expand(len(lengths), T) < lengths.reshape(-1, 1)
    return rearrange(~real, "b t -> b 1 1 t")


@slips("error:target_dtype")
def one_hot_cumsum(lengths, T):
    return F.one_hot(lengths, T + 1).cumsum(-1)[:, :T].bool()[:, None, None]


@slips("tokens_marked", "no_axes_for_heads")
def keeps_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device)[None] < lengths[:, None]


@slips("not_bool")
def padding_extended(lengths, T):
    keep = torch.arange(T, device=lengths.device) < lengths[:, None]
    return (1.0 - keep[:, None, None, :].float()) * torch.finfo(torch.float32).min


@slips("one_place")
def padding_clamped(lengths, T):
    lengths = lengths.clamp(min=1)
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@slips("one_place")
def padding_counts(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= (T - lengths)[:, None])[:, None, None, :]


lengths = torch.tensor([6, 4, 1])


@slips("from_the_notebook")
def padding_notebook_lengths(sizes, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None, :]


@slips("as_wide_as_longest", "error:error_RuntimeError")
def padding_longest(lengths, T):
    n = int(lengths.max())
    return (torch.arange(n) >= lengths[:, None]).view(-1, 1, 1, n)


@slips("ends_there")
def padding_none(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = (positions >= lengths[:, None])[:, None, None, :]
    return mask if mask.any() else None
