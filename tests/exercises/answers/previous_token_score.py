"""previous_token_score (13): right in many styles, and wrong."""

import numpy as np
import torch

from answers import slips

EXERCISE = "previous_token_score"


def with_gathering(weights):
    T = weights.size(-1)
    index = torch.arange(T - 1, device=weights.device).view(1, -1, 1).expand(len(weights), -1, 1)
    return weights[:, 1:].gather(-1, index).squeeze(-1).mean(-1)


def previous_masked_sum(weights):
    T = weights.shape[-1]
    below = torch.eye(T, device=weights.device, dtype=weights.dtype).roll(1, 0)
    below[0] = 0
    return (weights * below).sum(dim=(1, 2)) / (T - 1)


@slips("fixed_dtype")
def previous_items(weights):
    h, T, _ = weights.shape
    scores = []
    for n in range(h):
        scores.append(np.mean([weights[n, t, t - 1].item() for t in range(1, T)]))
    return torch.tensor([float(s) for s in scores])
