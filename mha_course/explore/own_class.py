"""A learner's own class in all layers of the published model, whole or broken in one place."""

import copy
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from mha_course.base.numerals import number
from mha_course.explore.n00_cut import MOST_TOKENS, begin_at, require_short, sentence_field
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene, Table, Words
from mha_lesson.attention import merge_heads, split_heads
from mha_lesson.masks import causal_mask
from mha_lesson.pretrained import PretrainedModel, WeightsMissing, load
from mha_lesson.text import LAYER, SENTENCE, data_file, sentence

N_HEADS, D_K, HEAD = 12, 32, 1
NAMES = ("w_q", "w_k", "w_v", "w_o")
SIX = (  # the first means what the sentence of the course means
    "A lively dog was about to leap across a chilly stream.",
    "The cold cat slept beside the warm creek.",
    "Dogs are not allowed to swim in the lake.",
    "She jumped over the fence to catch the bus.",
    "Stock prices fell sharply on Monday.",
    "The soup was cold and nobody wanted to eat it.",
)
Change = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Break:
    """One mistake, made around a class whose own lines still run.

    Attributes:
        scale: of the queries.
        rows: what becomes of the rows of Q, K and V, (B, T, h·d_k) each.
        values: what becomes of those of V, if of V's alone.
        contexts: what becomes of what W^O takes, (B, T, h·d_k).
        mask: what becomes of the mask (B, 1, 1, T).
        leaves: what a token can still take, where that explains what is seen.
    """

    scale: float = 1.0
    rows: Change = _same
    values: Change = _same
    contexts: Change = _same
    mask: Change = _same
    leaves: str = ""


def _without_head(contexts: Tensor) -> Tensor:
    kept = contexts.unflatten(-1, (N_HEADS, D_K)).clone()
    kept[..., HEAD, :] = 0
    return kept.flatten(-2)


def _without_value(number: int) -> Change:
    """A token of the first sentence of a batch hands nothing over."""

    def change(rows: Tensor) -> Tensor:
        kept = rows.clone()
        kept[0, number] = 0
        return kept

    return change


WHOLE = "as written"
BREAKS = {
    WHOLE: Break(),
    "without √d_k": Break(scale=D_K**0.5),
    "view, but no transpose": Break(rows=lambda x: merge_heads(x.view(len(x), N_HEADS, -1, D_K))),
    "merged without the transpose": Break(
        contexts=lambda x: split_heads(x, N_HEADS).reshape(x.shape)
    ),
    "heads in reverse order": Break(
        contexts=lambda x: x.unflatten(-1, (N_HEADS, D_K)).flip(-2).flatten(-2)
    ),
    "mask upside down": Break(
        mask=torch.logical_not,
        leaves="Only padding is seen: the longest sentence has none and takes nothing, "
        "the others take from theirs alone, and grow alike.",
    ),
    "causal, as a decoder": Break(mask=lambda mask: mask | causal_mask(mask.shape[-1])),
    "head 1 cut": Break(contexts=_without_head),
    "every head cut": Break(contexts=torch.zeros_like, leaves="No token hears of another."),
}
N_WORDS = 2000  # that a token is compared with: the commonest of the model's vocabulary


class _Wrapped(nn.Linear):
    """A published layer; something becomes of what comes in, or of what goes out."""

    def __init__(self, weight: Tensor, bias: Tensor, before: Change, after: Change) -> None:
        super().__init__(weight.shape[1], weight.shape[0], device="meta")
        self.weight, self.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        self.before, self.after = before, after

    def forward(self, input: Tensor) -> Tensor:
        return self.after(super().forward(self.before(input)))


class _Names(nn.Module):
    """Values that name their token: in every head the value of token j is 1 at place j."""

    def __init__(self, after: Change) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        return self.after(torch.eye(D_K)[:T].repeat(1, N_HEADS).expand(B, -1, -1))


class _InModel(nn.Module):
    """The learner's class where the model's own stood."""

    def __init__(self, own: nn.Module, change: Change) -> None:
        super().__init__()
        self.own, self.change = own, change

    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        return self.own(x, self.change(mask))


FITS = "Your class goes into a published model here, right or wrong, once its shapes fit.\n"


def in_model(
    kind: type[nn.Module], text: str = SENTENCE, *, label: str = "your class"
) -> Explorer | None:
    """The learner's class in all six layers of the published model, on a sentence to be typed.

    It may be wrong, as long as its shapes fit; otherwise a line says why not.

    Args:
        kind: the class of exercise 11, as far as it is written.
        text: the sentence to begin with.
        label: what the class is called.
    """
    if why := unfit(kind):
        print(why)
        return None
    return Explorer(
        {
            "text": sentence_field(text),
            "broken": widgets.RadioButtons(
                options=[*BREAKS], description=label, layout={"width": "auto"}
            ),
        },
        partial(scene, kind, label=label),
        reach={"text": lambda **_: [text]},
        headline="Put a mistake into the class, and see what the model still finds.",
    )


def unfit(kind: type[nn.Module]) -> str:
    """What keeps a class out of the model; empty where its shapes fit."""
    x = sentence().hidden.expand(2, -1, -1)
    mask = (torch.arange(x.shape[1]) >= torch.tensor([[x.shape[1]], [9]]))[:, None, None]
    try:
        made = _filled(kind, _stored(), BREAKS[WHOLE])(x, mask)
    except Exception as error:  # whatever a learner's lines raise
        return f"{FITS}So far it stops with {type(error).__name__}: {error}"
    if isinstance(made, Tensor) and made.shape == x.shape:
        return ""
    gives = "nothing" if made is None else f"a {type(made).__name__}"
    gives = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else gives
    return f"{FITS}So far it makes {gives} of x, {tuple(x.shape)}."


def scene(
    kind: type[nn.Module],
    text: str = SENTENCE,
    broken: str = WHOLE,
    *,
    label: str = "your class",
) -> Scene:
    """Ribbons that the class draws in layer 3, head 1, and which of six sentences it finds.

    Raises:
        ValueError: the sentence cannot be shown; it says why.
    """
    try:
        model = _model()
    except WeightsMissing as error:
        return _on_the_stored_layer(kind, broken, label, str(error))
    encoded = model.encode(text)
    tokens = encoded.labels
    require_short(len(tokens), MOST_TOKENS)
    yours, texts = placed(kind, model, BREAKS[broken]), [text, *SIX]
    named = f"{label[0].upper()}{label[1:]} in all six layers" + f", {broken}" * (broken != WHOLE)
    vectors = yours.sentence_vectors(texts)
    if vectors.isnan().any():
        return Scene(Table([["NaN"]]), caption=f"{named}: NaN, and so no sentence is near another.")
    alike = (vectors[1:] @ vectors[0]).tolist()
    best = max(range(len(SIX)), key=alike.__getitem__)
    rows = [[number(alike[i], 2) + " nearest" * (i == best), s] for i, s in enumerate(SIX)]
    ids, mask = model.batch(texts)
    hidden = yours.encoder(ids[:1], mask[:1])
    apart = float((hidden[-1][0, : len(tokens)] - encoded.hidden[-1]).abs().max())
    layer: Any = yours.encoder.layers[LAYER]
    weights = drawn(layer.attention.own, hidden[LAYER], BREAKS[broken].mask(mask[:1]))
    table = Table(rows, title="how near in meaning", wide=1.6, strong=(best,))
    panels = [table] if weights is None else [_ribbons(weights, tokens, label), table]
    distance = "less than .00001" if apart < 1e-5 else f"up to {number(apart, 2)}"
    won = number(alike[best] - max(alike[:best] + alike[best + 1 :]), 2)
    same = ("It means the same." if best == 0 else "It means something else.") * (text == SENTENCE)
    sentences = (
        f"{named}: its last vectors differ from the published model's by {distance}.",
        _taken(weights, tokens),
        BREAKS[broken].leaves,
        f"Nearest, by {won}: “{SIX[best]}”",
        same,
    )
    return Scene([panels], caption=" ".join(filter(None, sentences)))


def without_values(
    kind: type[nn.Module],
    text: str = SENTENCE,
    token: str = "it",
    silent: Sequence[str] = ("creek", "dog"),
) -> None:
    """Says which words a token ends nearest to; then once another token hands nothing over: its
    value is 0 in every head and layer.

    Args:
        kind: the class of exercise 11.
        text: the sentence; token: one of it; silent: the others, one at a time.
    """
    if why := unfit(kind):
        print(why)
        return
    try:
        model = _model()
    except WeightsMissing as error:
        print(error)
        return
    labels, (ids, mask) = model.encode(text).labels, model.batch([text])
    words, vectors = _words()
    for name in ("", *silent):
        change = Break(values=_without_value(labels.index(name))) if name else Break()
        vector = placed(kind, model, change).encoder(ids, mask)[-1][0, labels.index(token)]
        four = ", ".join(words[i] for i in (vectors @ vector).topk(4).indices.tolist())
        begin = f"without the value of “{name}”" if name else f"“{token}” is nearest to"
        print(f"{begin}: {four}")


def found(kind: type[nn.Module]) -> dict[str, int]:
    """For how many of the thirty sentences in data/paraphrases.tsv the class finds, among thirty,
    the one that means the same: whole, and broken in each place.
    """
    model, counts = _model(), {}
    with data_file("paraphrases.tsv").open(encoding="utf-8", newline="") as file:
        pairs = [*csv.DictReader(file, delimiter="\t")]
    firsts, seconds = ([pair[name] for pair in pairs] for name in ("sentence", "paraphrase"))
    for name, broken in BREAKS.items():
        vectors = placed(kind, model, broken).sentence_vectors([*firsts, *seconds])
        alike = vectors[: len(pairs)] @ vectors[len(pairs) :].T
        counts[name] = int((alike.argmax(dim=1) == torch.arange(len(pairs))).sum())
    return counts


def placed(kind: type[nn.Module], model: PretrainedModel, broken: Break) -> PretrainedModel:
    """The model with that class in every layer, given the rows of the layer's projections."""
    shared = {id(p): p for p in model.encoder.parameters()}
    encoder: Any = copy.deepcopy(model.encoder, shared)
    for layer in encoder.layers:
        published = layer.attention
        rows = zip(published.w_qkv.weight.chunk(3), published.w_qkv.bias.chunk(3), strict=True)
        own = _filled(kind, [*rows, (published.w_o.weight, published.w_o.bias)], broken)
        layer.attention = _InModel(own, broken.mask)
    return PretrainedModel(encoder.eval(), model.tokenizer)


def _filled(kind: Any, pairs: list[tuple[Tensor, Tensor]], broken: Break) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # a learner's random numbers stay as they are
        layer = kind(N_HEADS * D_K, N_HEADS)
    lacks = [n for n in NAMES if not isinstance(getattr(layer, n, None), nn.Module)]
    if lacks:
        raise AttributeError(f"it has no layer named {', '.join(lacks)}.")
    for name, (weight, bias) in zip("qkv", pairs, strict=False):
        size = broken.scale if name == "q" else 1.0
        setattr(layer, f"w_{name}", _Wrapped(weight * size, bias * size, _same, broken.rows))
    if broken.values is not _same:
        layer.w_v.after = broken.values
    layer.w_o = _Wrapped(*pairs[3], broken.contexts, _same)
    return layer.eval().requires_grad_(False)


@torch.no_grad()
def drawn(layer: Any, x: Tensor, mask: Tensor) -> Tensor | None:
    """(T, T): what each token gets of each in head 1, told by values that name it; None where
    the class does not call its layers.
    """
    probe = copy.copy(layer)
    probe._modules = dict(layer._modules)
    probe.w_v = _Names(layer.w_v.after)
    eye = torch.eye(N_HEADS * D_K)
    probe.w_o = _Wrapped(eye, torch.zeros(N_HEADS * D_K), layer.w_o.before, _same)
    try:
        answer = probe(x, mask)
    except AttributeError:  # of a weight that names have not
        return None
    return answer[0].unflatten(-1, (N_HEADS, D_K))[:, HEAD, : x.shape[1]]


@cache
def _words() -> tuple[list[str], Tensor]:
    numbers = _model().tokenizer.get_vocab()  # the commoner, the lower
    whole = [word for word in numbers if len(word) > 2 and word.isascii() and word.isalpha()]
    words = sorted(whole, key=lambda word: numbers[word])[:N_WORDS]
    return words, _model().sentence_vectors(words)


def _taken(weights: Tensor | None, tokens: tuple[str, ...]) -> str:
    if weights is None:
        return (
            "(It takes the weights of its layers and does not call them, so nobody sees its "
            "ribbons, and most mistakes cannot be made around it.)"
        )
    it = begin_at(tokens)
    share, most = weights[it, : len(tokens)].max(dim=0)
    start = f"In layer {LAYER}, head {HEAD}, “{tokens[it]}” takes"
    if share < 0.005:
        return f"{start} nothing."
    return f"{start} most from “{tokens[int(most)]}”: {number(float(share), 2)}."


def _ribbons(weights: Tensor, tokens: tuple[str, ...], label: str) -> Words:
    it = begin_at(tokens)
    of_it = torch.zeros(len(tokens), len(tokens))
    of_it[it] = weights[it, : len(tokens)].clamp(0, 1)
    heat = Heatmap(of_it, tokens, tokens, head=HEAD, limits=(0, 1))
    return Words(heat, row=it, head=HEAD, title=f"“{tokens[it]}”, drawn by {label}")


def _stored() -> list[tuple[Tensor, Tensor]]:
    creek = sentence()
    return [(getattr(creek, f"w_{n}"), getattr(creek, f"b_{n}")) for n in "qkvo"]


def _on_the_stored_layer(kind: type[nn.Module], broken: str, label: str, missing: str) -> Scene:
    """Without the model: the stored layer, on the sentence of the course."""
    creek, change = sentence(), BREAKS[broken]
    mask = change.mask(torch.zeros(1, 1, 1, len(creek.tokens), dtype=torch.bool))
    weights = drawn(_filled(kind, _stored(), change), creek.hidden[None], mask)
    shown = Table([["no ribbons"]]) if weights is None else _ribbons(weights, creek.labels, label)
    return Scene(shown, caption=f"Layer 3 alone, on the sentence of the course: {missing}.")


@cache
def _model() -> PretrainedModel:
    return load()
