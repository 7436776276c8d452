"""cache_bytes (22): right in many styles, and wrong."""

import torch

EXERCISE = "cache_bytes"


def in_one_line(n_tokens, n_kv_heads, d_k, n_global, n_local, window, bytes_per_number):
    rows = n_global * n_tokens + n_local * min(n_tokens, window)
    return 2 * n_kv_heads * d_k * rows * bytes_per_number


def by_tensors(T, h, d, full, near, w, size):
    def held(n):
        return torch.empty(2, h, n, d, device="meta").numel()

    return size * (full * held(T) + near * held(min(w, T)))
