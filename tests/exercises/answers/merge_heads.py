"""merge_heads (6): right in many styles, and wrong."""

import einops
import functools
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "merge_heads"


def transpose_reshape(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


def contiguous_view(x):
    b, h, t, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, t, -1)


def flatten_moved(x):
    return x.movedim(1, 2).flatten(start_dim=2)


def hstack_all(x):
    return torch.stack([torch.hstack(list(one)) for one in x])


def by_fold(x):
    return functools.reduce(lambda a, b: torch.concat((a, b), -1), x.swapaxes(0, 1))


def permute_and_reshape(x):
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, h * d_k)


def merged_by_einops(x):
    return einops.rearrange(x, "b h t d -> b t (h d)")


def with_einops_reduce(x):
    return einops.pack([head for head in x.unbind(1)], "b t *")[0]


def by_writing(x):
    B, h, T, d = x.shape
    out = x.new_empty((B, T, h * d))
    for i in range(h):
        out[..., i * d : (i + 1) * d].copy_(x[:, i])
    return out


def merge_cat_features(x):
    return torch.cat([head.squeeze(1) for head in x.split(1, dim=1)], dim=2)


def merge_empty(x):
    B, h, T, d = x.shape
    return torch.movedim(x, 1, 2).flatten(start_dim=-2)


def merge_fill(x):
    B, h, T, d = x.shape
    out = x.new_empty(B, T, h, d)
    out[:] = x.transpose(1, 2)
    return out.view(B, T, -1)


def merge_hstack(x):
    return torch.dstack(list(x.swapaxes(0, 1)))


def merge_in_place(x):
    x.transpose_(1, 2)
    return x.flatten(2)


def merge_features_first(x):
    return x.mT.flatten(1, 2).mT


@slips("one_place")
def merge_group_norm(x):
    return F.layer_norm(x, x.shape[-1:]).transpose(1, 2).flatten(2)


@slips("stays")
def memory_assumed(x):
    B, h, T, d = x.shape
    return x.as_strided((B, T, h * d), (T * h * d, h * d, 1))


@slips("not_permuted_back", "an_axis_left")
def m3_two(x):
    B, h, T, d = x.shape
    return x.reshape(B, T, 1, h * d)


@slips("last_head_only")
def each_overwrites(x):
    for i in range(x.shape[1]):
        out = x[:, i]
    return out


@slips("error:axes_to_name")
def an_axis_too_many(x):
    return x.permute(0, 2, 1, 3, 4).flatten(2)


@slips("changes_too")
def adds_the_heads_and_repeats(x):
    return x.sum(1).repeat(1, 1, x.shape[1])


@slips("not_permuted_back", "thrown_away")
def merge_not_kept(x):
    B, n_heads, T, d_k = x.shape
    y = x.contiguous()
    y.transpose(1, 2)
    return y.view(B, T, n_heads * d_k)


@slips("error:list_of_tensors")
def merge_cat_tensor(x):
    heads = x.transpose(0, 1)
    return torch.cat(heads, dim=-1)


@slips("stays", "fixed_dtype")
def merge_overwriting(x):
    B, H, T, d = x.shape
    out = torch.zeros(B, T, H * d)
    for i in range(H):
        out[:, :, i : i + d] = x[:, i]
    return out


@slips("not_permuted_back", "error:shape_for_view")
def merge_one_sentence(x):
    _, h, T, d_k = x.shape
    return x.contiguous().view(1, T, h * d_k)
