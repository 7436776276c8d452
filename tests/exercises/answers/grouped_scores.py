"""grouped_scores (18): right in many styles, and wrong."""

from einops import rearrange
from einops import repeat
import einops
import math
import torch

from answers import slips

EXERCISE = "grouped_scores"


def by_groups(q, k):
    qg = rearrange(q, "b (g n) t d -> b g (n t) d", g=k.shape[1])
    return rearrange(qg @ k.mT / q.shape[-1] ** 0.5, "b g (n t) k -> b (g n) t k", t=q.shape[2])


def by_expand(q, k):
    B, g, T, d = k.shape
    k = k[:, :, None].expand(B, g, q.shape[1] // g, T, d).flatten(1, 2)
    return torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(d))


def by_lookup(q, k):
    n = q.size(1) // k.size(1)
    return torch.stack([q[:, i] @ k[:, i // n].mT for i in range(q.size(1))], 1) * q.size(3) ** -0.5


def repeated_on_the_spot(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


def groups_as_an_axis(q, k):
    q = rearrange(q, "b (kv g) t d -> b kv g t d", kv=k.shape[1])
    scores = einops.einsum(q, k, "b kv g q d, b kv k d -> b kv g q k") / math.sqrt(q.shape[-1])
    return rearrange(scores, "b kv g q k -> b (kv g) q k")


def repeated_by_einops(q, k):
    k = repeat(k, "b kv t d -> b (kv g) t d", g=q.shape[1] // k.shape[1])
    return torch.einsum("bhqd,bhkd->bhqk", q, k) * k.shape[-1] ** -0.5


def grouped_by_index(q, k):
    of_head = [i * k.shape[1] // q.shape[1] for i in range(q.shape[1])]
    return q.matmul(k[:, of_head].mT).div(math.sqrt(k.shape[-1]))


def grouped_loop(q, k):
    group = q.shape[1] // k.shape[1]
    rows = [q[:, i] @ k[:, i // group].transpose(1, 2) for i in range(q.shape[1])]
    return torch.stack(rows, dim=1) / math.sqrt(q.shape[-1])


def grouped_einsum(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return torch.einsum("bgrqd,bgkd->bgrqk", q * q.shape[-1] ** -0.5, k).flatten(1, 2)


def grouped_fold(q, k):
    B, h, T, d = q.shape
    folded = q.reshape(B, k.shape[1], -1, d)
    return (folded @ k.transpose(-2, -1)).view(B, h, T, k.shape[2]) / math.sqrt(d)


def grouped_interpolated(q, k):
    h = q.shape[1]
    index = torch.arange(h, device=q.device) * k.shape[1] // h
    return torch.einsum("bhqd,bhkd->bhqk", q, k[:, index]) / math.sqrt(q.shape[-1])


def grouped_by_views(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return (q @ k.unsqueeze(2).mT / math.sqrt(q.shape[-1])).flatten(1, 2)


@slips("error:broadcast_shapes")
def grouped_not_repeated(q, k):
    scores = q @ k.transpose(-2, -1)
    return scores / math.sqrt(q.shape[-1])


@slips("by_number_of_groups", "error:index_out_of_range")
def grouped_wrong_divisor(q, k):
    i = torch.arange(q.shape[1], device=q.device) // k.shape[1]
    return q @ k[:, i].mT * q.shape[-1] ** -0.5


@slips("one_place")
def grouped_reversed(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).flip(1)
    return q @ k.mT / q.shape[-1] ** 0.5


@slips("one_place")
def grouped_reversed_2(q, k):
    k = k.flip(1).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


@slips("error:einsum_letters")
def repeat_kv_bthd(q, k):
    n_rep = max(q.shape[2] // k.shape[2], 1)
    k = k.repeat_interleave(n_rep, dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])


@slips("stays")
def g3_loop(q, k):
    n = q.shape[1] // k.shape[1]
    parts = []
    for g in range(k.shape[1]):
        parts.append(q[:, g : g + n] @ k[:, g : g + 1].mT)
    return torch.cat(parts, dim=1) / math.sqrt(q.shape[-1])


@slips("error:axis_out_of_range")
def grouped_flat(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1])
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@slips("no_scale", "mean_of_all")
def grouped_mean_unscaled(q, k):
    return q @ k.mean(dim=1, keepdim=True).transpose(-2, -1)


@slips("error:sizes_of_pieces")
def grouped_repeat_args(q, k):
    n = q.shape[1] // k.shape[1]
    k = k.repeat(n, 1)
    return q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])


@slips("thrown_away")
def grouped_not_kept(q, k):
    k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@slips("ends_there")
def grouped_linspace(q, k):
    index = torch.linspace(0, k.size(1) - 1, q.size(1), device=k.device).round().long()
    return q @ k[:, index].transpose(-2, -1) * q.size(-1) ** -0.5
