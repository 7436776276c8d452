"""Multi-head attention once more, to compare with: float64, NumPy, one query after the other.

Nothing here is shared with the package: no batched product, no axis is ever moved, no softmax but
the one written out, and W^O is applied as a sum of one slab per head.
"""

import numpy as np
import torch
from torch import Tensor


def float64(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


def blocked_cells(mask: Tensor | None, causal: bool, sizes: tuple[int, ...]) -> np.ndarray:
    """bool (B, h, T_q, T_k): the cells that a mask of 2, 3 or 4 axes and `causal` block."""
    blocked = np.zeros(sizes, dtype=bool)
    if mask is not None:
        cells = mask.cpu().numpy()
        for b, i, q, k in np.ndindex(*sizes):
            place = {2: (q, k), 3: (b, q, k), 4: (b, i, q, k)}[cells.ndim]
            # An axis of size 1 stands for all.
            place = tuple(0 if n == 1 else p for p, n in zip(place, cells.shape, strict=True))
            blocked[b, i, q, k] = cells[place]
    if causal:
        for b, i, q, k in np.ndindex(*sizes):
            blocked[b, i, q, k] |= k > q
    return blocked


def one_head(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, blocked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Context (T_q, d_v) and weights (T_q, T_k) of one head in one sequence."""
    weights = np.zeros(blocked.shape)
    for q, row in enumerate(query):
        allowed = [k for k in range(len(key)) if not blocked[q, k]]
        if allowed:
            scores = np.array([sum(row * key[k]) for k in allowed]) / len(row) ** 0.5
            exponentials = np.exp(scores - scores.max())
            weights[q, allowed] = exponentials / exponentials.sum()
    return weights @ value, weights


def attention(query: Tensor, key: Tensor, value: Tensor, mask=None, causal=False):
    """`scaled_dot_product_attention` for inputs of four axes, (B, h, T, d)."""
    q, k, v = float64(query), float64(key), float64(value)
    blocked = blocked_cells(mask, causal, (*q.shape[:3], k.shape[2]))
    context, weights = np.zeros((*q.shape[:3], v.shape[3])), np.zeros(blocked.shape)
    for b, i in np.ndindex(*q.shape[:2]):
        context[b, i], weights[b, i] = one_head(q[b, i], k[b, i], v[b, i], blocked[b, i])
    return torch.from_numpy(context), torch.from_numpy(weights)


def multi_head(mha, query: Tensor, key: Tensor, value: Tensor, mask=None, causal=False):
    """Output (B, T_q, d_model) and weights (B, h, T_q, T_k) of a module, from its parameters."""
    h, d_k = mha.n_heads, mha.d_k
    w_q, w_k, w_v = np.split(float64(mha.w_qkv.weight), 3)  # rows: all of q, then k, then v
    w_o = float64(mha.w_o.weight)
    b_q, b_k, b_v, b_o = np.zeros(h * d_k), np.zeros(h * d_k), np.zeros(h * d_k), 0.0
    if mha.w_o.bias is not None:
        b_q, b_k, b_v = np.split(float64(mha.w_qkv.bias), 3)
        b_o = float64(mha.w_o.bias)
    blocked = blocked_cells(mask, causal, (len(query), h, query.shape[1], key.shape[1]))
    output, weights = np.zeros(tuple(query.shape)) + b_o, np.zeros(blocked.shape)
    for b in range(len(query)):
        x_q, x_k, x_v = float64(query[b]), float64(key[b]), float64(value[b])
        for i in range(h):
            rows = slice(i * d_k, (i + 1) * d_k)  # head i: its rows of W^Q, its columns of W^O
            context, weights[b, i] = one_head(
                x_q @ w_q[rows].T + b_q[rows],
                x_k @ w_k[rows].T + b_k[rows],
                x_v @ w_v[rows].T + b_v[rows],
                blocked[b, i],
            )
            output[b] += context @ w_o[:, rows].T
    return torch.from_numpy(output), torch.from_numpy(weights)
