"""cache_bytes (22): right in many styles, and wrong."""

import torch

from answers import slips

EXERCISE = "cache_bytes"


def in_one_line(n_tokens, n_kv_heads, d_k, n_global, n_local, window, bytes_per_number):
    rows = n_global * n_tokens + n_local * min(n_tokens, window)
    return 2 * n_kv_heads * d_k * rows * bytes_per_number


def layer_by_layer(T, h, d, full, near, w, size):
    total = 0
    for _ in range(full):
        total += 2 * h * d * T * size
    for _ in range(near):
        total += 2 * h * d * (w if w < T else T) * size
    return total


def by_tensors(T, h, d, full, near, w, size):
    def held(n):
        return torch.empty(2, h, n, d, device="meta").numel()

    return size * (full * held(T) + near * held(min(w, T)))


def by_tokens(T, h, d, full, near, w, size):
    one = 2 * h * d * size
    return sum(one * (full + (near if T - t <= w else 0)) for t in range(T))


@slips("always_the_window")
def a_window_is_full(T, h, d, full, near, w, size):
    return 2 * h * d * size * (full * T + near * w)


@slips("always_the_window", "keys_only")
def a_full_window_of_keys(T, h, d, full, near, w, size):
    return h * d * size * (full * T + near * w)


@slips("as_float")
def with_a_division(T, h, d, full, near, w, size):
    return 4 * h * d * size * (full * T + near * min(T, w)) / 2


@slips("kinds_exchanged")
def the_kinds_exchanged(T, h, d, full, near, w, size):
    return 2 * h * d * size * (near * T + full * min(T, w))
