"""What takes many runs of the model that writes: `python data/make_experiments.py` keeps it.

`measured` reads what an experiment gave; each is a function of the opened model (`opened`), with
its texts, prompts and draws by seeds. Losses are means over tokens, one for each text.
"""

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mha_course.collection.opened import (
    FIRST,
    Change,
    Mask,
    Rounding,
    as_they_are,
    attentions,
    by_dimension,
    by_token,
    changed,
    future,
    loss,
    pages,
    silenced,
    window,
)
from mha_lesson.smollm import N_HEADS, N_LAYERS, N_WORDS, SmolLM
from mha_lesson.text import data_file

FILE = "experiments.json"
N_PAGE = 256  # tokens of a page here
N_SHORT = 192  # where many runs are needed
Head = tuple[int, int]  # layer, head
HEADS = [(layer, head) for layer in range(N_LAYERS) for head in range(N_HEADS)]


def measured(name: str) -> Any:
    """What the experiment of this name gave, with four figures."""
    return _stored()[name]


@cache
def _stored() -> dict[str, Any]:
    return json.loads(data_file(FILE).read_text(encoding="utf-8"))


def _weights(model: SmolLM) -> Float[Tensor, "n_layers B h T T"]:
    return torch.stack([attention.weights for attention in attentions(model)])


# ---------------------------------------------------------------- heads that copy

N_ROW = 64  # random pieces, and then the same again


def rows_twice(seeds: Sequence[int]) -> Int[Tensor, "B 128"]:
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        rows.append(torch.randint(0, N_WORDS, (N_ROW,), generator=generator))
    return torch.stack(rows).repeat(1, 2)


@torch.no_grad()
def copy_scores(model: SmolLM, seeds: Sequence[int]) -> Float[Tensor, "B n_layers h"]:
    """The mean weight that the second row gives to the piece behind the earlier copy."""
    changed(model, Change())(rows_twice(seeds))
    later, behind = torch.arange(N_ROW, 2 * N_ROW - 1), torch.arange(1, N_ROW)
    return _weights(model)[..., later, behind].mean(dim=-1).transpose(0, 1)


@torch.no_grad()
def without(model: SmolLM, heads: Sequence[Head]) -> list[Any]:
    """With these silenced: loss of nine rows' repetition, of a page, of a page's repetition."""
    changed(model, silenced(heads))
    rows, page = rows_twice(range(3, 12)), pages(model, (10,), 192)
    repeated = page[:, :96].repeat(1, 2)
    again = loss(model, rows, N_ROW + 1).tolist()
    return [again, loss(model, page, 32).item(), loss(model, repeated, 97).item()]


def copying(model: SmolLM) -> dict[str, Any]:
    """The heads that copy most on three rows, silenced on nine others; beside them others."""
    scores = copy_scores(model, (0, 1, 2))
    later = torch.arange(1, 2 * N_ROW)
    back = _weights(model)[..., later, later - 1].mean(dim=(1, 3)).flatten()  # to the piece before
    partner = HEADS[int(back.argmax())]
    best = [HEADS[i] for i in scores.mean(dim=0).flatten().topk(20).indices.tolist()]
    rest = [head for head in HEADS if head not in best]
    matched = []  # as many in the same layers
    for seed in range(7):
        draw, some = random.Random(seed), []
        for layer, _ in best[:10]:
            some.append(draw.choice([h for h in rest if h[0] == layer and h not in some]))
        matched.append(without(model, some))
    anywhere = [without(model, random.Random(seed).sample(rest, 5)) for seed in range(7)]
    return {
        "scores": scores.tolist(),
        "best": best,
        "none": without(model, []),
        "silenced": {n: without(model, best[:n]) for n in (3, 5, 10, 20)},
        "matched": matched,
        "anywhere": anywhere,
        "before": [partner, back.max().item(), without(model, [partner])],
    }


# ---------------------------------------------------------------- the first token


def begins_blocked(n_first: int) -> Mask:
    """The first tokens of a text are blocked for all that come after them."""

    def blocked(n: int) -> Tensor:
        mask = future(n)
        mask[n_first:, :n_first] = True
        return mask

    return blocked


def sinks(model: SmolLM) -> dict[str, Any]:
    """Where weight rests, who takes it when the first is blocked, and what a window loses."""
    ids = pages(model, range(3), N_PAGE)

    def looked_at(blocked: Mask) -> list[list[float]]:
        """Losses; of the piece looked at most in layers 12 on its share, and its place."""
        losses = loss(changed(model, Change(blocked)), ids)
        most = _weights(model)[12:, :, :, FIRST:].mean(dim=(0, 2, 3)).max(dim=-1)  # of (B, T)
        return [x.tolist() for x in (losses, most.values, most.indices)]

    whole = looked_at(future)[0]
    first = _weights(model)[:, :, :, FIRST:, 0]
    layers, heads = first.mean(dim=(1, 2, 3)).tolist(), first.mean(dim=(1, 3))
    kept = ((32, None), (32, 0), (64, None), (64, 0), (64, 1), (64, 2))
    windows = {
        f"{width} {one}": loss(changed(model, Change(window(width, one))), ids).tolist()
        for width, one in kept
    }
    return {
        "whole": whole,
        "first by layer": layers,
        "heads over half": int((heads > 0.5).sum()),
        "blocked": {n: looked_at(begins_blocked(n)) for n in (1, 2, 4, 8)},
        "windows": windows,
        "anew": anew(model, ids),
    }


@torch.no_grad()
def anew(model: SmolLM, ids: Int[Tensor, "B T"], width: int = 64) -> list[list[float]]:
    """Loss at six tokens of each text: of the 64 before it alone, and of all before it."""
    changed(model, Change())
    at, alone, whole = list(range(80, N_PAGE, 33)), [], []
    scores = model(ids)
    for row, of_row in zip(ids, scores, strict=True):
        last = model(torch.stack([row[t - width : t] for t in at]))[:, -1]
        alone.append(F.cross_entropy(last, row[at]).item())
        whole.append(F.cross_entropy(of_row[[t - 1 for t in at]], row[at]).item())
    return [alone, whole]


# ---------------------------------------------------------------- a cache in few bits


@torch.no_grad()
def caches(model: SmolLM) -> dict[str, Any]:
    """Keys and values rounded: the loss, and how often another piece is the likeliest."""
    ids = pages(model, range(3), N_SHORT)

    def page_losses(rounding: Rounding) -> tuple[list[float], Tensor]:
        scores = changed(model, Change(rounded=rounding))(ids)[:, FIRST - 1 : -1]
        losses = F.cross_entropy(scores.mT, ids[:, FIRST:], reduction="none")
        return losses.mean(dim=1).tolist(), scores.argmax(dim=-1)

    none, choices = page_losses(as_they_are)
    found: dict[str, Any] = {"none": none}
    for bits, way in product((8, 4, 2), (by_token, by_dimension)):
        losses, others = page_losses(way(bits))
        other = (others != choices).float().mean(dim=1).tolist()
        found[f"{bits} {way.__name__}"] = [losses, other]
    return found


# ---------------------------------------------------------------- where a fact comes from

NEAR = """The capital of France is|Paris
The capital of Japan is|Tokyo
The capital of Italy is|Rome
The capital of Egypt is|Cairo
The capital of Spain is|Madrid
The capital of Germany is|Berlin
The capital of Greece is|Athens
The capital of Russia is|Moscow
The currency of Japan is called the|yen
The opposite of hot is|cold
The opposite of black is|white
The largest planet of the solar system is|Jupiter
People who live in France speak|French
People who live in Spain speak|Spanish
People who live in Germany speak|German
The author of Hamlet is William|Shakespeare
The Eiffel Tower stands in the city of|Paris
The Colosseum stands in the city of|Rome
A baby cat is called a|kitten
A baby dog is called a|puppy
The color of grass is|green
Water freezes at zero degrees|Celsius
The first president of the United States was George|Washington
Bees make|honey"""
FAR = """As we know, France has a capital, and its name is|Paris
As we know, Japan has a capital, and its name is|Tokyo
As we know, Italy has a capital, and its name is|Rome
As we know, Germany has a capital, and its name is|Berlin
As we know, Greece has a capital, and its name is|Athens
As we know, Russia has a capital, and its name is|Moscow
When you visit France, the language that people speak there is|French
When you visit Japan, the language that people speak there is|Japanese
When you visit Italy, the language that people speak there is|Italian
When you visit Germany, the language that people speak there is|German
When you visit Greece, the language that people speak there is|Greek
When you visit Russia, the language that people speak there is|Russian
A young dog is what most people would call a|puppy
A young cat is what most people would call a|kitten
One says that grass has a color, and that color is|green
One says that snow has a color, and that color is|white
If it is not hot, then it must be|cold
If it is not black, then it must be|white"""
LATE = range(20, N_LAYERS)  # the run of layers in which a word is cut


@torch.no_grad()
def fact(model: SmolLM, prompt: str, answer: str) -> dict[str, Any]:
    """What the last piece takes from each before it, and what the answer loses without that.

    Both in the last ten layers, all heads: the mean weight, and log p less log p of the cut.
    """
    ids, wanted = model.encode(prompt), int(model.encode(f" {answer}")[0, 0])
    n = ids.shape[1] - 1
    whole = changed(model, Change())(ids)[0, -1].log_softmax(dim=-1)[wanted]
    weights = _weights(model)[LATE.start :, 0, :, -1, :-1].mean(dim=(0, 1))

    def one_cut_each(T: int) -> Tensor:
        mask = future(T).expand(n, 1, T, T).clone()
        mask[range(n), 0, -1, range(n)] = True
        return mask

    changed(model, [Change(one_cut_each) if i in LATE else Change() for i in range(N_LAYERS)])
    cut = model(ids.expand(n, -1))[:, -1].log_softmax(dim=-1)[:, wanted]
    return {
        "pieces": model.pieces(ids[0]),
        "p": whole.exp().item(),
        "weights": weights.tolist(),
        "lost": (whole - cut).tolist(),
    }


def facts(model: SmolLM) -> dict[str, Any]:
    """Of the prompts those whose answer has a chance of 1 in 20 at least."""
    found: dict[str, Any] = {}
    for name, prompts in (("near", NEAR), ("far", FAR)):
        some = [fact(model, *line.split("|")) for line in prompts.splitlines()]
        found[name] = [one for one in some if one["p"] >= 0.05]
    return found


# ---------------------------------------------------------------- how many heads can go

N_STEP = 27  # a tenth of all heads


def least(model: SmolLM, gone: Sequence[Head], ids: Int[Tensor, "B T"]) -> list[Head]:
    """The next tenth to go: those on which the loss, by its gradient's size, hangs least.

    The size is the mean over the pages, as a share of its layer's.
    Source: Michel et al. (2019), Are Sixteen Heads Really Better than One?, section 4.1.
    """
    gains = torch.ones(N_LAYERS, N_HEADS)
    for at in gone:
        gains[at] = 0.0
    kept = gains.clone()
    changed(model, [Change(gain=gain) for gain in gains.requires_grad_()])
    losses = (loss(model, page[None]).mean() for page in ids)
    slopes = torch.stack([torch.autograd.grad(one, gains)[0] for one in losses])
    needed = F.normalize(slopes.abs().mean(dim=0) * kept, dim=-1)
    needed[kept == 0] = torch.inf
    return [HEADS[i] for i in needed.flatten().argsort()[:N_STEP].tolist()]


def going(model: SmolLM) -> dict[str, Any]:
    """The loss of three pages as heads go: chosen on eight others, and a tenth drawn."""
    chosen_on, ids = pages(model, range(20, 28), N_SHORT), pages(model, range(3), N_SHORT)
    gone: list[Head] = []
    curve = [loss(changed(model, Change()), ids).tolist()]
    for _ in range(5):
        gone += least(model, gone, chosen_on)
        curve.append(loss(changed(model, silenced(gone)), ids).tolist())
    drawn = []
    for seed in range(7):
        some = random.Random(seed).sample(HEADS, N_STEP)
        drawn.append(loss(changed(model, silenced(some)), ids).tolist())
    return {"order": gone, "chosen": curve, "drawn": drawn}


# ---------------------------------------------------------------- a head of keys and values


def shared(model: SmolLM) -> dict[str, Any]:
    """In one layer at a time: the three query heads over one head of keys and values silenced, and
    three of which each has another.
    """
    ids = pages(model, (0,), N_SHORT)
    found = {"none": loss(changed(model, Change()), ids).item(), "group": [], "one of each": []}
    for layer in range(1, N_LAYERS, 4):
        for name, some in (("group", (3, 4, 5)), ("one of each", (0, 4, 8))):
            heads = [(layer, head) for head in some]
            found[name].append(loss(changed(model, silenced(heads)), ids).item())
    return found


EXPERIMENTS: dict[str, Callable[[SmolLM], Any]] = {
    "copying": copying,
    "sinks": sinks,
    "caches": caches,
    "facts": facts,
    "going": going,
    "shared": shared,
}
