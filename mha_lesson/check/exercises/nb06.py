"""Exercise 11, notebook 06: the whole class."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from itertools import product as every
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lesson.check.engine import errors
from mha_lesson.check.engine.blocks import Way
from mha_lesson.check.engine.exercise import WHOLE, Bound, Case, Exercise, exercise
from mha_lesson.check.engine.further import right_too
from mha_lesson.check.engine.inputs import normal, strided, unchanged
from mha_lesson.check.engine.naming import Trial
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Raised, Returned, codes_of, run
from mha_lesson.check.exercises.nb01 import (
    attention,
    by_root_d_k,
    every_query_with_every_key,
    softmax_over_keys,
)
from mha_lesson.check.exercises.nb03 import merge_heads, side_by_side, tokens_before_heads
from mha_lesson.check.exercises.nb04 import (
    blocked_rows_to_zero,
    future,
    masked_softmax,
    minus_infinity,
    nan_gradient,
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
    _in: dict[torch.dtype, "Layers"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def to(self, dtype: torch.dtype) -> "Layers":
        """The same in another dtype: made once, for all cases of these layers."""
        if dtype not in self._in:
            self._in[dtype] = Layers(self.again().to(dtype), self.n_heads, self.remake)
        return self._in[dtype]

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
        cases += _remembering(layers, list(_cases(layers, sizes, masks, number)), number)
        if _degenerate(module):  # constant or equal weights hide mistakes
            cases += _cases(_randomised(layers), sizes, masks, number + 10)
    return Bound(_call, cases, partial(partial, _of_version))


def _call(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    return layers.module(x) if mask is None else layers.module(x, mask)


def _of_version(cls: Any, x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    """What another version of the class makes of the same modules."""
    module = cls.__new__(cls)
    vars(module).update(vars(layers.module))
    return _call(x, mask, replace(layers, module=module))


def _is_stub(module: nn.Module, d_model: int, codes: set[Any]) -> bool:
    """Whether `forward` is still to be written."""
    x, mask = torch.zeros(1, 2, d_model), torch.zeros(1, 1, 2, 2, dtype=torch.bool)
    for inputs in ((x,), (x, mask)):  # what returns with a mask only was attempted
        outcome = run(lambda *given: module(*given), inputs, codes)
        if isinstance(outcome, Raised):
            return isinstance(outcome.error, NotImplementedError) and outcome.on_purpose
        if outcome.value is not None and outcome.value is not ...:
            return False
    return True


def _layers(module: nn.Module, d_model: int) -> Finding | None:
    """Four nn.Linear of their own, under their names, d_model to d_model."""
    missing = [name for name in NAMES if not isinstance(getattr(module, name, None), nn.Linear)]
    if missing:
        have = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        found = f"there is {', '.join(f'`{n}`' for n in have)}" if have else "there is none"
        return Finding(
            "layer_names",
            f"The module has no `nn.Linear` named {', '.join(f'`{n}`' for n in missing)}; {found}.",
            "The exercise asks for four layers under four names. Where does `__init__` set them?",
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
    ({"B": 2, "T": 3, "d_model": 3, "n_heads": 3, "d_k": 1}, True),
)


_GIVEN: dict[int, tuple[list[Any], list[dict[Any, Any]]]] = {}  # by the number of a size


def _remembering(layers: Layers, cases: list[Case], number: int) -> list[Case]:
    """With what slips gave in the check before: with equal weights they give the same again."""
    parts = [getattr(layers.module, name) for name in NAMES]
    weights = [t if t is None else t.tolist() for part in parts for t in (part.weight, part.bias)]
    if number not in _GIVEN or _GIVEN[number][0] != weights:
        _GIVEN[number] = weights, [case.memory.given for case in cases]
    for case, given in zip(cases, _GIVEN[number][1], strict=True):
        case.memory.given = given
    return cases


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
        everything = torch.ones(T, T, dtype=torch.bool)
        yield Case((x, everything, layers), sizes, "with every key of every query blocked")
        yield Case((strided(x), future(T), layers), sizes, "with x not contiguous")
        wide = 60 * x
        alone = "without a mask, where scores are as large as 1e4"
        yield Case((wide, None, layers), sizes, alone, 2e-3, True)
        yield Case((wide, some, layers), sizes, "where scores are as large as 1e4", 2e-3, True)
        low = _scoring_low(layers, sizes).expand(B, 1, -1)
        x = torch.cat(
            [low, x[:, 1:-1], low], 1
        )  # the first row has one open key, as the last column
        note = "with a causal mask, where the first token scores itself near −1e4"
        yield Case((x, future(T), layers), sizes, note, 2e-3, True)


def _scoring_low(layers: Layers, sizes: Mapping[str, int], size: float = 1e4) -> Tensor:
    """A token that scores itself about −size in head 0: what is blocked has to score lower."""
    tokens = normal(64, sizes["d_model"], seed=77)
    for _ in range(3):  # a bias keeps scores from growing exactly with the square
        Q, K = (layers.apply(name, tokens)[:, : sizes["d_k"]] for name in ("w_q", "w_k"))
        scores = (Q * K).sum(-1) / math.sqrt(sizes["d_k"])
        low = scores.argmin()
        tokens = tokens[low : low + 1] * (size / scores[low].abs().clamp(min=1e-3)).sqrt()
    return tokens.detach()


def three_layers(x: Tensor, layers: Layers) -> tuple[Tensor, Tensor, Tensor]:
    """queries, keys and values before the cut"""
    return layers.projected(x)


def first_of_mask(mask: Tensor, scores: Tensor) -> Tensor:
    """The mask that one single head would get."""
    return mask[:, :1] if mask.ndim == 4 else mask


def into_heads(x: Tensor, h: int, which: str) -> Tensor:
    """the heads of queries, keys and values"""
    B, T, D = x.shape
    return x.view(B, T, h, D // h).transpose(1, 2)


def weights_times_values(weights: Tensor, V: Tensor) -> Tensor:
    """what the heads collect, weights · V"""
    return weights @ V


def heads_side_by_side(moved: Tensor, context: Tensor) -> Tensor:
    """the heads side by side, merged"""
    return side_by_side(moved, context)


def through_w_o(merged: Tensor, layers: Layers, x: Tensor) -> Tensor:
    """what leaves `w_o`"""
    return layers.apply("w_o", merged)


def gradient_with_blocked_rows(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    for note, finding in _NAN_GRADIENTS.items():
        if _leaves_nan(answer, next(c for c in cases if c.note == note)):
            return finding
    return None


def _leaves_nan(answer: Callable[..., Any], case: Case) -> bool:
    x, mask, layers = case.inputs
    learning = layers.learning()
    outcome = run(lambda: answer(x, mask.clone(), learning).sum().backward(), (), set())
    grads = [p.grad for p in learning.module.parameters() if p.grad is not None]
    return not isinstance(outcome, Raised) and any(bool(g.isnan().any()) for g in grads)


_NAN_GRADIENTS = {
    "with every key of query 1 blocked": nan_gradient(
        "output is right even where a row is blocked", "weights"
    ),
    "where scores are as large as 1e4": Finding(
        "nan_gradient",
        "The output is right, and where scores are large the *gradient* of the weights has NaN in "
        "it. (Where `exp` overflows at a blocked key, a zero in its place afterwards does not mend "
        "the way back: 0 · ∞ is NaN.)",
        "What does `exp` see of a blocked score, and could it be lowered before?",
    ),
}


def tells(answer: Callable[..., Any], trials: list[Trial]) -> Finding | None:
    """Which layers take no part; or which masks go wrong, if that can be said in short."""
    if idle := _idle(answer, trials):
        names = " and ".join(f"`{name}`" for name in idle).replace(" and ", ", ", len(idle) - 2)
        return Finding(
            "layers_idle",
            f"With other weights in {names} the output stays the same: "
            f"{'they take' if idle[1:] else 'it takes'} no part.",
            "Which lines of `forward` call the four layers, and where do their results go?",
        )
    masks = [(t.difference is not None, t.case.inputs[1]) for t in trials]
    for key, does, among in _MASKS:
        if all(wrong == (mask is not None and among(mask)) for wrong, mask in masks):
            return Finding(key, does, _WHOSE)
    return None


_WHOSE = (
    "Which axes do your scores have where they meet the mask? If they are those of one head, which "
    "part of the mask belongs to it?"
)
_MASKS: tuple[tuple[str, str, Callable[[Tensor], bool]], ...] = (
    (
        "masks_of_four_axes",
        "Without a mask all is right, and with one of two axes, (T, T). With every mask of four "
        "axes, (B, 1, 1, T) or (B, h, T, T), it goes wrong.",
        lambda mask: mask.ndim == 4,
    ),
    (
        "masks_of_heads",
        "Where one mask serves all heads, all is right. Wherever every head has a mask of its own, "
        "(B, h, T, T), it goes wrong.",
        lambda mask: mask.ndim == 4 and mask.shape[1] > 1,
    ),
)


def _idle(answer: Callable[..., Any], trials: list[Trial]) -> list[str]:
    """Layers whose weights change nothing where there are several tokens."""
    shown = [t for t in trials if isinstance(t.outcome, Returned) and t.case.sizes["T"] > 1][:3]

    def stays(name: str, trial: Trial) -> bool:
        x, mask, layers = trial.case.inputs
        other = Layers(layers.again().to(torch.float64), layers.n_heads, layers.remake)
        weight = getattr(other.module, name).weight.detach()
        weight += normal(*weight.shape, seed=97)
        outcome = run(answer, (x, mask, other), set())
        return isinstance(outcome, Returned) and trial.gives(outcome.value)

    return [name for name in NAMES if shown and all(stays(name, t) for t in shown)]


@exercise(
    11,
    "06",
    cases=lambda: (),
    gives=("output (B, T, d_model)",),
    bind=bind,
    tells=tells,
    further=(gradient_with_blocked_rows,),
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
    read: Any = unchanged,
    fill: Any = minus_infinity,
    normalise: Any = softmax_over_keys,
    empty: Any = blocked_rows_to_zero,
    mix: Any = weights_times_values,
    arrange: Any = unchanged,
    order: Any = tokens_before_heads,
    join: Any = heads_side_by_side,
    leave: Any = through_w_o,
    give: Any = unchanged,
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
    context = arrange(mix(weights, V))
    output = leave(join(order(context), context), layers, x)
    return give(output, weights, mask)


def _with_blocked_queries(cases: list[Case]) -> tuple[Any, ...]:
    x, _, layers = cases[0].inputs
    return x, (torch.arange(x.shape[1]) == 1)[:, None].expand(1, 1, -1, 1), layers


right_too(
    MultiHeadAttention,
    _with_blocked_queries,
    "With a mask (1, 1, T, 1)",
    "Which masks broadcast to (B, n_heads, T, T)?",
)


def _scoring_low_in_half(cases: list[Case]) -> tuple[Any, ...]:
    """One head, whose first token has one open key, and √d_k times its score is below 65504."""
    case = next(c for c in cases if c.sizes["n_heads"] == 1)
    x, _, layers = case.inputs
    low = _scoring_low(layers, case.sizes, 2e4).expand(len(x), 1, -1)
    x = torch.cat([low, x[:, 1:]], 1).to(torch.float16)
    return x, future(x.shape[1]), layers.to(torch.float16)


right_too(
    MultiHeadAttention,
    _scoring_low_in_half,
    "In float16, with a causal mask, where the first token scores itself near −2e4,",
    "What has to lie below every score, whatever the dtype?",
)


@MultiHeadAttention.step
def scale(scores, Q, K):
    """How many dimensions does the dot product of *one* head sum over?"""
    by_root_d_model = scores / math.sqrt(Q.shape[1] * Q.shape[-1])
    "The scores are divided by √d_model: each head's dot product sums over d_k dimensions only."
    by_root_h = scores / math.sqrt(Q.shape[1])
    "The scores are divided by √h, the root of the number of heads."


@MultiHeadAttention.step
def project(x, layers):
    """From what does each of the three start?"""
    nothing_projected = (x, x, x)
    "Nothing is projected: x itself is query, key and value. | What are `w_q`, `w_k` and `w_v` for?"
    one_layer_for_all = (layers.projected(x)[0],) * 3
    """One layer makes queries, keys and values alike: `w_q` is used three times. | What are `w_k`
    and `w_v` for?"""
    weights_untransposed = tuple(layers.apply_transposed(name, x) for name in NAMES[:3])
    """The weights are used untransposed (x @ w.weight): `nn.Linear` keeps a row for each output. |
    What does calling the layer, `self.w_q(x)`, do for you?"""
    biases_left_out = tuple(x @ getattr(layers.module, name).weight.mT for name in NAMES[:3])
    """The biases of `w_q`, `w_k` and `w_v` are left out (x @ w.weight.T). | What does calling the
    layer, `self.w_q(x)`, do for you?"""


def wrong_layers() -> Iterator[Way]:
    """Queries, keys and values, each made by any of the layers, or some of them by none."""
    asks = "Which layer makes which of the three?"
    usual = (0, 1, 2)

    def rare(choice: Any) -> tuple[bool, int]:
        return None in choice, sum(a != b for a, b in zip(choice, usual, strict=True))

    some_by_none = every(*((own, None) for own in usual))
    for choice in sorted(dict.fromkeys([*every(usual, repeat=3), *some_by_none]), key=rare):
        if choice in ((0, 1, 2), (0, 0, 0), (None, None, None)):
            continue
        names = zip(("queries", "keys", "values"), range(3), choice, strict=True)
        wrong = [
            f"the {name} are {'x itself' if by is None else f'made by `{NAMES[by]}`'}"
            for name, own, by in names
            if by != own
        ]
        unused = [f"`{NAMES[i]}`" for i in range(3) if i not in choice]
        lost = f": {' and '.join(unused)} {'take' if unused[1:] else 'takes'} no part" * bool(
            unused
        )
        does = ", ".join(wrong) + lost + "."
        if choice == (1, 0, 2):  # K Qᵀ comes to the same
            does = (
                "queries and keys have changed places: what `w_k` makes looks at what `w_q` makes."
            )

        def project(x: Tensor, layers: Layers, choice: Any = choice) -> Any:
            made = layers.projected(x)
            return tuple(x if i is None else made[i] for i in choice)

        key = "made_by_" + "".join("x" if i is None else "qkv"[i] for i in choice)
        yield key, does[0].upper() + does[1:], asks, project


MultiHeadAttention.step(wrong_layers(), at="project")


@MultiHeadAttention.step
def split(x, h, which):
    """A head owns d_k neighbouring columns. Which of the two sizes has to come last?"""
    split_by_view = by_view(x, h)
    """The heads are cut by `view` alone: head 0 gets the first T/h tokens instead of the first d_k
    columns of all tokens. | Every head should see all tokens. Along which axis has the cut to be
    made first, and which axes have to change places then?"""
    split_interleaved = like_cards(x, h)
    """The columns are dealt out like cards: head 0 gets columns 0, h, 2h, … That comes of cutting
    into (d_k, h) instead of (h, d_k)."""
    split_sizes_exchanged = x.unflatten(-1, (-1, h)).transpose(1, 2)
    "h and d_k are exchanged: the attention has d_k heads of h dimensions."
    split_same_columns = into_heads(x, h, which)[:, :1].expand(-1, h, -1, -1)
    "Every head gets the same columns, those of head 0. | Which columns belong to head 1?"


def by_view(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, h, T, D // h)


def overlapping(x: Tensor, h: int) -> Tensor:
    return x.unfold(-1, x.shape[-1] // h, 1)[:, :, :h].transpose(1, 2)


def like_cards(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


@MultiHeadAttention.step(at="split", read=first_of_mask)
def without_cut(x, h, which):
    not_split = x[:, None]
    """There is only one head: attention runs over all d_model dimensions at once, and n_heads takes
    no part. | Where should x be cut into heads?"""


@MultiHeadAttention.step(at="split", order=lambda context: context.permute(0, 2, 3, 1))
def dealt_and_gathered(x, h, which):
    interleaved_throughout = like_cards(x, h)
    """The columns are dealt out like cards, head 0 gets columns 0, h, 2h, …, and the heads are
    joined the same way: (d_k, h) in place of (h, d_k), twice. | A head owns d_k neighbouring
    columns. Which of the two sizes has to come last?"""


@MultiHeadAttention.step(at="split", join=(None, lambda _, context: context.flatten(2)))
def without_exchange(x, h, which):
    heads_attend = x.unflatten(-1, (h, -1))
    """Heads and tokens have not changed places: every token attends among its own heads, (B, T, h,
    d_k), and never looks at another token. | Attention works on the last two axes. Which two should
    they be?"""


def split_in_part() -> Iterator[Way]:
    """Heads cut wrongly in some of Q, K and V only."""
    for only, spoken in (
        ("v", "the values"),
        ("k", "the keys"),
        ("q", "the queries"),
        ("qk", "queries and keys"),
    ):
        for key, how, wrongly in (
            ("view", "are cut by `view` alone", by_view),
            ("interleaved", "are dealt out like cards", like_cards),
            ("overlapping", "begin at column i instead of i·d_k", overlapping),
        ):

            def split(x: Any, h: int, which: str, only: str = only, wrongly: Any = wrongly) -> Any:
                return wrongly(x, h) if which in only else into_heads(x, h, which)

            yield (
                f"split_{key}_{only}",
                f"Q, K and V are not cut alike: {spoken} {how}, the rest comes out right.",
                "Can one and the same line cut all three?",
                split,
            )


MultiHeadAttention.step(split_in_part(), at="split")


@MultiHeadAttention.step
def read(mask, scores):
    first_mask_for_all = mask[:1, :1] if mask.ndim == 4 else mask
    """One mask is used for all: that of sequence 0 and head 0. | Which axes may the mask have, and
    how long can they be?"""


MultiHeadAttention.adopt(
    masked_softmax,
    "read",
    "fill",
    "empty",
    but=("only_if_all_is_blocked",),  # w_o spreads any NaN over the token
)


@MultiHeadAttention.step
def mix(weights, V):
    """Output row i of a head is a mean of the values by the weights of query i. Which product?"""
    weights_turned = weights.mT @ V
    "The weights are transposed before they meet V: value j is shared out instead of collected."


MultiHeadAttention.adopt(merge_heads, "arrange", "order")


@MultiHeadAttention.step
def leave(merged, layers, x):
    """Which steps does the formula Concat(head_1, …, head_h) W^O have?"""
    without_w_o = merged
    "`w_o` takes no part: what comes out is the concatenation of the heads. | What mixes the heads?"
    with_residual = x + layers.apply("w_o", merged)
    """x is added to the output: a residual connection belongs around the module, not in it. | What
    remains if you leave the sum out?"""
    with_residual_and_norm = F.layer_norm(x + layers.apply("w_o", merged), merged.shape[-1:])
    "x is added and a layer norm follows: both belong around the module, not in it."
    w_o_untransposed = layers.apply_transposed("w_o", merged)
    """W_o is used untransposed, x @ w_o.weight. | What does calling the layer, `self.w_o(x)`, do
    for you?"""
    with_bias_of_nothing = merged @ layers.module.w_o.weight.mT
    """The bias of `w_o` is left out (x @ w_o.weight.T). | What does calling the layer,
    `self.w_o(x)`, do for you?"""


@MultiHeadAttention.step
def give(output, weights, mask):
    """Where in the chain softmax, V, concatenation, w_o does the zero belong?"""
    output_and_weights = (output, weights)
    "Two things come back, output and weights. | What does the exercise ask for?"
    weights_alone = weights
    "The weights come back and not the output. | What does the exercise ask for?"
    nobody = torch.zeros_like(weights).bool()
    gone = (nobody if mask is None else nobody | mask).all(-1)
    zero_output_row = output.masked_fill(gone.all(1)[..., None], 0.0)
    """The whole output row of a fully blocked query is set to zero: its *context* is zero, and then
    `w_o` still adds its bias."""
    mended_at_the_end = output.masked_fill(gone.any(1)[..., None], 0.0)
    """A token's whole output row is 0 as soon as *one* head has nothing left to look at: the other
    heads are lost. (That comes of blanking, or of mending NaN, behind `w_o` and not before.)"""


@MultiHeadAttention.step(at=WHOLE)
def all_of_it(x, mask, layers):
    right = MultiHeadAttention.right
    blocked = future(x.shape[1])
    only_causal = right(x, blocked, layers)
    """The future is blocked, always, and the mask that is given takes no part. | Which keys does
    the caller want to be blocked?"""
    always_causal = right(x, blocked if mask is None else blocked | mask, layers)
    """The future is always blocked, whatever mask is given. | Where does the triangle come from if
    the caller has not passed it?"""
    tokens_first = right(x.transpose(0, 1), mask, layers).transpose(0, 1)
    """Axis 0 is taken for the tokens and axis 1 for the batch: tokens at the same place attend
    among their sequences. | Which axis of (B, T, d_model) counts the tokens?"""
    root = math.sqrt(x.shape[-1] / layers.n_heads)
    Q, K, V = layers.projected(x)
    scores = Q @ K.mT / root
    weights = (scores if mask is None else scores.masked_fill(mask, -1e9)).softmax(-1)
    never_split = layers.apply("w_o", weights @ V)
    """x is never cut into heads: one attention runs over all d_model dimensions, and n_heads only
    takes part in the scale. | How many weights does a query have with h heads?"""
    scale_after_softmax = right(
        x, mask, layers, scale=unchanged, normalise=lambda scores: scores.softmax(-1) / root
    )
    "The scale comes after the softmax. | Where does √d_k stand in softmax(Q Kᵀ / √d_k) V?"


# Last, since some of these come to the same as a slip above, which says it better.
MultiHeadAttention.adopt(
    attention,
    "scale",
    "product",
    "normalise",
    but=(
        *("roles_exchanged", "query_with_query"),  # wrong layers
        *("by_root_t_q", "by_root_axis_1", "by_root_axis_1_of_k"),  # T_k is T_q, and axis 1 h
        *("softmax_over_axis_2", "softmax_without_axis", "causal_softmax"),
    ),
)


# --- in two parts: what enters `w_o`, and what is made of it --------------------------------------


up_to_w_o = Exercise(
    partial(MultiHeadAttention.right, leave=unchanged),
    11,
    "06",
    cases=tuple,
    gives=("merged (B, T, d_model)",),
)


@exercise(11, "06", cases=lambda: (), gives=("output (B, T, d_model)",))
def from_w_o_on(merged: Tensor, layers: Layers, x: Tensor, *, leave: Any = through_w_o) -> Any:
    """W^O of the heads side by side."""
    return leave(merged, layers, x)


up_to_w_o.adopt(MultiHeadAttention, *(set(MultiHeadAttention.sites) - {"leave", "give"}))
from_w_o_on.adopt(MultiHeadAttention, "leave")


def in_two_parts(trials: list[Trial]) -> Iterator[tuple[Any, list[Trial]]]:
    """What a hook on `w_o` sees divides the module; nothing where it is not called once.

    Trials that raise are left out.
    """
    before, after = [], []
    for trial in trials:
        x, mask, layers = trial.case.inputs
        seen: list[Tensor] = []
        hook = layers.module.w_o.register_forward_pre_hook(
            lambda _, given, seen=seen: seen.append(given[0])
        )
        outcome = run(_call, (x, mask, layers), set())
        hook.remove()
        if isinstance(outcome, Raised):
            continue
        if len(seen) != 1 or seen[0].shape != x.shape:
            return
        merged = seen[0].detach()
        before.append(replace(trial, expected=up_to_w_o.on(trial.case), outcome=Returned(merged)))
        case = replace(trial.case, inputs=(merged, layers, x))
        after.append(Trial(case, from_w_o_on.on(case), outcome))
    yield up_to_w_o, before
    yield from_w_o_on, after


MultiHeadAttention.apart = in_two_parts
