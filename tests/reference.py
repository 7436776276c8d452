"""Multi-head attention once more, as slowly and plainly as it can be said: the tests' yardstick.

Loops over sequences, heads, queries and keys, in float64, on Python floats: nothing is shared with
the package but the meaning.
"""

import math

import torch
from torch import Tensor


def attend(query: Tensor, key: Tensor, value: Tensor, blocked: Tensor) -> tuple[Tensor, Tensor]:
    """One head of one sequence: (T_q, d_k), (T_k, d_k), (T_k, d_v), bool (T_q, T_k)."""
    context = torch.zeros(len(query), value.shape[1], dtype=torch.float64)
    weights = torch.zeros(len(query), len(key), dtype=torch.float64)
    for i in range(len(query)):
        open_keys = [j for j in range(len(key)) if not blocked[i, j]]
        scores = [
            sum(a * b for a, b in zip(query[i].tolist(), key[j].tolist(), strict=True))
            / math.sqrt(query.shape[1])
            for j in open_keys
        ]
        if not open_keys:
            continue
        top = max(scores)
        shares = [math.exp(score - top) for score in scores]
        for j, share in zip(open_keys, shares, strict=True):
            weights[i, j] = share / sum(shares)
            context[i] += weights[i, j] * value[j].double()
    return context, weights


def attend_all(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The same for (B, h, T, d) tensors and any mask of the package's convention."""
    B, h, t_q, _ = query.shape
    t_k = key.shape[2]
    blocked = full_mask(mask, B, h, t_q, t_k, causal)
    context = torch.zeros(B, h, t_q, value.shape[3], dtype=torch.float64)
    weights = torch.zeros(B, h, t_q, t_k, dtype=torch.float64)
    for b in range(B):
        for i in range(h):
            context[b, i], weights[b, i] = attend(
                query[b, i].double(), key[b, i].double(), value[b, i].double(), blocked[b, i]
            )
    return context, weights


def full_mask(
    mask: Tensor | None, B: int, h: int, t_q: int, t_k: int, causal: bool = False
) -> Tensor:
    """bool (B, h, T_q, T_k), written out entry by entry from 2, 3 or 4 axes."""
    blocked = torch.zeros(B, h, t_q, t_k, dtype=torch.bool)
    for b in range(B):
        for i in range(h):
            for q in range(t_q):
                for k in range(t_k):
                    stop = causal and k > q
                    if mask is not None and mask.ndim == 2:
                        stop = stop or bool(mask[q, k])
                    elif mask is not None and mask.ndim == 3:
                        stop = stop or bool(mask[b, q, k])
                    elif mask is not None:
                        at = [
                            0 if n == 1 else j
                            for n, j in zip(mask.shape, (b, i, q, k), strict=True)
                        ]
                        stop = stop or bool(mask[tuple(at)])
                    blocked[b, i, q, k] = stop
    return blocked


def multi_head(mha, query: Tensor, key: Tensor, value: Tensor, mask=None, causal: bool = False):
    """The paper's Concat(head_1 … head_h) W^O with h separate small matrices, cut from the module."""
    d_k, h = mha.d_k, mha.n_heads
    state = {name: tensor.double() for name, tensor in mha.state_dict().items()}
    weight = state["w_qkv.weight"]
    bias = state.get("w_qkv.bias", torch.zeros(len(weight), dtype=torch.float64))
    per_role = []
    for role, x in enumerate((query, key, value)):
        rows = range(role * h * d_k, (role + 1) * h * d_k)
        heads = [
            x.double() @ weight[rows[i * d_k : (i + 1) * d_k]].T + bias[rows[i * d_k : (i + 1) * d_k]]
            for i in range(h)
        ]
        per_role.append(torch.stack(heads, dim=1))
    context, weights = attend_all(*per_role, mask, causal)
    side_by_side = torch.cat([context[:, i] for i in range(h)], dim=-1)
    output = side_by_side @ state["w_o.weight"].T
    return output + state.get("w_o.bias", torch.zeros(1, dtype=torch.float64)), weights
