"""previous_token_score (13): right in many styles, and wrong."""

import numpy as np
import torch

from answers import slips

EXERCISE = "previous_token_score"


def offset_diagonal(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


def indexed(weights):
    i = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, i, i - 1].mean(dim=1)


def looped(weights):
    h, T, _ = weights.shape
    return torch.stack([sum(weights[k, t, t - 1] for t in range(1, T)) / (T - 1) for k in range(h)])


def by_trace(weights):
    return torch.einsum("hii->h", weights[:, 1:, :-1]) / (weights.shape[1] - 1)


def by_shifted_eye(w):
    T = w.size(-1)
    eye = torch.ones(T - 1, dtype=w.dtype, device=w.device).diag(-1)
    return (w * eye).sum((1, 2)).div(T - 1)


def with_a_shifted_identity(weights):
    T = weights.shape[-1]
    where = torch.diag_embed(torch.ones(T - 1), offset=-1).to(weights)
    return (weights * where).sum((-2, -1)) / (T - 1)


def with_diag_of_each(weights):
    return torch.stack([torch.diag(w, -1).mean() for w in weights])


def with_gathering(weights):
    T = weights.size(-1)
    index = torch.arange(T - 1, device=weights.device).view(1, -1, 1).expand(len(weights), -1, 1)
    return weights[:, 1:].gather(-1, index).squeeze(-1).mean(-1)


def previous_flat(weights):
    h, T, _ = weights.shape
    return weights.flatten(1)[:, T :: T + 1].mean(-1)


def previous_masked_sum(weights):
    T = weights.shape[-1]
    below = torch.eye(T, device=weights.device, dtype=weights.dtype).roll(1, 0)
    below[0] = 0
    return (weights * below).sum(dim=(1, 2)) / (T - 1)


def previous_trace_2(weights):
    T = weights.size(-1)
    return torch.stack([head[1:, :-1].trace() / (T - 1) for head in weights])


@slips("two_before", "added_up")
def v3_two_back(weights):
    return weights.diagonal(-2, 1, 2).sum(-1)


@slips("fixed_device")
def a_fresh_tensor_on_the(weights):
    return torch.tensor([float(a.diagonal(-1).mean()) for a in weights], dtype=weights.dtype)


@slips("two_before", "error:list_of_tensors")
def two_before(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 2] for t in range(2, T)]).mean(0)


@slips("stays")
def previous_smallest(weights):
    return weights.diagonal(-1, -2, -1).amin(-1)


@slips("one_place")
def previous_keepdim_of_input(input):
    return input.diagonal(-1, -2, -1).mean(-1, keepdim=True)


@slips("fixed_dtype")
def previous_items(weights):
    h, T, _ = weights.shape
    scores = []
    for n in range(h):
        scores.append(np.mean([weights[n, t, t - 1].item() for t in range(1, T)]))
    return torch.tensor([float(s) for s in scores])
