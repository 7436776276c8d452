"""Two published models written out, with weights of theirs cut, to compare with."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lesson import rotate


def zeroed(weights: Tensor, cuts, number: int) -> None:
    """Sets cut weights (h, T_q, T_k) of this layer to zero; None stands for all."""
    for layer, *places in cuts:
        if layer == number:
            weights[tuple(slice(None) if i is None else i for i in places)] = 0


@torch.no_grad()
def moved_by_hand(model, text: str, cuts, rescaled: bool = False) -> Tensor:
    """Shares (T,) by which the encoder's last vectors move; a cut is (layer, head, query, key)."""
    encoder, ids = model.encoder, torch.tensor([model.tokenizer.encode(text).ids])
    last = []
    for chosen in ((), cuts):
        x = encoder.embed(ids)
        for number, layer in enumerate(encoder.layers):
            rows = layer.attention.w_qkv(x)[0].view(-1, 3, 12, 32)
            q, k, v = rows.permute(1, 2, 0, 3)
            weights = (q @ k.mT / math.sqrt(32)).softmax(dim=-1)
            zeroed(weights, chosen, number)
            if rescaled:
                weights = weights / weights.sum(dim=-1, keepdim=True)
            context = (weights @ v).transpose(0, 1).flatten(1)[None]
            x = layer.norm_1(x + layer.attention.w_o(context))
            x = layer.norm_2(x + layer.narrow(F.gelu(layer.widen(x))))
        last.append(x[0])
    whole, without = last
    return (without - whole).norm(dim=-1) / whole.norm(dim=-1)


@torch.no_grad()
def scores_by_hand(model, ids, cuts=(), first: int = -1) -> tuple[Tensor, Tensor]:
    """The writer's scores (T, n_words), and the last row's weights (n_layers, h, T) as they were.

    A cut is (layer, head, key), of the rows from `first` on.
    """
    T = len(ids)
    x, weights = model.words[torch.tensor(ids)], []
    for number, layer in enumerate(model.layers):
        rows = layer.attention.w_qkv(layer.norm_1(x)).view(T, 15, 64).transpose(0, 1)
        q, k = (rotate(part, torch.arange(T), 100_000.0) for part in (rows[:9], rows[9:12]))
        k, v = (part.repeat_interleave(3, dim=0) for part in (k, rows[12:]))
        scores = (q @ k.mT / math.sqrt(64)).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        seen = scores.softmax(-1)
        weights.append(seen[:, -1].clone())
        zeroed(seen, [(of, head, slice(first, None), key) for of, head, key in cuts], number)
        x = x + layer.attention.w_o((seen @ v).transpose(0, 1).flatten(1))
        y = layer.norm_2(x)
        x = x + layer.down(F.silu(layer.gate(y)) * layer.up(y))
    return model.norm(x) @ model.words.T, torch.stack(weights)
