"""What the heads of a published model look at, in any sentence."""

from functools import cache, lru_cache
from typing import Any

import ipywidgets as widgets
from torch import Tensor

from mha_lesson.pictures.live import Explorer
from mha_lesson.pictures.panels import Heatmap, Scene, Stack, Table, number
from mha_lesson.pretrained import Encoded, PretrainedModel, WeightsMissing, load
from mha_lesson.refusals import require_bool, require_text, require_whole
from mha_lesson.text import LAYER, SENTENCE

N_LAYERS, N_HEADS = 6, 12
MOST_TOKENS = 48  # more cannot be read in a picture
N_LINKS = 8
HEAD = 1  # of layer 3: it → creek
OFFERED = (  # where nobody can type
    SENTENCE,
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
            "layer": widgets.IntSlider(value=LAYER, max=N_LAYERS - 1, description="layer"),
            "head": widgets.IntSlider(value=HEAD, max=N_HEADS - 1, description="head"),
            "hide_ends": widgets.Checkbox(
                value=False, description="hide [CLS], [SEP]", indent=False
            ),
            "text": widgets.Text(
                value=text,
                description="sentence",
                continuous_update=False,  # on Enter, or when the field is left
                layout={"width": "40em", "max_width": "100%"},
            ),
        },
        scene,
        reach={"text": lambda **_: [*dict.fromkeys((text, *OFFERED))]},
    )


def scene(
    layer: int = LAYER, head: int = HEAD, text: str = SENTENCE, hide_ends: bool = False
) -> Scene:
    """One head large, its strongest links, and all heads of the layer.

    Raises:
        ValueError: there is no such layer or head, or the sentence cannot be shown; it says why.
    """
    for name, value, n in (("layer", layer, N_LAYERS), ("head", head, N_HEADS)):
        require_whole(name, value, 0, n - 1)
    require_text(text=text)
    require_bool("hide_ends", hide_ends)
    try:
        encoded = _encode(text)
    except WeightsMissing as error:
        return Scene(Table([[str(error)]]), caption="There are no weights to look at.")
    weights, words = encoded.weights[layer].round(decimals=4), encoded.labels
    shown = slice(1, -1) if hide_ends else slice(None)
    labels = words[shown]

    def picture(i: int, **more: Any) -> Heatmap:
        return Heatmap(
            weights[i][shown, shown], labels, labels, head=i, limits=(0, 1), numbers=False, **more
        )

    large = picture(head, title=f"layer {layer}, head {head}", wide=1.2)
    small = [picture(i, title=f"{i}", bare=True) for i in range(N_HEADS)]
    parked = float(weights[head][:, [0, -1]].sum(dim=-1).mean())
    links = _links(weights[head], words)
    query, key, most = links[0]
    caption = (
        f"Layer {layer}, head {head}: strongest link between words: {query} → {key}, {most}. "
        f"On average a token gives {parked:.0%} of its weight to [CLS] and [SEP]."
    )
    table = Table(
        links, ("query", "key", "weight"), title="strongest links between words of the large one"
    )
    return Scene(
        [
            [large, Stack([small[:6], small[6:], [table]], wide=1.5)],
        ],
        caption=caption,
        alt=f"The weights of layer {layer}, head {head}, large; those of all {N_HEADS} heads of "
            "the layer, small; and a table of the strongest links.",
    )  # fmt: skip


def _links(weights: Tensor, words: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The largest weights that neither leave nor enter [CLS] and [SEP], as words."""
    inner = weights[1:-1, 1:-1]
    names = [word if words.count(word) == 1 else f"{word} ({i})" for i, word in enumerate(words)][
        1:-1
    ]
    values, places = inner.flatten().topk(min(N_LINKS, inner.numel()))
    queries, keys = places // len(names), places % len(names)
    return [
        (names[i], names[j], number(value, 2))
        for i, j, value in zip(queries.tolist(), keys.tolist(), values.tolist(), strict=True)
    ]


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
    if len(tokens) > MOST_TOKENS:
        raise ValueError(
            f"The sentence must be at most {MOST_TOKENS} tokens long to be read in a picture; "
            f"this one has {len(tokens)}, [CLS] and [SEP] included."
        )
    if set(tokens[1:-1]) == {"[UNK]"}:
        raise ValueError(
            "The model's vocabulary knows no word of this sentence, and no letter: every token "
            "would be [UNK]. It was made for English."
        )
    return model.encode(text)
