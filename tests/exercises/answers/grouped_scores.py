"""grouped_scores (18): right in many styles, and wrong."""

import math

import einops
import torch
from einops import rearrange

from answers import slips

EXERCISE = "grouped_scores"


def groups_as_an_axis(q, k):
    q = rearrange(q, "b (kv g) t d -> b kv g t d", kv=k.shape[1])
    scores = einops.einsum(q, k, "b kv g q d, b kv k d -> b kv g q k") / math.sqrt(q.shape[-1])
    return rearrange(scores, "b kv g q k -> b (kv g) q k")


def grouped_interpolated(q, k):
    h = q.shape[1]
    index = torch.arange(h, device=q.device) * k.shape[1] // h
    return torch.einsum("bhqd,bhkd->bhqk", q, k[:, index]) / math.sqrt(q.shape[-1])


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
