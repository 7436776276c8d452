"""cache_bytes (22): right in many styles, and wrong."""

import torch

EXERCISE = "cache_bytes"


def by_tensors(T, h, d, full, near, w, size):
    def held(n):
        return torch.empty(2, h, n, d, device="meta").numel()

    return size * (full * held(T) + near * held(min(w, T)))
