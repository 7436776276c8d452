"""project_qkv (3): right in many styles, and wrong."""

import torch
from torch import nn

from answers import slips

EXERCISE = "project_qkv"


def a_real_layer(X, W):
    layer = nn.Linear(W.shape[1], W.shape[0], bias=False, device=X.device, dtype=X.dtype)
    layer.weight = nn.Parameter(W)
    return torch.tensor_split(layer(X), 3, dim=2)


def with_fresh_layers(X, W):
    outs = []
    for block in W.chunk(3):
        layer = nn.Linear(X.shape[-1], X.shape[-1], bias=False).to(X.device, X.dtype)
        with torch.no_grad():
            layer.weight.copy_(block)
        outs.append(layer(X))
    return outs


@slips("dealt_like_cards")
def published_fused_rows_by_head(X, W_qkv):
    B, T, d_model = X.shape
    fused = X @ W_qkv.T
    q, k, v = fused.view(B, T, d_model, 3).unbind(-1)
    return q, k, v
