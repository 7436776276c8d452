"""sum_of_head_writes (10): right in many styles, and wrong."""

import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "sum_of_head_writes"


def accumulated(heads, W_o):
    B, h, T, d = heads.shape
    out = heads.new_zeros(B, T, len(W_o))
    for i, head in enumerate(heads.unbind(1)):
        out += F.linear(head, W_o.narrow(1, i * d, d))
    return out


def a_loop(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype, device=heads.device)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


def with_padding_instead_of_slabs(heads, W_o):
    B, h, T, d = heads.shape
    out = None
    for i in range(h):
        wide = F.pad(heads[:, i], (i * d, (h - 1 - i) * d))
        write = F.linear(wide, W_o)
        out = write if out is None else out + write
    return out


def writes_backwards(heads, W_o):
    d_k, h = heads.shape[-1], heads.shape[1]
    out = None
    for i in reversed(range(h)):
        write = F.linear(heads[:, i], W_o[:, d_k * i :][:, :d_k])
        out = write if out is None else write.add_(out)
    return out


@slips("fixed_dtype")
def writes_float32(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros((B, T, W_o.shape[0]))
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@slips("error:broadcast_shapes")
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    out = 0
    for i in range(heads.shape[1]):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k, :d_k].T
    return out


@slips(
    "stays",
    "When position 0 along n_heads of `heads` changes, position 4 along d_model of your result stays "
    "as it is, but it should change.",
)
def writes_own_part(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    rows = torch.arange(W_o.shape[0], device=heads.device).chunk(h)
    for i, r in enumerate(rows):
        out[..., r] = heads[:, i] @ W_o[r, i * d_k : (i + 1) * d_k].T
    return out


@slips("in half precision or")
def writes_zeros_cpu(heads, W_o):
    B, n, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(n):
        out = out + F.linear(heads[:, i], W_o[:, i * d : (i + 1) * d])
    return out
