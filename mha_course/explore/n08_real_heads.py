"""What the heads of a published model look at, in any sentence."""

from functools import cache, lru_cache, partial
from typing import Any

import ipywidgets as widgets
import torch

from mha_course.explore.n00_cut import require_short, sentence_field
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene, Stack, Table, Words, number
from mha_lesson.pretrained import Encoded, PretrainedModel, WeightsMissing, load
from mha_lesson.refusals import require_text, say
from mha_lesson.text import LAYER, SENTENCE

N_LAYERS, N_HEADS = 6, 12
MOST_TOKENS = 48  # more cannot be read in a picture
MOST_TYPED = 24  # on a page, which holds a picture for each length
HEAD = 1  # of layer 3: it → creek
OFFERED = (  # on a page, where nobody can type
    SENTENCE,
    "The dog chased the cat because it was hungry.",
    "The dog chased the cat because it was slow.",
    "over it jump the dog cold creek",
    "The trophy does not fit into the suitcase because it is too large.",
    "The trophy does not fit into the suitcase because it is too small.",
    "Anna told Mary that she had won the prize.",
    "The old man the boat.",
    "Time flies like an arrow; fruit flies like a banana.",
    "The keys to the cabinet are on the table.",
    "Dogs that chase cats bark.",
    "I saw the man with the telescope.",
    "To be or not to be, that is the question.",
    "One two three four five six seven.",
    "the the the the the the",
)


def real_heads(text: str = SENTENCE) -> Explorer:
    """Sliders `layer` and `head` over the weights of all-MiniLM-L6-v2 in a sentence to be typed.

    Args:
        text: the sentence to begin with.
    """
    require_text(text=text)
    return Explorer(
        {
            "layer": widgets.IntSlider(max=N_LAYERS - 1),
            "head": widgets.IntSlider(max=N_HEADS - 1),
            "hide_ends": widgets.Checkbox(description="hide [CLS], [SEP]", indent=False),
            "text": sentence_field(text),
        },
        partial(scene, text=text),
        reach={"text": lambda **_: [*dict.fromkeys((text, *OFFERED))]},
        headline="A published model's 72 heads on a sentence: press a small map, or Enter.",
    )


def scene(
    layer: int = LAYER, head: int = HEAD, text: str = SENTENCE, hide_ends: bool = False
) -> Scene:
    """One head as lines between words and as a large map, and all heads of the layer.

    Raises:
        ValueError: the sentence cannot be shown; it says why.
    """
    try:
        encoded = _encode(text)
    except WeightsMissing as error:
        return Scene(Table([[str(error)]]), caption="There are no weights to look at.")
    return _picture(encoded, layer, head, hide_ends)


def _picture(encoded: Encoded, layer: int, head: int, hide_ends: bool) -> Scene:
    large = _map(encoded, layer, head, hide_ends, title=f"layer {layer}, head {head}", wide=1.1)
    it = large.rows.index("it") if "it" in large.rows else None
    lines = Words(large, row=it, head=head, title="what each word looks at")
    small = [
        _map(
            encoded,
            layer,
            i,
            hide_ends,
            title=f"{i}",
            picks=("head", i),
            picked=i == head,
            bare=True,
        )
        for i in range(N_HEADS)
    ]
    weights = encoded.weights[layer, head].round(decimals=4)
    parked = float(weights[:, [0, -1]].sum(dim=-1).mean())
    link, most = large.largest() or ("none", 0.0)
    caption = (
        f"Layer {layer}, head {head}: strongest link between words: {link}, "
        f"{number(most, 2)}. "
        f"On average a token gives {parked:.0%} of its weight to [CLS] and [SEP]."
    )
    return Scene(
        [[lines, large, Stack([small[i : i + 3] for i in range(0, N_HEADS, 3)], wide=0.9)]],
        caption=caption,
        alt=f"The weights of layer {layer}, head {head}, as ribbons between the words and as a "
        f"large map; those of all {N_HEADS} heads of the layer, small.",
    )


def places() -> Explorer:
    """The same picture with room for any sentence: a browser fills it (pages/model/heads.js).

    Layer 0 has head i's place in every cell (i + 1) / 100; word k is named by `place`.
    """
    return Explorer(
        {
            "tokens": widgets.IntSlider(min=3, max=MOST_TYPED),
            "head": widgets.IntSlider(max=N_HEADS - 1),
            "hide_ends": widgets.Checkbox(),
        },
        lambda tokens, head, hide_ends: _picture(_empty(tokens), 0, head, hide_ends),
    )


def place(k: int) -> str:
    """A label as long as most words are, in whose place word k comes."""
    return f"{k:02} {'–' * 6}"


@cache
def _empty(tokens: int) -> Encoded:
    names = ("[CLS]", *map(place, range(1, tokens - 1)), "[SEP]")
    numbers = torch.arange(1, N_HEADS + 1).float() / 100
    weights = numbers.view(1, -1, 1, 1).expand(1, N_HEADS, tokens, tokens)
    return Encoded("", names, (), (), torch.empty(1, tokens, 0), weights)


@lru_cache(maxsize=1024)
def _map(encoded: Encoded, layer: int, head: int, hide_ends: bool, **more: Any) -> Heatmap:
    """One head, cached: when a control moves, most maps of a layer stay the same."""
    shown = slice(1, -1) if hide_ends else slice(None)
    weights, labels = encoded.weights[layer, head, shown, shown], encoded.labels[shown]
    weights = weights.round(decimals=4)
    return Heatmap(weights, labels, labels, limits=(0, 1), numbers=False, head=head, **more)


@cache
def _model() -> PretrainedModel:
    return load()


@lru_cache(maxsize=32)
def _encode(text: str) -> Encoded:
    """The model's pass over a sentence that can be shown; the sliders only pick from it."""
    model = _model()
    tokens = model.tokenizer.encode(text).tokens
    if len(tokens) <= 2:
        raise ValueError("Type a sentence: there is no word in the field.")
    require_short(len(tokens), MOST_TOKENS)
    if set(tokens[1:-1]) == {"[UNK]"}:
        raise ValueError(
            "Every token of this sentence would be [UNK], unknown: the model's vocabulary was made "
            f"for English, and for words of at most 100 letters; got {say(text)}."
        )
    return model.encode(text)
