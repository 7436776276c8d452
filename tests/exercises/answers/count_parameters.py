"""count_parameters (4): right in many styles, and wrong."""

import functools
import math
import operator

import torch
from torch import nn

from answers import slips

EXERCISE = "count_parameters"


def from_modules(d_model, n_heads, d_k):
    layers = [nn.Linear(d_model, n_heads * d_k, bias=False) for _ in range(3)]
    layers.append(nn.Linear(n_heads * d_k, d_model, bias=False))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def with_reduce(d, h, k):
    return functools.reduce(operator.mul, (4, d, h, k))


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


def parameters_of_layers(d_model, n_heads, d_k):
    inner = n_heads * d_k
    into = [torch.empty(inner, d_model, device="meta") for _ in "qkv"]
    return sum(w.numel() for w in [*into, torch.empty(d_model, inner, device="meta")])


@slips("relation:gap")
def params_by_linear(d_model, n_heads, d_k):
    inner = n_heads * d_k
    mods = [nn.Linear(d_model, inner, bias=False, device="meta") for _ in range(3)]
    mods.append(nn.Linear(inner, d_model, device="meta"))
    return sum(p.numel() for m in mods for p in m.parameters())


@slips("biases_in")
def with_four_biases(d_model, n_heads, d_k):
    return 4 * (d_model * n_heads * d_k + d_model)


@slips("d_k_for_d_model")
def from_d_k_to_d_k(d_model, n_heads, d_k):
    return n_heads * sum(d_k * d_k for _ in "qkvo")
