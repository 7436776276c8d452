"""Exercise 11, notebook 06: the whole class."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lesson.check import errors
from mha_lesson.check.exercise import WHOLE, Bound, Case, Finding, exercise
from mha_lesson.check.inputs import normal, strided
from mha_lesson.check.masking import (
    BEFORE,
    NOTHING_LEFT,
    as_softmax_gives,
    blocked_rows_left_open,
    blocked_rows_to_zero,
    filled_where_false,
    filled_where_false_finite,
    fills,
    finite,
    future,
    minus_infinity,
    nan_to_zero,
    scores_untouched,
    true_means_blocked,
)
from mha_lesson.check.safely import Raised, codes_of, run
from mha_lesson.check.scaling import (
    attention,
    by_root_d_k,
    every_query_with_every_key,
    softmax_over_keys,
)

NAMES = ("w_q", "w_k", "w_v", "w_o")


@dataclass(frozen=True)
class Layers:
    """A learner's module, seen through its four layers: what the right answer computes with."""

    module: nn.Module
    n_heads: int
    remake: Callable[[], Any]
    _projected: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def to(self, dtype: torch.dtype) -> "Layers":
        return Layers(self.again().to(dtype), self.n_heads, self.remake)

    def again(self) -> nn.Module:
        """A new module with the same weights; a copy would stumble over what forward has kept."""
        module = self.remake()
        module.load_state_dict(self.module.state_dict())
        return module

    def learning(self) -> "Layers":
        return Layers(self.again().to(torch.float64), self.n_heads, self.remake)

    def leaves(self) -> dict[str, Tensor]:
        """What is to be trained: the four weights, each under its layer's name."""
        return {f"`{name}`": getattr(self.module, name).weight for name in NAMES}

    def tensors(self) -> Iterator[Tensor]:
        """What `module.to(device)` would move."""
        return chain(self.module.parameters(), self.module.buffers())

    def apply(self, name: str, x: Tensor) -> Tensor:
        layer = getattr(self.module, name)
        return F.linear(x, layer.weight, layer.bias)

    def apply_transposed(self, name: str, x: Tensor) -> Tensor:
        layer = getattr(self.module, name)
        product = x @ layer.weight
        return product if layer.bias is None else product + layer.bias

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a case's x: computed once, asked for by every slip."""
        if x not in self._projected:
            Q, K, V = (self.apply(name, x) for name in NAMES[:3])
            self._projected[x] = (Q, K, V)
        return self._projected[x]


def bind(cls: Any) -> Bound | Finding | None:
    """Builds modules of the learner's class; a finding where that fails, None for a stub."""
    if not isinstance(cls, type):
        return Finding(
            "not_a_class",
            "The check takes the class itself, and got something else (an instance, perhaps).",
            "Does it say `check.MultiHeadAttention(MultiHeadAttention)`?",
        )
    codes = codes_of(cls)
    cases: list[Case] = []
    for number, (sizes, masks) in enumerate(_SIZES):
        d_model, n_heads = sizes["d_model"], sizes["n_heads"]
        outcome = run(cls, (d_model, n_heads), codes)
        if isinstance(outcome, Raised):
            if isinstance(outcome.error, NotImplementedError) and outcome.on_purpose:
                return None
            return errors.explain(outcome)
        module = outcome.value
        if not isinstance(module, nn.Module):
            return Finding(
                "not_a_module",
                "Your class does not inherit from `nn.Module`.",
                "What stands in brackets behind the name of the class in the stub?",
            )
        if number == 0 and _is_stub(module, d_model, codes):
            return None
        if finding := _layers(module, d_model):
            return finding
        layers = Layers(module.to(torch.float64), n_heads, partial(cls, d_model, n_heads))
        cases += _cases(layers, sizes, masks, number)
        if _degenerate(module):  # constant or equal weights hide mistakes
            cases += _cases(_randomised(layers), sizes, masks, number + 10)
    return Bound(_call, cases)


def _call(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    return layers.module(x) if mask is None else layers.module(x, mask)


def _is_stub(module: nn.Module, d_model: int, codes: set[Any]) -> bool:
    """Whether `forward` is still to be written."""
    outcome = run(lambda x: module(x), (torch.zeros(1, 2, d_model),), codes)
    if isinstance(outcome, Raised):
        return isinstance(outcome.error, NotImplementedError) and outcome.on_purpose
    return outcome.value is None or outcome.value is ...


def _layers(module: nn.Module, d_model: int) -> Finding | None:
    """Four nn.Linear of their own, under their names, d_model to d_model."""
    missing = [name for name in NAMES if not isinstance(getattr(module, name, None), nn.Linear)]
    if missing:
        have = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        found = f"there are {', '.join(f'`{n}`' for n in have)}" if have else "there is none"
        return Finding(
            "layer_names",
            f"The module has no `nn.Linear` named {', '.join(f'`{n}`' for n in missing)}; {found}.",
            "The stub asks for four layers under four names. Where does `__init__` set them?",
        )
    if len({id(getattr(module, name)) for name in NAMES}) < 4:
        return Finding(
            "layers_shared",
            "Two of the four names stand for one and the same layer.",
            "Which weights should queries, keys and values share?",
        )
    for name in NAMES:
        layer = getattr(module, name)
        if (layer.in_features, layer.out_features) != (d_model, d_model):
            return Finding(
                "layer_sizes",
                f"`{name}` leads from {layer.in_features} to {layer.out_features} dimensions where "
                f"d_model = {d_model}.",
                "All heads together are as wide as d_model: how wide is each projection of all "
                "heads?",
            )
    return None


def _degenerate(module: nn.Module) -> bool:
    weights = [getattr(module, name).weight.detach().double() for name in NAMES]
    plain = any(w.numel() > 1 and (w.std() < 1e-9 or bool((w == w.mT).all())) for w in weights)
    twins = any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])
    return weights[0].numel() > 1 and (plain or twins)


def _randomised(layers: Layers) -> Layers:
    module = layers.again().to(torch.float64)
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(normal(*p.shape, seed=60 + i, std=0.5))
    return Layers(module, layers.n_heads, layers.remake)


_SIZES: tuple[tuple[dict[str, int], bool], ...] = (
    ({"B": 2, "T": 5, "d_model": 21, "n_heads": 3, "d_k": 7}, True),
    ({"B": 1, "T": 3, "d_model": 10, "n_heads": 2, "d_k": 5}, True),
    ({"B": 2, "T": 3, "d_model": 5, "n_heads": 1, "d_k": 5}, False),
    ({"B": 3, "T": 2, "d_model": 15, "n_heads": 5, "d_k": 3}, False),
    ({"B": 2, "T": 1, "d_model": 6, "n_heads": 2, "d_k": 3}, False),
    ({"B": 3, "T": 3, "d_model": 9, "n_heads": 3, "d_k": 3}, False),
)


def _cases(layers: Layers, sizes: dict[str, int], masks: bool, seed: int) -> Iterator[Case]:
    B, T, h = sizes["B"], sizes["T"], sizes["n_heads"]
    x = normal(B, T, sizes["d_model"], seed=seed, std=2)
    yield Case((x, None, layers), sizes, "without a mask")
    yield Case((x, future(T), layers), sizes, "with a causal mask (T, T)")
    if not masks:
        return
    some = normal(B, h, T, T, seed=seed + 30) > 0.5
    some[..., 0] = False
    yield Case((x, some, layers), sizes, "with a mask of its own for every head")
    lengths = torch.tensor([T - 2, 0, T])[:B]
    padding = (torch.arange(T) >= lengths[:, None])[:, None, None]
    yield Case((x, padding, layers), sizes, "with padding, a mask (B, 1, 1, T)")
    dead = some[:, :1].clone()
    dead[0, 0, 1] = True
    yield Case((x, dead, layers), sizes, "with every key of query 1 blocked")
    per_head = some[:1].clone()
    per_head[0, -1, 1] = True
    yield Case((x, per_head, layers), sizes, "with query 1 blocked in one head only, (1, h, T, T)")
    keys = per_head[:, :, :1].clone()
    keys[0, 0] = True
    yield Case((x, keys, layers), sizes, "with one row for all queries of a head, (1, h, 1, T)")
    if seed == 0:
        yield Case((strided(x), future(T), layers), sizes, "with x not contiguous")
        wide = 60 * x
        yield Case((wide, None, layers), sizes, "where scores are as large as 1e4", 2e-3, True)
        yield Case((wide, some, layers), sizes, "where scores are as large as 1e4", 2e-3, True)
        x = torch.cat([_scoring_low(layers, sizes).expand(B, 1, -1), x[:, 1:]], 1)
        note = "with a causal mask, where token 0 scores itself near −1e4"
        yield Case((x, future(T), layers), sizes, note, 2e-3, True)


def _scoring_low(layers: Layers, sizes: dict[str, int]) -> Tensor:
    """A token that scores itself about −1e4 in head 0: what is blocked has to score lower still."""
    tokens = normal(64, sizes["d_model"], seed=77)
    for _ in range(3):  # a bias keeps scores from growing exactly with the square
        Q, K = (layers.apply(name, tokens)[:, : sizes["d_k"]] for name in ("w_q", "w_k"))
        scores = (Q * K).sum(-1) / math.sqrt(sizes["d_k"])
        low = scores.argmin()
        tokens = tokens[low : low + 1] * (1e4 / scores[low].abs().clamp(min=1e-3)).sqrt()
    return tokens.detach()


# --- the right steps -----------------------------------------------------------------------------


def three_layers(x: Tensor, layers: Layers) -> tuple[Tensor, Tensor, Tensor]:
    return layers.projected(x)


def first_of_mask(mask: Tensor, scores: Tensor) -> Tensor:
    """The mask that one single head would get."""
    return mask[:, :1] if mask.ndim == 4 else mask


def into_heads(x: Tensor, h: int, which: str) -> Tensor:
    B, T, D = x.shape
    return x.view(B, T, h, D // h).transpose(1, 2)


def heads_side_by_side(context: Tensor) -> Tensor:
    B, h, T, d_k = context.shape
    return context.transpose(1, 2).reshape(B, T, h * d_k)


def through_w_o(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return layers.apply("w_o", merged)


def output_alone(output: Tensor, weights: Tensor, mask: Tensor | None) -> Any:
    return output


@exercise(
    11,
    "06",
    cases=lambda: (),
    gives=("output (B, T, d_model)",),
    bind=bind,
)
def MultiHeadAttention(
    x: Tensor,
    mask: Tensor | None,
    layers: Layers,
    *,
    project: Any = three_layers,
    split: Any = into_heads,
    product: Any = every_query_with_every_key,
    scale: Any = by_root_d_k,
    read: Any = true_means_blocked,
    fill: Any = minus_infinity,
    normalise: Any = softmax_over_keys,
    empty: Any = blocked_rows_to_zero,
    merge: Any = heads_side_by_side,
    leave: Any = through_w_o,
    give: Any = output_alone,
) -> Any:
    """w_o(Concat(softmax(Q Kᵀ / √d_k) V))."""
    parts = zip("qkv", project(x, layers), strict=True)
    Q, K, V = (split(part, layers.n_heads, which) for which, part in parts)
    scores = scale(product(Q, K), Q, K)
    if mask is not None:
        mask = read(mask, scores)
        scores = fill(scores, mask)
    weights = normalise(scores)
    if mask is not None:
        weights = empty(weights, mask)
    output = leave(merge(weights @ V), layers, x)
    return give(output, weights, mask)


# --- slips ---------------------------------------------------------------------------------------

slip = MultiHeadAttention.slip
filling = partial(fills, MultiHeadAttention)
PER_HEAD = "How many dimensions does the dot product of *one* head sum over?"

slip(
    "scale",
    "The scores are divided by √d_model: each head's dot product sums over d_k dimensions only.",
    PER_HEAD,
    key="by_root_d_model",
)(lambda scores, Q, K: scores / math.sqrt(Q.shape[1] * Q.shape[-1]))
slip(
    "scale",
    "The scores are divided by √h, the root of the number of heads.",
    PER_HEAD,
    key="by_root_h",
)(lambda scores, Q, K: scores / math.sqrt(Q.shape[1]))
slip(
    "scale",
    "The scores are divided by d_model.",
    PER_HEAD,
    key="by_d_model",
)(lambda scores, Q, K: scores / (Q.shape[1] * Q.shape[-1]))


@slip(
    "project",
    "One layer makes queries, keys and values alike: `w_q` is used three times.",
    "What are `w_k` and `w_v` for?",
)
def one_layer_for_all(x: Tensor, layers: Layers) -> Any:
    Q = layers.apply("w_q", x)
    return Q, Q, Q


@slip(
    "project",
    "The keys are made by `w_q`: `w_k` takes no part.",
    "Which layer makes which of the three?",
)
def keys_by_w_q(x: Tensor, layers: Layers) -> Any:
    Q, _, V = three_layers(x, layers)
    return Q, Q, V


@slip(
    "project",
    "The values are made by `w_k`: `w_v` takes no part.",
    "Which layer makes which of the three?",
)
def values_by_w_k(x: Tensor, layers: Layers) -> Any:
    Q, K, _ = three_layers(x, layers)
    return Q, K, K


@slip(
    "project",
    "The queries are made by `w_k`: `w_q` takes no part.",
    "Which layer makes which of the three?",
)
def queries_by_w_k(x: Tensor, layers: Layers) -> Any:
    _, K, V = three_layers(x, layers)
    return K, K, V


@slip(
    "project",
    "The values are made by `w_q`: `w_v` takes no part.",
    "Which layer makes which of the three?",
)
def values_by_w_q(x: Tensor, layers: Layers) -> Any:
    Q, K, _ = three_layers(x, layers)
    return Q, K, Q


@slip(
    "project",
    "`w_q` and `w_k` are exchanged: keys ask, and queries answer.",
    "Which layer makes which of the three?",
)
def w_q_with_w_k(x: Tensor, layers: Layers) -> Any:
    Q, K, V = three_layers(x, layers)
    return K, Q, V


@slip(
    "project",
    "`w_k` and `w_v` are exchanged.",
    "Which layer makes which of the three?",
)
def w_k_with_w_v(x: Tensor, layers: Layers) -> Any:
    Q, K, V = three_layers(x, layers)
    return Q, V, K


@slip(
    "project",
    "`w_q` and `w_v` are exchanged.",
    "Which layer makes which of the three?",
)
def w_q_with_w_v(x: Tensor, layers: Layers) -> Any:
    Q, K, V = three_layers(x, layers)
    return V, K, Q


@slip(
    "project",
    "The values are x itself: `w_v` takes no part.",
    "What do the heads collect: tokens, or projections of tokens?",
)
def values_unprojected(x: Tensor, layers: Layers) -> Any:
    Q, K, _ = three_layers(x, layers)
    return Q, K, x


@slip(
    "project",
    "Nothing is projected: x itself is query, key and value.",
    "What are `w_q`, `w_k` and `w_v` for?",
)
def nothing_projected(x: Tensor, layers: Layers) -> Any:
    return x, x, x


@slip(
    "project",
    "The queries are x itself: `w_q` takes no part.",
    "What are the four layers for?",
)
def queries_unprojected(x: Tensor, layers: Layers) -> Any:
    _, K, V = three_layers(x, layers)
    return x, K, V


@slip(
    "project",
    "The keys are x itself: `w_k` takes no part.",
    "What are the four layers for?",
)
def keys_unprojected(x: Tensor, layers: Layers) -> Any:
    Q, _, V = three_layers(x, layers)
    return Q, x, V


@slip(
    "project",
    "The weights are used untransposed (x @ w.weight): `nn.Linear` keeps a row for each output.",
    "What does calling the layer, `self.w_q(x)`, do for you?",
)
def weights_untransposed(x: Tensor, layers: Layers) -> Any:
    return tuple(layers.apply_transposed(name, x) for name in NAMES[:3])


@slip(
    "project",
    "The projections are chained: keys are made from queries, and values from keys.",
    "From what does each of the three start?",
)
def projections_chained(x: Tensor, layers: Layers) -> Any:
    Q = layers.apply("w_q", x)
    K = layers.apply("w_k", Q)
    return Q, K, layers.apply("w_v", K)


@slip(
    "split",
    "The heads are cut by `view` alone: head 0 gets the first T/h tokens instead of the first d_k "
    "columns of all tokens.",
    "Every head should see all tokens. Along which axis has the cut to be made first, and which "
    "axes have to change places then?",
)
def split_by_view(x: Tensor, h: int, which: str) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, h, T, D // h)


@slip(
    "split",
    "The columns are dealt out like cards: head 0 gets columns 0, h, 2h, … That comes of cutting "
    "into (d_k, h) instead of (h, d_k).",
    "A head owns d_k neighbouring columns. Which of the two sizes has to come last?",
)
def split_interleaved(x: Tensor, h: int, which: str) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


@slip(
    "split",
    "h and d_k are exchanged: the attention has d_k heads of h dimensions.",
    "A head owns d_k neighbouring columns. Which of the two sizes has to come last?",
)
def split_sizes_exchanged(x: Tensor, h: int, which: str) -> Tensor:
    return x.unflatten(-1, (-1, h)).transpose(1, 2)


@slip(
    "split",
    "There is only one head: attention runs over all d_model dimensions at once, and n_heads takes "
    "no part.",
    "Where should x be cut into heads?",
    also={"read": first_of_mask},
)
def not_split(x: Tensor, h: int, which: str) -> Tensor:
    return x[:, None]


@slip(
    "split",
    "Heads and tokens have not changed places: every token attends among its own heads, (B, T, h, "
    "d_k), and never looks at another token.",
    "Attention works on the last two axes. Which two should they be?",
)
def heads_attend(x: Tensor, h: int, which: str) -> Tensor:
    return x.unflatten(-1, (h, -1))


@slip(
    "split",
    "Every head gets the same columns, those of head 0.",
    "Which columns belong to head 1?",
)
def split_same_columns(x: Tensor, h: int, which: str) -> Tensor:
    return into_heads(x, h, which)[:, :1].expand(-1, h, -1, -1)


def _split_in_part() -> None:
    """Heads cut wrongly in some of Q, K and V only."""
    for only, spoken in (("v", "the values"), ("k", "the keys"), ("q", "the queries"), ("qk", "")):
        spoken = spoken or "queries and keys"
        for key, how, wrongly in (
            ("view", "are cut by `view` alone", split_by_view),
            ("interleaved", "are dealt out like cards", split_interleaved),
        ):

            def split(
                x: Tensor, h: int, which: str, only: str = only, wrongly: Any = wrongly
            ) -> Tensor:
                return wrongly(x, h, which) if which in only else into_heads(x, h, which)

            does = f"Q, K and V are not cut alike: {spoken} {how}, the rest comes out right."
            asks = "Can one and the same line cut all three?"
            slip("split", does, asks, key=f"split_{key}_{only}")(split)


_split_in_part()


# Other right ways: none is a mistake, but a mistake elsewhere may meet any of them.
MultiHeadAttention.also_right("empty")(nan_to_zero)
MultiHeadAttention.also_right("fill")(blocked_rows_left_open)
MultiHeadAttention.also_right("fill")(finite)

KEEP = (
    "The mask is used the wrong way round: True is kept and False is blocked, as in "
    "`F.scaled_dot_product_attention`."
)
TURNED = "True means *blocked* in this course. What has to be turned round, and where?"


@slip("read", "The mask takes no part: every query sees every key.", "Where does `mask` enter?")
def mask_unused(mask: Tensor, scores: Tensor) -> Tensor:
    return torch.zeros_like(mask)


@slip("read", KEEP, TURNED)
def mask_keeps(mask: Tensor, scores: Tensor) -> Tensor:
    return ~mask


filling(KEEP, TURNED, "mask_keeps")(filled_where_false)
filling(KEEP, TURNED, "mask_keeps")(filled_where_false_finite)


@slip(
    "read",
    "The future is blocked as well, whatever mask is given.",
    "Where does the triangle come from if the caller has not passed it?",
)
def future_too(mask: Tensor, scores: Tensor) -> Tensor:
    return mask | future(scores.shape[-1])


@slip(
    "read",
    "All heads are masked alike, by the mask of head 0.",
    "The mask may have an axis for the heads. How long can it be?",
)
def mask_of_head_0(mask: Tensor, scores: Tensor) -> Tensor:
    return first_of_mask(mask, scores)


@slip(
    "fill",
    "Blocked scores become −1e9 (or another huge negative number): in a row whose every key is "
    "blocked all scores are then alike, and the query averages over what was blocked.",
    NOTHING_LEFT,
    also={"empty": as_softmax_gives},
)
def finite_fill(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -1e9)


@filling(
    "Blocked scores become 0, an ordinary score: exp(0) = 1, so blocked keys get weight.",
    "Which score has weight 0 after a softmax?",
)
def scores_to_zero(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, 0.0)


@filling(
    "Blocked scores become −1e4: real scores can be as low as that.",
    "Which value lies below every possible score?",
)
def fill_1e4(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -1e4)


@filling(
    "Blocked scores become a negative number that is not low enough (−100, say): real scores can "
    "be lower.",
    "Which value lies below every possible score?",
)
def fill_100(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -100.0)


@filling(
    "The mask is added to the scores as 0 and 1: a blocked key scores one point more.",
    BEFORE,
)
def added_as_numbers(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype)


@slip(
    "fill",
    "The mask times −1e9 is added: in a row whose every key is blocked all scores lose the same, "
    "as if nothing were blocked.",
    NOTHING_LEFT,
    also={"empty": as_softmax_gives},
)
def added_times_1e9(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype) * -1e9


@slip(
    "fill",
    "The mask times −1e4 is added: real scores can differ by more than that, and where every key "
    "of a row is blocked all lose the same, as if nothing were blocked.",
    "Which value lies below every possible score?",
    also={"empty": as_softmax_gives},
)
def added_times_1e4(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype) * -1e4


@filling(
    "The mask is multiplied by −∞ and added: where nothing is blocked that is 0 · −∞ = NaN.",
    "How can −∞ be put in certain places without multiplying?",
)
def zero_times_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype) * -math.inf


@slip(
    "read",
    "The mask is transposed: queries and keys are exchanged in it.",
    "Which axis of the mask belongs to the keys?",
)
def mask_turned(mask: Tensor, scores: Tensor) -> Tensor:
    return mask.mT


@slip(
    "empty",
    "A query whose every key is blocked gets NaN: the softmax of nothing but −∞ is 0/0.",
    "What context should such a query get, and where do you see that a row has nothing left?",
)
def empty_rows_left(weights: Tensor, mask: Tensor) -> Tensor:
    return weights


@slip(
    "empty",
    "The mask comes after the softmax: blocked weights are set to 0, their share is lost, and rows "
    "no longer sum to 1.",
    BEFORE,
    also={"fill": scores_untouched},
)
def masked_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, 0.0)


@slip(
    "empty",
    "The mask comes after the softmax and keeps what is blocked: the weights are multiplied by it.",
    "True means *blocked* in this course.",
    also={"fill": scores_untouched},
)
def kept_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights * mask


@slip(
    "empty",
    "After the softmax blocked weights become −∞ (or −1e9): a weight is a share, and cannot be "
    "negative.",
    "Does the mask belong before or after the softmax?",
    also={"fill": scores_untouched},
)
def minus_infinity_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, -1e9)


@slip(
    "merge",
    "The heads are joined without moving the tokens back first: a row of the concatenation holds "
    "neighbouring tokens of one head.",
    "A row belongs to one token and holds all its heads. Which two axes have to change places "
    "before `view` or `reshape`?",
)
def joined_by_view(context: Tensor) -> Tensor:
    B, h, T, d_k = context.shape
    return context.reshape(B, T, h * d_k)


@slip(
    "merge",
    "The concatenation interleaves the heads: dimension 0 of every head, then dimension 1 of each.",
    "Head 0's d_k numbers should stand together. Which axis has to be last before joining?",
)
def joined_interleaved(context: Tensor) -> Tensor:
    return context.permute(0, 2, 3, 1).flatten(2)


@slip(
    "merge",
    "The joined axes come in the order (d_k, T) per head: `transpose(2, 3)` or so before joining.",
    "Which axes should change places before joining?",
)
def joined_dimensions_first(context: Tensor) -> Tensor:
    B, h, T, d_k = context.shape
    return context.transpose(2, 3).reshape(B, T, h * d_k)


@slip(
    "merge",
    "The heads come in reverse order before `w_o`.",
    "Whose numbers should fill the first d_k columns?",
)
def joined_in_reverse(context: Tensor) -> Tensor:
    return heads_side_by_side(context.flip(1))


@slip(
    "merge",
    "The heads are averaged (and repeated to fit), not laid side by side.",
    "To concatenate is to keep all of them.",
)
def joined_by_mean(context: Tensor) -> Tensor:
    return heads_side_by_side(context.mean(1, keepdim=True).expand_as(context))


@slip(
    "leave",
    "`w_o` takes no part: what comes out is the concatenation of the heads.",
    "What mixes the heads?",
)
def without_w_o(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return merged


@slip(
    "leave",
    "x is added to the output: a residual connection belongs around the module, not in it.",
    "What remains if you leave the sum out?",
)
def with_residual(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return x + layers.apply("w_o", merged)


@slip(
    "leave",
    "A normalisation follows `w_o`: a layer norm belongs around the module, not in it.",
    "Which steps does the formula Concat(head_1, …, head_h) W^O have?",
)
def with_layer_norm(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return F.layer_norm(layers.apply("w_o", merged), merged.shape[-1:])


@slip(
    "leave",
    "x is added and a layer norm follows: both belong around the module, not in it.",
    "Which steps does the formula Concat(head_1, …, head_h) W^O have?",
)
def with_residual_and_norm(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return F.layer_norm(x + layers.apply("w_o", merged), merged.shape[-1:])


@slip(
    "leave",
    "`w_o` is applied twice.",
    "How often does W^O stand in the formula?",
)
def w_o_twice(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return layers.apply("w_o", layers.apply("w_o", merged))


@slip(
    "leave",
    "W_o is used untransposed, x @ w_o.weight.",
    "What does calling the layer, `self.w_o(x)`, do for you?",
)
def w_o_untransposed(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return layers.apply_transposed("w_o", merged)


@slip(
    "leave",
    "`w_v` is applied at the end where `w_o` should be.",
    "Which layer mixes the heads?",
)
def w_v_at_the_end(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return layers.apply("w_v", merged)


@slip(
    "leave",
    "A ReLU follows `w_o`: attention has no activation of its own.",
    "Can an output be negative?",
)
def with_relu(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    return layers.apply("w_o", merged).relu()


@slip(
    "give",
    "Two things come back, output and weights.",
    "What does the stub promise?",
)
def output_and_weights(output: Tensor, weights: Tensor, mask: Tensor | None) -> Any:
    return output, weights


@slip(
    "give",
    "The whole output row of a fully blocked query is set to zero: its *context* is zero, and then "
    "`w_o` still adds its bias.",
    "Where in the chain softmax, V, concatenation, w_o does the zero belong?",
)
def zero_output_row(output: Tensor, weights: Tensor, mask: Tensor | None) -> Any:
    if mask is None:
        return output
    gone = mask.expand(weights.shape).all(-1).all(1)  # (B, T): blocked for every head
    return output.masked_fill(gone[..., None], 0.0)


@slip(
    "give",
    "NaN is mended at the very end: where one head's row is blocked, `w_o` has spread its NaN over "
    "the whole token before, and the other heads are lost.",
    "Where in the chain softmax, V, concatenation, w_o does the zero belong?",
)
def mended_at_the_end(output: Tensor, weights: Tensor, mask: Tensor | None) -> Any:
    if mask is None:
        return output
    gone = mask.expand(weights.shape).all(-1).any(1)
    return output.masked_fill(gone[..., None], 0.0)


@slip(
    WHOLE,
    "The future is always blocked, whatever mask is given.",
    "Where does the triangle come from if the caller has not passed it?",
)
def always_causal(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    blocked = future(x.shape[1])
    return MultiHeadAttention.right(x, blocked if mask is None else blocked | mask, layers)


@slip(
    WHOLE,
    "The scale comes after the softmax.",
    "Where does √d_k stand in softmax(Q Kᵀ / √d_k) V?",
)
def scale_after_softmax(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    root = math.sqrt(x.shape[-1] / layers.n_heads)
    return MultiHeadAttention.right(
        x,
        mask,
        layers,
        scale=lambda scores, Q, K: scores,
        normalise=lambda scores: scores.softmax(-1) / root,
    )


# Last, since some of these come to the same as a slip above, which says it better.
MultiHeadAttention.adopt(attention, "scale", "product", "normalise")
