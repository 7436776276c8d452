"""Cut a ribbon of the published model, and see how far the last vectors move."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, ClassVar

import ipywidgets as widgets
import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from mha_course.pictures.cut import Cut
from mha_course.pictures.live import EXPORT, Explorer, LiveView
from mha_course.pictures.panels import Scene, Table
from mha_lesson.attention import merge_heads, scaled_dot_product_attention, split_heads
from mha_lesson.pretrained import PretrainedModel, WeightsMissing, load
from mha_lesson.refusals import require_positive_int, require_text, require_whole, say
from mha_lesson.text import LAYER, SENTENCE, data_file

N_LAYERS, N_HEADS = 6, 12
HEAD = 1  # of layer 3: it → creek
MOST_TOKENS = 24
OneCut = tuple[int, int | None, int | None, int | None]  # layer, head, query, key; None: all


@dataclass(frozen=True, eq=False)
class Effects:
    """The ribbons of one token in some heads (…), and what cutting each of them does.

    Attributes:
        labels: T tokens as pictures show them.
        word: which of them takes.
        widest: (n_layers, h): the widest ribbon in every head that is not to [CLS] or [SEP].
        weights: (…, T): the ribbons.
        own: (…, T): how far that token's last vector moves when a ribbon is cut.
        rescaled: the same, had the rest of the row been made to add up to 1 again.
        moves: (…, T + 2, T): how far each token's last vector moves when a ribbon, the whole
            head, or the whole layer is cut.
    """

    SCALES: ClassVar = {  # whole numbers in the file
        "widest": 10_000,
        "weights": 10_000,
        "own": 10_000,
        "rescaled": 10_000,
        "moves": 1000,
    }
    labels: tuple[str, ...]
    word: int
    widest: Tensor
    weights: Tensor
    own: Tensor
    rescaled: Tensor
    moves: Tensor

    def head(self, layer: int, head: int) -> "Effects":
        """Those of one head, of all."""
        per_head = {"weights", "own", "rescaled", "moves"}
        values = {k: v[layer, head] if k in per_head else v for k, v in vars(self).items()}
        return Effects(**values)


def cut(text: str = SENTENCE, *, offered: int | None = None) -> Explorer:
    """A sentence's ribbons in a head of all-MiniLM-L6-v2; a click cuts one, the model runs on.

    Sliders `layer` and `head`; in the picture one from weights to what a cut does. In a notebook
    the sentence may be typed and any of its words chosen, if the published weights are there.

    Args:
        text: the sentence to begin with.
        offered: how many of the sentences whose cuts are stored a page has; all if None.
    """
    require_text(text=text)
    if offered is not None:
        require_positive_int("offered", offered)
    texts = [*dict.fromkeys((text, *[*stored()][:offered]))]
    explorer = Explorer(
        {
            "text": sentence_field(text),
            "word": widgets.Dropdown(options=_choices(text)),
            "layer": widgets.IntSlider(max=N_LAYERS - 1),
            "head": widgets.IntSlider(max=N_HEADS - 1),
        },
        partial(scene, text=text),
        reach={"text": lambda **_: texts, "word": _choices},
        headline="A wide ribbon may carry little. Cut it, and see how far the word moves.",
    )
    explorer.view.on_msg(_answer)
    return explorer


def sentence_field(text: str) -> widgets.Text:
    """A field for a sentence, which counts on Enter, or when the field is left."""
    layout = {"width": "40em", "max_width": "100%"}
    return widgets.Text(value=text, description="sentence", continuous_update=False, layout=layout)


def require_short(n_tokens: int, most: int) -> None:
    """Refuses a sentence of more tokens than a picture can show."""
    if n_tokens > most:
        raise ValueError(
            f"The sentence must be at most {most} tokens long to be read in a picture; "
            f"this one has {n_tokens}, [CLS] and [SEP] included."
        )


def _answer(view: LiveView, asked: dict[str, Any], _buffers: Any) -> None:
    """Tells a picture what several cuts at once do."""
    [moved] = moves(_model(), asked["text"], [[tuple(cut) for cut in asked["cuts"]]])
    view.send({"cuts": asked["cuts"], "moved": moved.tolist()})


def scene(text: str = SENTENCE, word: int = 0, layer: int = LAYER, head: int = HEAD) -> Scene:
    """What one token takes in a head; the browser shows what the model loses without a ribbon.

    Args:
        text: the sentence.
        word: which of the tokens that can be chosen; 0 is the one to begin with.
        layer, head: which head.

    Raises:
        ValueError: the sentence cannot be shown; it says why.
    """
    words = [number for _, number in _words(text)]
    word = words[word]
    try:
        seen = effects(text, word, layer, head)
    except WeightsMissing as error:
        return Scene(Table([[str(error)]]), caption="The model is not there to be run.")
    panel = Cut(
        seen.labels,
        text=text,
        word=word,
        layer=layer,
        head=head,
        widest=seen.widest,
        weights=seen.weights,
        own=seen.own,
        rescaled=seen.rescaled,
        moves=seen.moves,
        words=words,
    )
    return Scene(panel, caption=panel.says())


@lru_cache(maxsize=512)
def effects(text: str, word: int, layer: int, head: int) -> Effects:
    """One head's: read, where they are stored, else computed and rounded as those are."""
    known = stored().get(text)
    if known is not None and known.word == word:
        return known.head(layer, head)
    _labels(text)  # refuses what cannot be shown
    found = computed(_model(), text, word, layer, head)
    rounded = {k: (getattr(found, k) * n).round() / n for k, n in Effects.SCALES.items()}
    return Effects(found.labels, word, **rounded)


def computed(model: PretrainedModel, text: str, word: int, layer: int, head: int) -> Effects:
    """The model run again for every cut."""
    encoded = model.encode(text)
    T, words = len(encoded.labels), slice(1, -1)
    ribbons = [[(layer, head, word, key)] for key in range(T)]
    wholes = [[(layer, head, None, None)], [(layer, None, None, None)]]
    moved = moves(model, text, [*ribbons, *wholes])
    return Effects(
        encoded.labels,
        word,
        widest=encoded.weights[:, :, word, words].amax(dim=-1),
        weights=encoded.weights[layer, head, word],
        own=moved[:T, word],
        rescaled=moves(model, text, ribbons, rescaled=True)[:, word],
        moves=moved,
    )


@torch.no_grad()
def moves(
    model: PretrainedModel, text: str, cuts: Sequence[Sequence[OneCut]], *, rescaled: bool = False
) -> Float[Tensor, "n T"]:
    """How far each token's last vector moves when weights are cut, as a share of its length.

    A cut sets weights to 0; the rest of the row stays as it is, so that the row no longer
    adds up to 1, unless `rescaled`. Entry i runs the model again with all of cuts[i].

    Args:
        text: as for `encode`.
        cuts: n lists of (layer, head, query, key); None means all of them, so (3, 1, None,
            None) cuts a whole head.
        rescaled: whether what is left of a row is made to add up to 1 again.

    Raises:
        TypeError, ValueError: as `encode`; or a cut is not four numbers of this model.
    """
    encoded = model.encode(text)
    layers: Any = model.encoder.layers
    T, h = len(encoded.tokens), layers[0].attention.n_heads
    for one in (one for some in cuts for one in some):
        _require_cut(one, (len(layers), h, T, T))
    first = min((one[0] for some in cuts for one in some), default=len(layers))
    x = encoded.hidden[first].expand(len(cuts), -1, -1)  # the same for all, so far
    for number, layer in enumerate(layers[first:], start=first):
        attention = layer.attention
        q, k, v = split_heads(attention.w_qkv(x), 3 * h).chunk(3, dim=1)  # (n, h, T, d_k)
        _, weights = scaled_dot_product_attention(q, k, v, return_weights=True)
        for some, kept in zip(cuts, weights, strict=True):  # (h, T, T)
            for one in some:
                if one[0] == number:
                    kept[tuple(slice(None) if i is None else i for i in one[1:])] = 0.0
        if rescaled:
            weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)
        x = layer.after(x, attention.w_o(merge_heads(weights @ v)))
    last = encoded.hidden[-1]
    return (x - last).norm(dim=-1) / last.norm(dim=-1)


def _require_cut(cut: OneCut, sizes: tuple[int, ...]) -> None:
    if not isinstance(cut, tuple) or len(cut) != len(sizes) or cut[0] is None:
        raise TypeError(f"a cut must be (layer, head, query, key), not all None; got {say(cut)}.")
    for name, i, size in zip(("layer", "head", "query", "key"), cut, sizes, strict=True):
        if i is not None:
            require_whole(f"the {name} of a cut", i, 0, size - 1)


@cache
def stored() -> dict[str, Effects]:
    """By sentence, of all heads, the effects that data/cuts.safetensors holds."""
    found = {}
    with safe_open(data_file("cuts.safetensors"), framework="pt") as file:
        sentences = json.loads(file.metadata()["sentences"])
        for i, (text, labels, word) in enumerate(sentences):
            values = {k: file.get_tensor(f"{i} {k}") / n for k, n in Effects.SCALES.items()}
            found[text] = Effects(tuple(labels), word, **values)
    return found


def _words(text: str) -> list[tuple[str, int]]:
    """The tokens that can be chosen, the one to begin with first; on a page there is but that."""
    known = stored().get(text)
    if known is not None and (os.environ.get(EXPORT) or not _has_weights()):
        return [(known.labels[known.word], known.word)]
    try:
        labels = _labels(text)
    except (WeightsMissing, ValueError):  # `scene` says it
        return [("", 1)]
    first = known.word if known else begin_at(labels)
    numbers = sorted(range(len(labels)), key=lambda i: i != first)
    return [(labels[i], i) for i in numbers]


def begin_at(labels: Sequence[str]) -> int:
    """The token whose ribbons are seen first: "it", else the last that is no mark."""
    words = [i for i, label in enumerate(labels) if label[-1].isalnum()] or [1]
    return labels.index("it") if "it" in labels else words[-1]


def _choices(text: str) -> list[tuple[str, int]]:
    """The same as positions of a control: what can be chosen in one sentence, by its rank."""
    return [(label, rank) for rank, (label, _) in enumerate(_words(text))]


def _has_weights() -> bool:
    try:
        return bool(_model())
    except WeightsMissing:
        return False


@lru_cache(maxsize=32)
def _labels(text: str) -> tuple[str, ...]:
    """The tokens of a sentence that can be shown.

    Raises:
        ValueError: there is no word in it, or too many.
    """
    labels = _model().encode(text).labels
    require_short(len(labels), MOST_TOKENS)
    return labels


@cache
def _model() -> PretrainedModel:
    return load()
