"""Exercise 11, notebook 06: the whole class, in its steps."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product as every
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mha_course.engine.attempt import Trial
from mha_course.engine.beyond import right_too
from mha_course.engine.blocks import Way
from mha_course.engine.gradients import has_nan
from mha_course.engine.inputs import unchanged
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, Returned, run
from mha_course.exercises import WHOLE, Case, Exercise, Step, exercise, nb01, nb03, nb04
from mha_course.exercises.nb06_layers import NAMES, STUB, Layers, call, scoring_low


def into_heads(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    return x.view(B, T, h, D // h).transpose(1, 2)


def gradient_with_blocked_rows(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    for note, finding in _NAN_GRADIENTS.items():
        if has_nan(MultiHeadAttention, answer, next(c for c in cases if c.note == note)):
            return finding
    return None


def low_scores_in_half(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    """One head, whose first token has one open key, and √d_k times its score is below 65504."""
    case = next(c for c in cases if c.sizes["n_heads"] == 1)
    x, _, layers = case.inputs
    low = scoring_low(layers, case.sizes, 2e4).expand(len(x), 1, -1)
    x = torch.cat([low, x[:, 1:]], 1).to(torch.float16)
    inputs = x, nb04.future(x.shape[1]), layers.to(torch.float16)
    note = "in float16, with a causal mask, where the first token scores itself near −2e4,"
    asks = "What has to lie below every score, whatever the dtype?"
    return right_too(MultiHeadAttention, answer, Case(inputs, {}, note, asks=asks))


_NAN_GRADIENTS = {
    "with every key of query 1 blocked": nb04.nan_of_empty_rows(
        "The output is right even where a row is blocked, but the *gradient* of the weights"
    ),
    "where scores are as large as 1e4": nb04.nan_of_overflow(
        "The output is right, but where scores are large the *gradient* of the weights"
    ),
}


@exercise(
    11,
    "06",
    reread="The formula",
    half=True,
    make_cases=lambda: (),
    gives=("output (B, T, d_model)",),
    stages="project split product scale fill normalise arrange >leave leave",
    bind=STUB.bind,
    further=(gradient_with_blocked_rows, low_scores_in_half),
    ready_made=(
        *("split_heads", "scaled_dot_product_attention", "merge_heads", "masked_softmax"),
        *("textbook_attention", "multi_head_attention_forward", "MultiheadAttention"),
    ),
)
def MultiHeadAttention(
    x,
    mask,
    layers,
    *,
    project,
    split,
    product,
    scale,
    read,
    fill,
    normalise,
    empty,
    arrange,
    order,
    leave,
    give,
):
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
    context = order(arrange(weights @ V))
    output = leave(context.reshape(x.shape), layers, x)
    return give(output, weights, mask)


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
    Q, K, V = layers.projected(x)
    values_of_keys = (Q, K, layers.apply("w_v", K))
    "The values are made from the keys, which were projected already: `w_v` of `w_k` of x."
    h = layers.n_heads
    thirds = torch.cat((Q, K, V), -1).unflatten(-1, (h, 3, -1)).unbind(-2)
    thirds_of_each_head = tuple(third.flatten(-2) for third in thirds)
    """The columns lie as all queries, all keys, all values, and are read head by head, three pieces
    for each."""
    pieces = x.unflatten(-1, (h, -1))
    blocks = (getattr(layers.module, name).weight for name in NAMES[:3])
    d_k = pieces.shape[-1]
    pieces_projected = tuple((pieces @ block[:d_k, :d_k].mT).flatten(-2) for block in blocks)
    """x is cut into heads first, and one small projection serves all of them: no head sees the
    whole token. | How many numbers of a token should a query depend on?"""
    return Q, K, V


def wrong_layers() -> Iterator[Way]:
    """Queries, keys and values, each made by any of the layers, or some of them by none."""
    asks = "Which layer makes which of the three?"
    usual = (0, 1, 2)

    def rare(choice: Any) -> tuple[bool, int]:
        return None in choice, sum(a != b for a, b in zip(choice, usual, strict=True))

    some_by_none = every((0, None), (1, None), (2, None))
    for choice in sorted(dict.fromkeys([*every(usual, repeat=3), *some_by_none]), key=rare):
        if choice == usual:
            continue
        names = zip(("queries", "keys", "values"), usual, choice, strict=True)
        does = ", ".join(
            f"the {name} are {'x itself' if by is None else f'made by `{NAMES[by]}`'}"
            for name, own, by in names
            if by != own
        )
        if unused := [f"`{NAMES[i]}`" for i in usual if i not in choice]:
            does += f": {' and '.join(unused)} {'are' if unused[1:] else 'is'} not used"
        if choice == (1, 0, 2):  # K Qᵀ comes to the same
            does = "queries and keys have changed places: `w_k` makes the queries, `w_q` the keys"

        def project(x: Tensor, layers: Layers, choice: Any = choice) -> Any:
            projected = layers.projected(x)
            return tuple(x if i is None else projected[i] for i in choice)

        key = "made_by_" + "".join("x" if i is None else "qkv"[i] for i in choice)
        yield key, f"{does[0].upper()}{does[1:]}.", asks, project


MultiHeadAttention.step(wrong_layers(), at="project")


@MultiHeadAttention.step
def split(x, h, which):
    """A head owns d_k neighbouring columns. Which of the two sizes has to come last?"""
    split_by_view = by_view(x, h)
    """The heads are cut by `view` alone: head 0 gets the first T/h tokens instead of the first d_k
    columns of all tokens. | Every head should see all tokens. Which axis must be cut first, and
    which must then change places?"""
    split_interleaved = like_cards(x, h)
    """The columns are dealt out like cards: head 0 gets columns 0, h, 2h, … That comes from cutting
    into (d_k, h) instead of (h, d_k)."""
    split_same_columns = into_heads(x, h)[:, :1].expand(-1, h, -1, -1)
    "Every head gets the same columns, those of head 0. | Which columns belong to head 1?"
    return into_heads(x, h)


def by_view(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, h, T, D // h)


def overlapping(x: Tensor, h: int) -> Tensor:
    return x.unfold(-1, x.shape[-1] // h, 1)[:, :, :h].transpose(1, 2)


def like_cards(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


@MultiHeadAttention.step(
    at="split", read=lambda mask, scores: mask[:, :1] if mask.ndim == 4 else mask
)
def without_cut(x, h, which):
    not_split = x[:, None]
    """There is only one head: attention runs over all d_model dimensions at once, and n_heads is
    not used. | Where should x be cut into heads?"""


@MultiHeadAttention.step(at="split", order=(None, unchanged))
def left_in_place(x, h, which):
    not_transposed = x.unflatten(-1, (h, -1))
    """The heads are cut, but T and h do not change places: the axes are (B, T, h, d_k), and the
    heads of one token look at each other where its tokens should. | Attention works on the last two
    axes. Which two should they be, and which call brings them there?"""


def to_the_wrong_place() -> Iterator[tuple[Way, tuple[Step, ...], tuple[Step | None, ...]]]:
    """Axes exchanged after the cut, but not T and h; the ways to scale there, and to go back."""
    for key, (a, b), axes in (("1_3", (1, 3), "(B, d_k, h, T)"), ("2_3", (2, 3), "(B, T, d_k, h)")):

        def split(x: Tensor, h: int, which: str, a: int = a, b: int = b) -> Tensor:
            return x.unflatten(-1, (h, -1)).transpose(a, b)

        def scale(scores: Tensor, Q: Tensor, K: Tensor, at: int = 4 - b if a == 1 else a) -> Tensor:
            return scores / math.sqrt(Q.shape[at])

        does = f"After the cut axes {a} and {b} change places: they are {axes} then, and no head "
        asks = "Attention works on the last two axes. Which two should they be?"
        way = f"transposed_{key}", f"{does}has all tokens in its rows.", asks, split
        back = partial(torch.transpose, dim0=a, dim1=b)
        yield way, (scale,), (None, unchanged, back)


for way, scales, orders in to_the_wrong_place():
    MultiHeadAttention.step([way], at="split", scale=(None, *scales), order=orders)


@MultiHeadAttention.step(at="split", order=lambda context: context.permute(0, 2, 3, 1))
def dealt_and_gathered(x, h, which):
    interleaved_throughout = like_cards(x, h)
    """The columns are dealt out like cards, head 0 gets columns 0, h, 2h, …, and the heads are
    joined the same way: (d_k, h) in place of (h, d_k), twice. | A head owns d_k neighbouring
    columns. Which of the two sizes has to come last?"""


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
                return wrongly(x, h) if which in only else into_heads(x, h)

            yield (
                f"split_{key}_{only}",
                f"Q, K and V are not cut alike: {spoken} {how}, the rest comes out right.",
                "Can one and the same line cut all three?",
                split,
            )


MultiHeadAttention.step(split_in_part(), at="split")


@MultiHeadAttention.step
def read(mask, scores):
    """Which axis of the scores do the keys lie along?"""
    mask_turned = mask.mT
    "Queries and keys of the mask are exchanged: what it blocks as a key is blocked as a query."
    B, h, T, _ = scores.shape
    masks_tiled = mask.expand(B, h, T, T)[:, 0].repeat(h, 1, 1).view(B, h, T, T)
    """The masks of the batch are repeated for the heads in the wrong order: a sequence gets
    another's. | Which axes may the mask have, and what does each of them count?"""
    first_mask_for_all = mask[:1, :1] if mask.ndim == 4 else mask
    """One mask is used for all: that of sequence 0 and head 0. | Which axes may the mask have, and
    how long can they be?"""


MultiHeadAttention.adopt(
    nb04.masked_softmax,
    "read",
    "fill",
    "empty",
    but=("only_if_all_is_blocked",),  # w_o spreads any NaN over the token
)


MultiHeadAttention.adopt(nb03.merge_heads, "arrange", "order")


@MultiHeadAttention.step
def leave(merged, layers, x):
    """Which steps does the formula Concat(head_1, …, head_h) W^O have?"""
    without_w_o = merged
    "`w_o` is not used: the result is the concatenation of the heads. | What mixes the heads?"
    with_residual = x + layers.apply("w_o", merged)
    """x is added to the output: a residual connection belongs around the module, not in it. | What
    remains if you leave the sum out?"""
    with_residual_and_norm = F.layer_norm(x + layers.apply("w_o", merged), merged.shape[-1:])
    "x is added and a layer norm follows: both belong around the module, not in it."
    return layers.apply("w_o", merged)


@MultiHeadAttention.step
def give(output, weights, mask):
    """Where in the chain softmax, V, concatenation, w_o does the zero belong?"""
    output_and_weights = (output, weights)
    "Two things are returned, output and weights. | What does the exercise ask for?"
    nobody = torch.zeros_like(weights).bool()
    gone = (nobody if mask is None else nobody | mask).all(-1)
    zero_output_row = output.masked_fill(gone.all(1)[..., None], 0.0)
    """The whole output row of a fully blocked query is set to zero: its *context* is zero, and then
    `w_o` still adds its bias."""
    mended_at_the_end = output.masked_fill(gone.any(1)[..., None], 0.0)
    """A token's whole output row is 0 where a head has nothing left to look at, even if only one:
    the other heads and `w_o`'s bias are lost. (Blanking, or replacing NaN, *after* `w_o` does
    that.)"""
    return output


@MultiHeadAttention.step(at=WHOLE)
def all_of_it(x, mask, layers):
    right = MultiHeadAttention.right
    blocked = nb04.future(x.shape[1])
    only_causal = right(x, blocked, layers)
    """The future is always blocked, and the mask that is given is not used. | Which keys does the
    caller want to be blocked?"""
    always_causal = right(x, blocked if mask is None else blocked | mask, layers)
    """The future is always blocked, whatever mask is given. | Where does the triangle come from if
    the caller has not passed it?"""
    causal_without_a_mask = right(x, blocked if mask is None else mask, layers)
    """Where no mask is given, the future is blocked. | Which keys does a caller want to be blocked
    who passes no mask?"""
    turned = x.transpose(0, 1)
    tokens_first = right(turned, mask, layers).transpose(0, 1)
    """Tokens of one sequence do not see each other, and those of different sequences do: axis 0 is
    taken for the tokens, and axis 1 for the batch. | Which axis of (B, T, d_model) counts them?"""
    tokens_first_unmasked = right(turned, None, layers).transpose(0, 1)
    "= tokens_first"
    root = math.sqrt(x.shape[-1] / layers.n_heads)
    scale_after_softmax = right(
        x, mask, layers, scale=unchanged, normalise=lambda scores: scores.softmax(-1) / root
    )
    "The scale comes after the softmax. | Where does √d_k stand in softmax(Q Kᵀ / √d_k) V?"
    Q, K, V = layers.projected(x)
    scores = Q @ K.mT / root
    weights = (scores if mask is None else scores.masked_fill(mask, -1e9)).softmax(-1)
    never_split = layers.apply("w_o", weights @ V)
    """x is never cut into heads: one attention runs over all d_model dimensions, and n_heads is
    only used in the scale. | How many weights does a query have with h heads?"""
    kept = weights if mask is None else weights.masked_fill(mask.all(-1, keepdim=True), 0.0)
    never_split_zeroed = layers.apply("w_o", kept @ V)
    "= never_split"


# Last, since some of these come to the same as a slip above, which says it better.
MultiHeadAttention.adopt(
    nb01.attention,
    "scale",
    "product",
    "normalise",
    but=(
        *("roles_exchanged", "query_with_query"),  # wrong layers
        *("by_root_t_q", "by_root_axis_1", "by_root_axis_1_of_k"),  # T_k is T_q, and axis 1 h
        *("softmax_without_axis", "causal_softmax"),
    ),
)


MultiHeadAttention.step(
    nb04.normalise_and_zero, at="normalise", fill=nb04.minus_1e9, empty=nb04.zero_where_blocked
)


# --- in two parts: what enters `w_o`, and what is made of it --------------------------------------


up_to_w_o = Exercise(
    partial(MultiHeadAttention.in_steps, leave=unchanged, give=unchanged),
    11,
    "06",
    make_cases=tuple,
    gives=("merged (B, T, d_model)",),
)


@exercise(11, "06", make_cases=lambda: (), gives=("output (B, T, d_model)",))
def from_w_o_on(merged, layers, x, *, leave):
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
        outcome = run(call, (x, mask, layers), set())
        hook.remove()
        if isinstance(outcome, Raised):
            continue
        if len(seen) != 1 or seen[0].shape != x.shape:
            return
        merged = seen[0].detach()
        before.append(
            replace(trial, expected=up_to_w_o.result_on(trial.case), outcome=Returned(merged))
        )
        case = replace(trial.case, inputs=(merged, layers, x))
        after.append(Trial(case, from_w_o_on.result_on(case), outcome))
    yield up_to_w_o, before
    yield from_w_o_on, after


MultiHeadAttention.trials_by_part = in_two_parts
