"""The weights of the explicit core: few passes over the scores, in every dtype and under autocast.

Behind `attention`, which holds the formula; nothing here changes what comes out.
"""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool
) -> Float[Tensor, "*batch T_q T_k"]:
    """softmax(Q Kᵀ / √d_k), with as few passes over the T_q × T_k scores as can be."""
    dtype = query.dtype
    if dtype == torch.float16:  # ends at 65,504, which a score may exceed
        query, key = query.float(), key.float()
    with _no_cast_to_float16(query):
        if causal:
            scores = _causal_scores(query, key)
        else:
            scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    if mask is not None:
        # As masked_fill(mask, -inf), of finite scores, but added: five times as fast.
        # In place: 0.7 of the time, but fails under torch.func.vmap over masks alone.
        bias = torch.zeros_like(mask, dtype=scores.dtype)
        scores += bias.masked_fill_(mask, -math.inf)
    weights = scores.softmax(dim=-1)  # of bfloat16: in float32 inside, and rounded once
    return weights if weights.dtype == dtype else weights.to(dtype)


def _no_cast_to_float16(query: Tensor) -> AbstractContextManager[object]:
    """Switches off autocast to float16, which ends at 65,504; not to bfloat16, which goes on."""
    where = query.device.type
    cast = where != "meta" and torch.is_autocast_enabled(where)
    if cast and torch.get_autocast_dtype(where) == torch.float16:
        return torch.autocast(where, enabled=False)
    return nullcontext()


def _causal_scores(query: Tensor, key: Tensor) -> Float[Tensor, "*batch T T"]:
    """Q Kᵀ / √d_k, and −∞ above the diagonal: one product that scales and adds."""
    *batch, T, d_k = query.shape
    n = math.prod(batch)  # baddbmm wants one axis for all the B·h products
    q, k = query.reshape(n, T, d_k), key.reshape(n, T, d_k)
    future = query.new_full((T, T), -math.inf).triu_(diagonal=1)  # 0 up to the diagonal
    return torch.baddbmm(future, q, k.mT, alpha=1 / math.sqrt(d_k)).view(*batch, T, T)


def fit_axes(mask: Bool[Tensor, "..."], n_axes: int) -> Bool[Tensor, "..."]:
    """A mask per sequence, in as many axes as the scores have."""
    if mask.ndim == 3 and n_axes == 4:
        return mask.unsqueeze(1)  # (B, T_q, T_k) -> (B, 1, T_q, T_k): every head alike
    while mask.ndim > n_axes:
        mask = mask.squeeze(-3)  # no head axis, or no batch axis, to stand for
    return mask
