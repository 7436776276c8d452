"""split_heads (5): right in many styles, and wrong."""

import torch

EXERCISE = "split_heads"


def assigned(x, n_heads):
    B, T, D = x.shape
    out = x.new_empty(B, n_heads, T, D // n_heads)
    for c in range(D):
        out[:, c // out.shape[-1], :, c % out.shape[-1]] = x[:, :, c]
    return out


def entry_for_entry(x, n_heads):
    B, T, D = x.shape
    d_k = D // n_heads
    out = torch.empty(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for h in range(n_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out
