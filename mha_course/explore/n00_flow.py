"""The whole computation in one picture: from X to the output, one head at a time."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.pictures.fields import text_of
from mha_course.pictures.flow import Flow
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene
from mha_lesson.attention import MultiHeadAttention, merge_heads, split_heads, textbook_attention
from mha_lesson.masks import causal_mask
from mha_lesson.refusals import describe, listed, require_one_of
from mha_lesson.text import sentence

BY_HAND, SENTENCE, YOURS = "by hand", "the sentence", "your module"
PARTS = ("attention", "projections", "heads", "mask", "output")  # as the notebooks 1 to 5 add them
STEPS = {  # step, in plain letters for the slider -> the blocks that it adds
    "X": ("x",),
    "Q, K, V": ("q", "k", "v"),
    "Q Kᵀ": ("products",),
    "÷ √dₖ": ("scores",),
    "mask": ("masked",),
    "softmax": ("weights",),
    "weights · V": ("context",),
    "concat": ("concat",),
    "Wᴼ": ("output",),
}
DECIMALS = 4  # two are shown; more than four would double the bytes of a page
MOST_TOKENS, MOST_HEADS, MOST_DIMENSIONS, WIDEST = 24, 12, 64, 512


@dataclass(frozen=True, eq=False)
class Source:
    """All numbers of one attention layer on one sequence.

    Attributes:
        words: T labels.
        q, k, v: (h, T, d_k).
        x: (T, d_model), what comes in, or None where Q, K and V are given.
        output_layer: W^O (d_model, h·d_k) and its bias (d_model,), or None.
        head: the one to begin with; pick: (query, key) to begin with.
        layer: which of the published model; None for any other.
    """

    words: tuple[str, ...]
    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor | None = None
    output_layer: tuple[Tensor, Tensor] | None = None
    head: int = 0
    pick: tuple[int, int] = (0, 0)
    layer: int | None = None

    @property
    def by_hand(self) -> bool:
        return self.x is None


def flow(
    mha: MultiHeadAttention | None = None,
    x: Tensor | None = None,
    tokens: list[str] | None = None,
    *,
    until: str | None = None,
) -> Explorer:
    """`example`, `step` and `head` over the blocks of attention, from X to the output.

    The first example is by hand: three tokens of two numbers, in two heads where all is shown, and
    each can be moved. The second is the course's sentence; `mha` and `x` show your own instead.

    Args:
        mha: the module to look into; that of the course's sentence if None.
        x: (T, d_model), its input; needed with `mha`.
        tokens: T labels; positions if None.
        until: how much of it: "attention" from Q, K and V to the context, then each adds to the
            one before: "projections" from X, "heads", "mask", "output" with W^O. All if None.
    """
    until, with_hand = ("output", True) if until is None else (until, until == PARTS[0])
    require_one_of("until", until, PARTS)
    sources = _examples(until) if mha is None else {YOURS: _own_source(mha, x, tokens)}
    if not with_hand:
        sources.pop(BY_HAND, None)
    first, *_ = sources
    *_, last = sources.values()
    steps = _steps(_blocks(sources[first], 0, False, until))  # by hand there is no X
    # At the beginning, but where the notebook speaks of the mask, or of the output.
    start = {"mask": "mask", "output": steps[-1]}.get(until, "Q, K, V")
    controls: dict[str, Any] = {
        "example": widgets.Dropdown(options=[*sources]),
        "step": widgets.SelectionSlider(options=steps),
        "head": widgets.IntSlider(max=len(last.q) - 1),
        "causal": widgets.Checkbox(description="causal mask", indent=False),
    }
    if len(sources) == 1:
        del controls["example"]
    if until not in ("mask", "output"):
        del controls["causal"]

    def scene_at(
        step: str = start,
        head: int = last.head,
        example: str = first,
        causal: bool = until == "mask",
    ) -> Scene:
        return draw(sources[example], step, head, causal, until)

    def heads(example: str = first, **_: Any) -> range:
        return range(len(sources[example].q))

    headline = "From queries and keys to a mixture of values: each number says what made it."
    explorer = Explorer(controls, scene_at, reach={"head": heads}, headline=headline)
    explorer.first = explorer.scene_at(**explorer.values | {"step": steps[-1]})  # a still shows all
    return explorer


def scene(
    step: str = "Wᴼ",
    head: int = 1,
    example: str = SENTENCE,
    causal: bool = False,
    until: str = "output",
) -> Scene:
    """One head of the course's sentence, or the example of notebook 1, up to a step."""
    source = _examples(until)[example]
    return draw(source, step, min(head, len(source.q) - 1), causal, until)


def draw(source: Source, step: str, head: int, causal: bool, until: str) -> Scene:
    """What a layer computes in one head, as far as `step`."""
    blocks = _blocks(source, head, causal, until)
    steps = _steps(blocks)
    shown = [name for done in steps[: steps.index(step) + 1] for name in STEPS[done]]
    w_o, bias = (source.output_layer if "output" in blocks else None) or (None, None)
    panel = Flow(
        blocks,
        shown=shown,
        words=source.words,
        head=head,
        n_heads=len(source.q),
        cut=PARTS.index(until) >= PARTS.index("heads"),
        pick=source.pick,
        by_hand=source.by_hand,
        w_o=w_o.T if source.by_hand and w_o is not None else None,
        writes=None if source.by_hand or w_o is None else _writes(source, causal),
        bias=None if source.by_hand else bias,
    )
    made = ", ".join(blocks[name].title for name in shown)
    return Scene(
        panel,
        caption=_caption(source, blocks, step, head, causal),
        alt=f"Attention as blocks of cells, in the order in which they are made: {made}.",
    )


def _steps(blocks: dict[str, Heatmap]) -> list[str]:
    """The steps that make these blocks."""
    return [step for step, needed in STEPS.items() if blocks.keys() >= {*needed}]


@cache
def _blocks(source: Source, head: int, causal: bool, until: str) -> dict[str, Heatmap]:
    """Every matrix of the computation, in its order."""
    part = PARTS.index(until)
    q, k, v = source.q[head], source.k[head], source.v[head]
    T, d_k = q.shape
    products = q @ k.T
    scores = products / d_k**0.5
    blocked = causal_mask(T, scores.device) & causal
    weights = scores.masked_fill(blocked, -torch.inf).softmax(dim=-1)
    words, by_hand = source.words, source.by_hand
    qk_limit, v_limit, product_limit = 2.5, 15.0, 4.0
    if not by_hand:
        qk_limit, v_limit, product_limit = max(_limit(q), _limit(k)), _limit(v), _limit(products)
    score_limit = product_limit / d_k**0.5

    def block(
        values: Tensor, rows: Any = words, *, limit: float, sign: int = 1, **more: Any
    ) -> Heatmap:
        values = values if by_hand else values.round(decimals=DECIMALS)
        return Heatmap(values, rows, limits=(-sign * limit, limit), **more)

    def pair(values: Tensor, quantity: str, title: str, limit: float, **more: Any) -> Heatmap:
        more.setdefault("colours", f"head {head % 8}")
        more.setdefault("decimals", 2)
        more |= {"columns": words, "quantity": quantity, "title": title}
        return block(values, limit=limit, **more)

    def vectors(values: Tensor, name: str, role: str, limit: float, **more: Any) -> Heatmap:
        axes = ("number", "token") if "columns" in more else ("token", "number")
        more.setdefault("quantity", name)
        more |= {"title": f"{name} {tuple(values.shape)}", "colours": role}
        return block(values, limit=limit, row_name=axes[0], column_name=axes[1], **more)

    def wide_vectors(values: Tensor, name: str, role: str) -> Heatmap:
        if by_hand:
            return vectors(values, name, role, v_limit)
        return vectors(values, name, role, _limit(values), numbers=False)

    blocks = {}
    if source.x is not None and part >= PARTS.index("projections"):
        blocks["x"] = wide_vectors(source.x, "X", "output")
    blocks |= {
        "q": vectors(q, "Q", "query", qk_limit),
        "k": vectors(k.T, "Kᵀ", "key", qk_limit, rows=None, columns=words),
        "v": vectors(v, "V", "value", v_limit),
        "products": pair(
            products, "product", f"Q Kᵀ {(T, T)}", product_limit, decimals=None if by_hand else 2
        ),
        "scores": pair(scores, "score", f"÷ √{d_k}", score_limit),
    }
    if part >= PARTS.index("mask"):
        title = "causal mask" if causal else "no mask"
        blocks["masked"] = pair(scores, "score", title, score_limit, blocked=blocked)
    from_0 = f"head {head % 8} from 0"
    blocks["weights"] = pair(weights, "weight", "softmax", 1.0, sign=0, colours=from_0)
    blocks["context"] = vectors(weights @ v, "· V", "value", v_limit, quantity="context")
    if source.output_layer and part >= PARTS.index("output"):
        concat, (w_o, bias) = _concat(source, causal), source.output_layer
        blocks["concat"] = wide_vectors(concat, "concat", "value")
        blocks["output"] = wide_vectors(concat @ w_o.T + bias, "output", "output")
    return blocks


@cache
def _concat(source: Source, causal: bool) -> Tensor:
    """(T, h·d_k): the contexts of all heads side by side."""
    mask = causal_mask(len(source.words), source.q.device) & causal
    contexts, _ = textbook_attention(source.q, source.k, source.v, mask)
    return merge_heads(contexts[None])[0]


@cache
def _writes(source: Source, causal: bool) -> Tensor:
    """(h, T, d_model): what every head adds to the output."""
    assert source.output_layer
    slabs = source.output_layer[0].T.unflatten(0, (len(source.q), -1))  # (h, d_k, d_model)
    sums = (split_heads(_concat(source, causal)[None], len(source.q))[0] @ slabs).cumsum(dim=0)
    # Sums are rounded, not single writes, whose sum would be off by h roundings.
    writes = sums.round(decimals=DECIMALS).diff(dim=0, prepend=torch.zeros_like(sums[:1]))
    return writes.round(decimals=DECIMALS)


def _limit(values: Tensor) -> float:
    """Where the colours end: nearly the largest size; the few values beyond look the same."""
    return max(float(values.abs().flatten().quantile(0.995)), 1e-6)


def _caption(source: Source, blocks: dict[str, Heatmap], step: str, head: int, causal: bool) -> str:
    """What this step does, in one sentence; flow.js says the numbers of what is looked at."""
    T, d_k = source.q.shape[1:]
    bias = "" if source.by_hand else ", and of the bias"
    origin = "given here" if "x" not in blocks else f"{d_k} numbers each, from its row of X"
    only_head = source.by_hand and len(source.q) == 1
    named = [] if source.layer is None else [f"layer {source.layer}"]
    named += [] if only_head or step in ("X", "concat", "Wᴼ") else [f"head {head}"]
    where = f"{', '.join(named).capitalize()}: " if named else ""
    words = {
        "X": f"{T} tokens come in, each a vector, which is one row of X.",
        "Q, K, V": f"every token has a query, a key and a value, {origin}.",
        "Q Kᵀ": "every query is multiplied by every key.",
        "÷ √dₖ": f"dividing by √{d_k} keeps scores in range, whatever the size of a head.",
        "mask": "blocked keys get −∞." if causal else "nothing is blocked here.",
        "softmax": "each row becomes shares that add up to 1.",
        "weights · V": "each token averages the values with its weights.",
        "concat": f"the contexts of all {len(source.q)} heads lie side by side.",
        "Wᴼ": f"the output is the sum of what all heads write{bias}.",
    }[step]
    return where + (words if where else words[0].upper() + words[1:])


def _examples(until: str) -> dict[str, Source]:
    return {BY_HAND: _by_hand(1 if until == PARTS[0] else 2), SENTENCE: _sentence()}


@cache
def _by_hand(n_heads: int) -> Source:
    """The example of notebook 1, where Q and K are the same three rows. Of two heads it is the
    second, and the first looks one token back.
    """
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], device="cpu")
    back = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], device="cpu")
    front = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]], device="cpu")
    v = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]], device="cpu")
    heads = [(back, front, 10 - v), (rows, rows, v)][-n_heads:]
    q, k, v = (torch.stack(parts) for parts in zip(*heads, strict=True))
    w_o = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0.5, 0], [-1, 0, 0, 1]], device="cpu")
    layer = (w_o, torch.zeros(4, device="cpu")) if n_heads > 1 else None
    words = "token 0", "token 1", "token 2"
    return Source(words, q, k, v, output_layer=layer, head=n_heads - 1, pick=(2, 2))


@cache
def _sentence() -> Source:
    creek = sentence()
    pick = creek.tokens.index("it"), creek.tokens.index("creek")
    layer = creek.w_o, creek.b_o
    return Source(creek.labels, *creek.heads, creek.hidden, layer, 1, pick, creek.layer)


def _own_source(mha: MultiHeadAttention, x: Tensor | None, tokens: list[str] | None) -> Source:
    """A learner's own module and its input."""
    x, labels = own_input(mha, x, tokens, most=MOST_TOKENS)
    if mha.n_heads > MOST_HEADS or mha.d_k > MOST_DIMENSIONS or mha.d_model > WIDEST:
        raise ValueError(
            f"mha must have at most {MOST_HEADS} heads, d_k = {MOST_DIMENSIONS} and d_model = "
            f"{WIDEST} to be drawn; got {mha.n_heads}, {mha.d_k} and {mha.d_model}."
        )
    with torch.no_grad():
        q, k, v = (split_heads(t[None], mha.n_heads)[0] for t in mha.w_qkv(x).chunk(3, dim=-1))
        _, weights = mha(x, return_weights=True)
    w_o, bias = mha.w_o.weight, mha.w_o.bias
    bias = w_o.new_zeros(mha.d_model) if bias is None else bias
    q, k, v, x, w_o, bias = (part.detach().float().cpu() for part in (q, k, v, x, w_o, bias))
    at = int(weights[0, -1].argmax())
    return Source(labels, q, k, v, x, (w_o, bias), pick=(len(x) - 1, at))


def own_input(
    mha: Any, x: Any, tokens: Any, most: int | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """x (T, d_model), which a learner's own module is to look at, and its T labels.

    Raises:
        TypeError, ValueError: it is no module of the course; x is no input of it, or has more than
            `most` tokens; or there are not T labels.
    """
    if not isinstance(mha, MultiHeadAttention):
        raise TypeError(f"mha must be a MultiHeadAttention; got {type(mha).__name__}.")
    weight = mha.w_qkv.weight
    fits = isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] == mha.d_model
    if not fits or not 1 <= len(x) <= (most or len(x)):
        limit = ", what the module is to look at" if most is None else f" of at most {most} tokens"
        raise ValueError(
            f"x must be a tensor (T, d_model = {mha.d_model}){limit}; got {describe(x)}."
        )
    if x.dtype != weight.dtype or x.device != weight.device:
        raise ValueError(f"x must be like the weights, {describe(weight)}; got {describe(x)}.")
    labels = tuple(map(text_of, listed("tokens", range(len(x)) if tokens is None else tokens)))
    if len(labels) != len(x):
        raise ValueError(f"tokens must be T = {len(x)} labels; got {len(labels)}.")
    return x, labels
