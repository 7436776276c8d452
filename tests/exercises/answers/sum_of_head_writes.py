"""sum_of_head_writes (10): right in many styles, and wrong."""

from einops import rearrange
import einops
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "sum_of_head_writes"


def loop_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h))


def einsum_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,ohd->bto", heads, W_o.reshape(-1, h, d))


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


def stacked_sum(heads, W_o):
    slabs = torch.stack(W_o.chunk(heads.shape[1], dim=1))
    return (heads @ slabs.mT).sum(dim=1)


def linear_per_head(heads, W_o):
    parts = zip(heads.unbind(1), W_o.split(heads.shape[-1], dim=1), strict=True)
    return sum(F.linear(x, w) for x, w in parts)


def with_tensordot(heads, W_o):
    B, h, T, d = heads.shape
    return torch.tensordot(heads, W_o.view(-1, h, d), dims=([1, 3], [1, 2]))


def with_padding_instead_of_slabs(heads, W_o):
    B, h, T, d = heads.shape
    out = None
    for i in range(h):
        wide = F.pad(heads[:, i], (i * d, (h - 1 - i) * d))
        write = F.linear(wide, W_o)
        out = write if out is None else out + write
    return out


def writes_concat(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).contiguous().view(B, T, h * d) @ W_o.t()


def writes_einsum(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return torch.einsum("bhtd,mhd->btm", heads, W_o.unflatten(1, (h, d)))


def writes_matmul(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    slabs = W_o.T.reshape(h, d, W_o.shape[0])
    return torch.matmul(heads, slabs).sum(dim=1)


def writes_backwards(heads, W_o):
    d_k, h = heads.shape[-1], heads.shape[1]
    out = None
    for i in reversed(range(h)):
        write = F.linear(heads[:, i], W_o[:, d_k * i :][:, :d_k])
        out = write if out is None else write.add_(out)
    return out


def writes_reduce(heads, W_o):
    blocks = einops.rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return einops.reduce(heads @ blocks, "b h t m -> b t m", "sum")


def writes_broadcast(heads, W_o):
    W = rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return sum((heads @ W).unbind(1))


def writes_plain(heads, W_o):
    return F.linear(heads.transpose(1, 2).flatten(2), W_o)


@slips("fixed_dtype")
def writes_float32(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros((B, T, W_o.shape[0]))
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@slips("error:view_needs_contiguous")
def view_of_what_is_transposed(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).view(B, T, h * d) @ W_o.T


@slips("fixed_device")
def a_buffer_on_the_cpu(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@slips("one_place")
def adds_w_o_s_mean(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o.T + W_o.mean()


@slips("one_place")
def writes_max(heads, W_o):
    W = W_o.unflatten(1, (heads.shape[1], -1))
    return torch.einsum("bhtk,mhk->bhtm", heads, W).amax(dim=1)


@slips("error:broadcast_shapes")
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    out = 0
    for i in range(heads.shape[1]):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k, :d_k].T
    return out


@slips("first_slab_for_all", "averaged")
def writes_first_mean(heads, W_o):
    return heads.mean(dim=1) @ W_o[:, : heads.shape[-1]].T


@slips("stays")
def writes_own_part(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    rows = torch.arange(W_o.shape[0], device=heads.device).chunk(h)
    for i, r in enumerate(rows):
        out[..., r] = heads[:, i] @ W_o[r, i * d_k : (i + 1) * d_k].T
    return out


@slips("fixed_dtype", "fixed_device")
def writes_zeros_cpu(heads, W_o):
    B, n, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(n):
        out = out + F.linear(heads[:, i], W_o[:, i * d : (i + 1) * d])
    return out
