"""silence: right in many styles, and wrong."""

import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "silence"


def by_factor(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device).ne(i).to(heads.dtype)
    return torch.einsum("bhtd,h->bhtd", heads, keep)


def by_index_fill(heads, i):
    return heads.index_fill(1, torch.tensor([i], device=heads.device), 0.0)


def cloned(heads, i):
    out = heads.clone()
    out[:, i] = 0
    return out


def by_a_mask(heads, i):
    keep = torch.ones(heads.shape[1], dtype=heads.dtype, device=heads.device)
    keep[i] = 0
    return heads * keep[:, None, None]


def joined_anew(heads, i):
    return torch.cat([heads[:, :i], torch.zeros_like(heads[:, i : i + 1]), heads[:, i + 1 :]], 1)


def silence_by_onehot(heads, i):
    keep = 1 - F.one_hot(torch.tensor(i, device=heads.device), heads.shape[1])
    return heads * keep.to(heads.dtype)[:, None, None]


def silence_stack(heads, i):
    parts = list(heads.unbind(dim=1))
    parts[i] = torch.zeros_like(parts[i])
    return torch.stack(parts, dim=1)


def silence_where(heads, i):
    hit = torch.arange(heads.shape[1], device=heads.device).view(1, -1, 1, 1) == i
    return torch.where(hit, torch.zeros_like(heads), heads)


def silence_scatter(heads, i):
    return torch.select_scatter(heads, torch.zeros_like(heads[:, i]), 1, i)


def silence_where_2(heads, i):
    here = torch.arange(heads.shape[1], device=heads.device).view(-1, 1, 1) == i
    return torch.where(here, 0.0, heads)


@slips("writes_into_input")
def in_place_zero(heads, i):
    heads[:, i] = 0
    return heads


@slips("no_gradient", "writes_into_input")
def detach_is_no_copy(heads, i):
    quiet = heads.detach()
    quiet[:, i].zero_()
    return quiet


@slips("one_place")
def silence_from_one(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i - 1
    return heads * keep[:, None, None]


@slips("one_place")
def silence_halved(heads, i):
    out = heads.clone()
    out[:, i] *= 0.5
    return out


@slips("sequence_silenced", "writes_into_input")
def q3_two(heads, i):
    heads[i % heads.shape[0]] = 0
    return heads


@slips("error:broadcast_shapes")
def q3_axis(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i
    return heads * keep


@slips("no_gradient")
def silence_detached(heads, i):
    quiet = heads.detach().clone()
    quiet[:, i] = 0
    return quiet


@slips("thrown_away")
def silence_thrown_away(heads, i):
    quiet = heads.clone()
    quiet.index_fill(1, torch.tensor([i], device=heads.device), 0)
    return quiet


@slips("token_silenced", "writes_into_input")
def silence_in_place_tokens(heads, i):
    heads[:, :, i] = 0
    return heads


@slips("stays")
def silence_two(heads, i):
    keep = torch.ones_like(heads)
    keep[:, :, i - 1] = 0
    return heads * keep


@slips("returns_ndarray")
def silence_numpy(heads, i):
    quiet = heads.numpy().copy()
    quiet[:, i] = 0
    return quiet


@slips("relation:moved_axes")
def silence_heads_first(heads, i):
    quiet = heads.swapaxes(0, 1).clone()
    quiet[i] = 0
    return quiet


@slips("not_at_all", "writes_into_input")
def silence_wrong_variable(heads, i):
    quiet = heads.clone()
    heads[:, i] = 0
    return quiet


@slips("one_place", "writes_into_input")
def silence_two_slips(heads, i):
    heads[:, i].mul_(0.1)
    return heads
