"""merge_heads (6): right in many styles, and wrong."""

import torch

from answers import slips

EXERCISE = "merge_heads"


def by_writing(x):
    B, h, T, d = x.shape
    out = x.new_empty((B, T, h * d))
    for i in range(h):
        out[..., i * d : (i + 1) * d].copy_(x[:, i])
    return out


def merge_fill(x):
    B, h, T, d = x.shape
    out = x.new_empty(B, T, h, d)
    out[:] = x.transpose(1, 2)
    return out.view(B, T, -1)


@slips("not_permuted_back", "thrown_away")
def merge_not_kept(x):
    B, n_heads, T, d_k = x.shape
    y = x.contiguous()
    y.transpose(1, 2)
    return y.view(B, T, n_heads * d_k)


@slips("stays", "fixed_dtype")
def merge_overwriting(x):
    B, H, T, d = x.shape
    out = torch.zeros(B, T, H * d)
    for i in range(H):
        out[:, :, i : i + d] = x[:, i]
    return out
