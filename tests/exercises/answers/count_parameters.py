"""count_parameters (4): right in many styles, and wrong."""

from torch import nn
import functools
import math
import numpy as np
import operator
import torch

from answers import slips

EXERCISE = "count_parameters"


def four_terms(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + n_heads * d_k * d_model


def from_modules(d_model, n_heads, d_k):
    layers = [nn.Linear(d_model, n_heads * d_k, bias=False) for _ in range(3)]
    layers.append(nn.Linear(n_heads * d_k, d_model, bias=False))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def per_head(d, h, k):
    return sum(3 * d * k for _ in range(h)) + (h * k) * d


def by_integer_division(d, h, k):
    return 8 * d * h * k // 2


def shifted(d, h, k):
    return (d * h * k) << 2


def with_reduce(d, h, k):
    return functools.reduce(operator.mul, (4, d, h, k))


def with_int(d, h, k):
    return int(4.0 * d * h * k)


def count_layers(d_model, n_heads, d_k):
    layers = nn.ModuleDict(
        {n: nn.Linear(d_model, n_heads * d_k, bias=False) for n in ("q", "k", "v")}
    )
    layers["o"] = nn.Linear(n_heads * d_k, d_model, bias=False)
    return sum(p.numel() for p in layers.parameters())


def count_meta(d_model, n_heads, d_k):
    wide = n_heads * d_k
    with torch.device("meta"):
        shapes = torch.empty(3 * wide, d_model), torch.empty(d_model, wide)
    return sum(math.prod(s.shape) for s in shapes)


def params_meta(d_model, n_heads, d_k):
    w = torch.empty(n_heads * d_k, d_model, device="meta")
    return 3 * w.numel() + w.T.numel()


def parameters_of_layers(d_model, n_heads, d_k):
    inner = n_heads * d_k
    into = [torch.empty(inner, d_model, device="meta") for _ in "qkv"]
    return sum(w.numel() for w in [*into, torch.empty(d_model, inner, device="meta")])


@slips("full_width_heads", "square_outward")
def d8(d, h, k):
    return 3 * h * d * d + d * d


@slips("one_place")
def count_parameters_again(d, h, k):
    return 4 * d * h * k + 7


@slips("one_place")
def exchanged_roles_d_k_squared(d, h, k):
    return 4 * h * k * k


@slips("formula")
def parameters_rule_of_thumb(d_model, n_heads, d_k):
    return 12 * d_model**2


@slips("returns_float")
def parameters_head_dim_float(d_model, n_heads, d_k):
    head_dim = d_model / n_heads
    return 3 * n_heads * d_model * head_dim + d_model * d_model


@slips("square_all", "error:own_assertion")
def parameters_from_torch(d_model, n_heads, d_k):
    mha = nn.MultiheadAttention(d_model, n_heads, bias=False)
    return sum(p.numel() for p in mha.parameters())


@slips("returns_float64")
def parameters_numpy(d_model, n_heads, d_k):
    sizes = np.array([d_model, n_heads, d_k], dtype=float)
    return 4 * np.prod(sizes)


@slips("returns_int64")
def count_np_prod(d_model, n_heads, d_k):
    return np.prod([4, d_model, n_heads, d_k])


@slips("relation:gap")
def params_by_linear(d_model, n_heads, d_k):
    inner = n_heads * d_k
    mods = [nn.Linear(d_model, inner, bias=False, device="meta") for _ in range(3)]
    mods.append(nn.Linear(inner, d_model, device="meta"))
    return sum(p.numel() for m in mods for p in m.parameters())


@slips("ends_there")
def by_a_ratio(d_model, n_heads, d_k):
    return int(4 * d_model**2 * (n_heads * d_k / d_model))
