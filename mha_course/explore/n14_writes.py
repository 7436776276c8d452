"""Cut what a writing model's last token takes from a word, and read what it says instead."""

import json
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from mha_course.collection.opened import Change, changed, opened
from mha_course.pictures.live import Explorer, LiveView
from mha_course.pictures.panels import Scene
from mha_course.pictures.writes import Writes
from mha_lesson import smollm
from mha_lesson.refusals import require_text
from mha_lesson.rotation import rotate
from mha_lesson.smollm import BASE, N_HEADS, N_KV_HEADS, N_LAYERS, SmolLM
from mha_lesson.text import data_file
from mha_lesson.weights import WeightsMissing

D_K = smollm.D_MODEL // N_HEADS
LATE = range(20, 30)  # the layers in which a word is cut
OneCut = tuple[int | None, int | None, int | None]  # layer, head, key; None: all


class Prompt:
    """A prompt whose last token is run again with some of its weights cut.

    A cut sets a weight to 0 after the softmax; the rest of the row stays as it is. Only the last
    token's row is cut: what earlier tokens hand over is computed once, and a cut costs one token.

    Attributes:
        pieces: its T tokens as text, with the space before each.
        weights: (n_layers, h, T): what the last token takes.
    """

    @torch.no_grad()
    def __init__(self, model: SmolLM, text: str) -> None:
        self.model, [ids] = model, model.encode(text)
        self.pieces, T = model.pieces(ids), len(ids)
        self.keys, self.values, self.entering, weights = [], [], [], []
        x = model.words[ids]
        blocked = torch.ones(T, T, dtype=torch.bool).triu(1)
        for layer in model.layers:
            self.entering.append(x[-1])
            q, k, v = _heads(layer, x, torch.arange(T))  # (h, T, d_k)
            scores = (q @ k.mT / D_K**0.5).masked_fill(blocked, -torch.inf)
            row = scores.softmax(dim=-1)
            x = _after(layer, x, (row @ v).transpose(0, 1).flatten(1))
            self.keys.append(k[:, :-1])
            self.values.append(v[:, :-1])
            weights.append(row[:, -1])
        self.weights = torch.stack(weights)
        self.known = N_LAYERS - 1  # the last layer of which is known what enters

    def with_first(self, other: "Prompt") -> "Prompt":
        """The same, but in the late layers its first token hands over what the other's does."""
        twin = copy(self)
        twin.known = LATE[0]
        for name in ("keys", "values"):
            kept = [one.clone() for one in getattr(self, name)]
            for number in LATE:
                kept[number][:, 0] = getattr(other, name)[number][:, 0]
            setattr(twin, name, kept)
        return twin

    @torch.no_grad()
    def next(
        self, cuts: Sequence[Sequence[OneCut]], at_once: int = 256
    ) -> Float[Tensor, "n n_words"]:
        """The probabilities of the next piece; entry i is with all of cuts[i]."""
        first = [min((layer or 0 for layer, _, _ in some), default=N_LAYERS) for some in cuts]
        order = sorted(range(len(cuts)), key=first.__getitem__)  # those that begin late cost less
        found = torch.empty(len(cuts), smollm.N_WORDS)
        for start in range(0, len(cuts), at_once):
            some = order[start : start + at_once]
            kept = self._kept([cuts[i] for i in some])
            begin = min(first[some[0]], self.known)
            x = self.entering[begin].expand(len(some), -1)
            for number in range(begin, N_LAYERS):
                x, _ = self._layer(number, x, kept[number])
            found[some] = F.linear(self.model.norm(x), self.model.words).softmax(dim=-1)
        return found

    def _kept(self, cuts: Sequence[Sequence[OneCut]]) -> Float[Tensor, "n_layers n h T"]:
        kept = torch.ones(N_LAYERS, len(cuts), N_HEADS, len(self.pieces))
        for i, some in enumerate(cuts):
            for layer, *where in some:
                at = [slice(None) if one is None else one for one in (layer, *where)]
                kept[at[0], i, at[1], at[2]] = 0
        return kept

    def _layer(self, number: int, x: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The last token after a layer, for each cut (n, d_model); what it took (n, h, T)."""
        layer: Any = self.model.layers[number]
        q, k, v = _heads(layer, x, torch.full((len(x),), len(self.pieces) - 1))  # (h, n, d_k)
        before = torch.einsum("hnd,hkd->nhk", q, self.keys[number])
        own = torch.einsum("hnd,hnd->nh", q, k)[..., None]
        weights = (torch.cat((before, own), dim=-1) / D_K**0.5).softmax(dim=-1) * kept
        context = torch.einsum("nhk,hkd->nhd", weights[..., :-1], self.values[number])
        context = context + weights[..., -1:] * v.transpose(0, 1)
        return _after(layer, x, context.flatten(1)), weights


def _heads(layer: Any, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of tokens (T, d_model), each (h, T, d_k), keys for every head."""
    rows = layer.attention.w_qkv(layer.norm_1(x)).unflatten(-1, (-1, D_K)).transpose(0, 1)
    q, k, v = rows.split((N_HEADS, N_KV_HEADS, N_KV_HEADS))
    shared = N_HEADS // N_KV_HEADS
    q, k = (rotate(one, positions, BASE) for one in (q, k))
    return q, k.repeat_interleave(shared, 0), v.repeat_interleave(shared, 0)


def _after(layer: Any, x: Tensor, context: Tensor) -> Tensor:
    """Tokens after a layer whose heads have made these contexts."""
    x = x + layer.attention.w_o(context)
    y = layer.norm_2(x)
    return x + layer.down(F.silu(layer.gate(y)) * layer.up(y))


def writes(prompt: str | None = None) -> Explorer:
    """A prompt, what its last word takes, and what SmolLM2-135M says next without it.

    A press on a word, or on a ribbon of one head, cuts it. Eight prompts are stored with what a
    search found of them; others are asked of the model, where its weights are.

    Args:
        prompt: the text to begin with; the first of the stored ones if None.
    """
    texts = [*stored()]
    if prompt is not None:
        require_text(prompt=prompt)
    first = prompt if prompt in texts else texts[0]
    begin = "" if prompt in texts else prompt or ""
    explorer = Explorer(
        {
            "prompt": widgets.Dropdown(options=texts),
            "layer": widgets.IntSlider(max=N_LAYERS - 1),
            "head": widgets.IntSlider(max=N_HEADS - 1),
        },
        partial(scene, prompt=first, begin=begin),
    )
    explorer.view.on_msg(_answer)
    return explorer


def scene(prompt: str, layer: int = 23, head: int = 4, begin: str = "") -> Scene:
    """What is stored of a prompt; the browser chooses the head, and what is cut.

    Args:
        prompt: a stored one.
        layer, head: whose ribbons are seen in the browser, once one has asked for a head.
        begin: another prompt, which a picture with a kernel asks for first.
    """
    return _scene(prompt, begin)


@cache
def _scene(prompt: str, begin: str) -> Scene:
    about, arrays = stored()[prompt]
    panel = Writes(about, arrays, prompts=[*stored()], begin=begin)
    return Scene(panel, caption=panel.says())


@cache
def stored() -> dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """By text, what data/writes.safetensors holds: what JSON can write, and arrays."""
    found = {}
    with safe_open(data_file("writes.safetensors"), framework="pt") as file:
        for about in json.loads(file.metadata()["stories"]):
            names = ("weights", "ribbons", "heads", "layers", "golf", "swapped")
            arrays = {k: file.get_tensor(f"{about['name']} {k}").numpy() / 10_000 for k in names}
            arrays["weights"] = arrays["weights"].reshape(N_LAYERS, N_HEADS, -1)
            found[about["text"]] = about, arrays
    return found


def _answer(view: LiveView, asked: dict[str, Any], _buffers: Any) -> None:
    """Tells a picture of any prompt what model/writing.js would on a site, and of which turn."""
    turn = {"turn": asked.pop("turn")}
    try:
        for told in answers(**asked):
            view.send(turn | told)
    except (ValueError, WeightsMissing) as error:
        view.send(turn | {"kind": "error", "text": str(error)})


def answers(
    prompt: str,
    cuts: Sequence[OneCut] = (),
    write: int = 0,
    temperature: float = 0.0,
    seed: int = 0,
    survey: float | None = None,
) -> Iterator[dict[str, Any]]:
    """What a kernel tells of a prompt: its words, ribbons, next words, and what writing.js says."""
    model = _model()
    asked = Prompt(model, prompt)
    yield {"kind": "words", "words": asked.pieces}
    for layer, weights in enumerate(asked.weights):
        yield {"kind": "ribbons", "layer": layer, "weights": weights.flatten().tolist()}
    was, p = asked.next([[], [tuple(cut) for cut in cuts]])
    top = dict.fromkeys([*p.topk(10).indices.tolist(), *was.topk(10).indices.tolist()])
    words = model.pieces(torch.tensor([*top]))
    said = [
        {"word": w, "p": p[i].item(), "was": was[i].item()} for w, i in zip(words, top, strict=True)
    ]
    yield {"kind": "next", "words": said}
    hold = partial(_cut, cuts=cuts, first=len(asked.pieces) - 1)
    twin = changed(opened(model), [Change(after=partial(hold, layer)) for layer in range(N_LAYERS)])
    for piece in twin.write(prompt, write, temperature, seed, cached=False):
        yield {"kind": "written", "word": piece}
    if survey is not None:
        wide = [tuple(at) for at in (asked.weights >= survey).nonzero().tolist()]
        for at, p in zip(wide, asked.next([[at] for at in wide]), strict=True):
            [word] = model.pieces(p.argmax()[None])
            found = {"weight": asked.weights[at].item(), "p": p[was.argmax()].item()}
            yield {"kind": "one", "cut": at, "word": word, **found}
    yield {"kind": "done"}


def _cut(layer: int, weights: Tensor, cuts: Sequence[OneCut], first: int) -> Tensor:
    """A layer's weights (1, h, T, T), cut in all rows from the prompt's last on."""
    for number, *where in cuts:
        if number == layer:
            head, key = (slice(None) if i is None else i for i in where)
            weights[:, head, first:, key] = 0.0
    return weights


@cache
def _model() -> SmolLM:
    return smollm.load()
