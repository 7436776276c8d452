"""The exercises in another layout, for practice: what is understood survives it.

Each is a block of slips that returns the right way; `course` in it is the right answer of the
exercise that it stands for, and that exercise's slips meet those of the block. Learners read the
docstring; a string below it is asked where a slip has no question of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch

from mha_course.engine.families import orders_of_axes
from mha_course.engine.inputs import normal, unchanged
from mha_course.engine.problem import Case, Step
from mha_course.exercises import Exercise, exercise, nb01, nb02, nb03, nb04, nb05, nb06, nb07, nb11
from mha_course.exercises.nb06_layers import NAMES, Layers
from mha_course.exercises.nb10 import rotate

VARIANTS: dict[str, list[Exercise]] = {}  # of each exercise, by its name
TOLD = ("i", "lengths", "pad")  # inputs that the sizes do not tell


def variant(
    original: Exercise,
    *gives: str,  # as of any problem; without it, all that the exercise gives and asks further
    inputs_of: Step = lambda *inputs: (
        inputs
    ),  # its inputs, of the exercise's; none leaves a case out
    cases: Step | None = None,  # in place of the exercise's
    but: tuple[str, ...] = (),  # steps that have one way only, and slips that would not be true
    half: bool = False,  # as of any problem
    **instead: Step,  # steps of the exercise that are done in another way here
) -> Callable[[Step], Exercise]:
    """Makes a variant of an exercise."""

    def make(block: Step) -> Exercise:
        @wraps(block)
        def in_steps(*inputs: Any, layout: Step, **steps: Step) -> Any:
            return layout(partial(original.right, **instead | steps), *inputs)

        def make_cases() -> Iterator[Case]:
            for case in (cases or original.make_cases)():
                if inputs := inputs_of(*case.inputs):
                    named = zip(new.arguments, map(torch.as_tensor, inputs), strict=True)
                    values = [f"with {n} = {x.tolist()}" for n, x in named if n in TOLD]
                    note = ", ".join(filter(None, (case.note, *values)))
                    yield replace(case, inputs=inputs, note=note)

        def through(ask: Step) -> Step:
            return lambda answer, _: ask(
                lambda *inputs: answer(*inputs_of(*inputs)), original.cases
            )

        more = {"gives": gives or original.gives, "gradient": original.gradient, "half": half}
        new = exercise(original.number, original.notebook, make_cases=make_cases, **more)(in_steps)
        new.stages = original.stages
        new.further = () if gives else tuple(map(through, original.further))
        new.arguments = new.arguments[1:]
        theirs = [name for name in original.sites if name not in (*but, *instead)]
        new.sites = ("layout", *theirs, *instead)
        new.adopt(original, *theirs, but=but)
        new.step(block, at="layout")
        VARIANTS.setdefault(original.name, []).append(new)
        return new

    return make


@variant(
    nb01.attention_scores,
    "scores (B, T_q, T_k)",
    inputs_of=lambda Q, K: (Q.transpose(0, 1), K.transpose(0, 1)) * (Q.ndim == 3),
    but=(*nb11.DO_NOT_FIT, "by_root_axis_0", "by_root_axis_1", "by_root_axis_1_of_k"),
)
def scores_tokens_first(course, Q, K):
    """Tokens come first, as in PyTorch's layers by default: Q is $(T_q, B, d_k)$, K is
    $(T_k, B, d_k)$. Give the scaled scores $(B, T_q, T_k)$."""
    "Which axis of Q counts the sequences?"
    across_the_batch = course(Q, K)
    "Sequences are compared with each other: the axis in front, of tokens, is taken for the batch."
    scores = course(Q.transpose(0, 1), K.transpose(0, 1))
    queries_first = scores.transpose(0, 1)
    "The scores have shape (T_q, B, T_k). | Which axis should come first?"
    return scores


@variant(
    nb01.attention, "output (B, T, d_model)", cases=nb02.tokens_and_weights, but=("product", "give")
)
def attention_from_fused(course, X, W_qkv):
    r"""One head, from its parameters on: X is $(B, T, d_\text{model})$, and $W_{qkv}$ is
    $(3 \cdot d_\text{model}, d_\text{model})$, its rows stacked Q, K, V. Give what each token
    gathers, $(B, T, d_\text{model})$; $d_k$ is $d_\text{model}$ here."""
    "Which rows of the fused weights belong to the queries?"
    q, k, v = (X @ W_qkv.mT).chunk(3, -1)
    queries_and_keys_exchanged = course(k, q, v)[0]
    "The first rows are taken for the keys, and the second for the queries."
    keys_and_values_exchanged = course(q, v, k)[0]
    "The second rows are taken for the values, and the third for the keys."
    dealt_out = course(*(X @ W_qkv.mT).unflatten(-1, (-1, 3)).unbind(-1))[0]
    "The rows are dealt out in turn, as if they came q k v, q k v, and so on."
    return course(q, k, v)[0]


def tokens_and_fused_weights() -> Iterator[Case]:
    for B, h, T, d_k in nb03.SIZES:
        sizes = {"B": B, "T": T, "n_heads": h, "d_k": d_k, "d_model": (D := h * d_k)}
        yield Case((normal(B, T, D, seed=T), normal(3 * D, D, seed=T + 20), h), sizes)


@variant(
    nb02.project_qkv,
    *(f"{name} (B, n_heads, T, d_k)" for name in "QKV"),
    cases=tokens_and_fused_weights,
    but=("cut", "not_cut", "stacked", "each_transposed", "queries_scaled"),
)
def project_head_by_head(course, X, W_qkv, n_heads):
    r"""Some models stack the rows of $W_{qkv}$ head by head: q, k and v of head 0, then of head 1,
    and so on. X is $(B, T, d_\text{model})$. Give (Q, K, V), each $(B, n_\text{heads}, T, d_k)$."""
    "Of the first 3·d_k rows, which belong to head 0?"
    h, project = n_heads, partial(course, X, W_qkv)
    three_thirds = project(cut=lambda y: y.unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4))
    "The rows are read as all of Q, all of K, all of V; here they come head by head."
    dimensions_dealt_out = project(cut=lambda y: y.unflatten(-1, (h, -1, 3)).permute(4, 0, 2, 1, 3))
    "Within a head the rows are dealt out in turn, q k v, q k v; here its q's all come first."
    tokens_before_heads = project(cut=lambda y: y.unflatten(-1, (h, 3, -1)).unbind(3))
    "The axes are (B, T, n_heads, d_k): the heads have not come before the tokens."
    return project(cut=lambda y: y.unflatten(-1, (h, 3, -1)).permute(3, 0, 2, 1, 4))


@variant(
    nb03.split_heads,
    inputs_of=lambda x, n_heads: (x.transpose(0, 1), n_heads),
    order=lambda x: x.permute(1, 2, 0, 3),
)
def split_tokens_first(course, x, n_heads):
    r"""Tokens come first: x is $(T, B, d_\text{model})$, the heads side by side in the last axis,
    head 0 first. Give $(B, n_\text{heads}, T, d_k)$."""
    return course(x, n_heads)


@variant(
    nb03.merge_heads,
    "merged (T, B, n_heads·d_k)",
    order=lambda x: x.permute(2, 0, 1, 3),
    join=lambda y, _: y.flatten(2),
)
def merge_tokens_first(course, x):
    r"""The way back, for a layer whose tokens come first: x is $(B, n_\text{heads}, T, d_k)$; give
    $(T, B, n_\text{heads} \cdot d_k)$, with head 0 first in every row."""
    not_permuted = course(x, order=lambda x: x.reshape(x.shape[2], x.shape[0], x.shape[1], -1))
    "No axis is moved before the heads are joined. | Which axis comes first, and which two join?"
    return course(x)


BATCH_FIRST = "The input has its tokens first. Which axis should come first, and which two last?"
BEFORE = "In which order do the axes stand before h and d_k become one?"
split_tokens_first.step(orders_of_axes("T B h d_k", "B h T d_k", BATCH_FIRST), at="order")
merge_tokens_first.step(orders_of_axes("B h T d_k", "T B h d_k", BEFORE), at="order")


@variant(nb04.causal_mask, "mask (T, T)", but=("keep_mask", "past_blocked", "nothing_blocked"))
def causal_keep(course, T):
    """The other convention, that of `F.scaled_dot_product_attention`: give the bool mask $(T, T)$
    that is `True` where a query *may* look. No query may look ahead."""
    blocked = course(T)
    """Your `True` means that looking is forbidden: that is the other convention. | `True` means
    *look* here. May query 2 look at key 1, at key 2, at key 3?"""
    return course(T, triangle=lambda T: ~course.keywords["triangle"](T))


def padded(lengths: torch.Tensor, T: int) -> tuple[torch.Tensor, int]:
    pad = T % 3
    tokens = (normal(len(lengths), T, seed=T).abs() * 5).to(lengths.dtype)
    tokens += tokens >= pad  # every number but that of padding
    return tokens.masked_fill(torch.arange(T) >= lengths[:, None], pad), pad


@variant(nb04.padding_mask, inputs_of=padded, but=("where",))
def padding_from_ids(course, tokens, pad):
    """The lengths are not given; `tokens` is $(B, T)$, and its padding holds the number `pad`. Give
    the bool mask $(B, 1, 1, T)$, `True` at padding keys."""
    "`True` means *blocked* here. Which keys are to be blocked?"
    mask = partial(course, tokens[:, 0], tokens.shape[1])
    real_tokens = mask(where=lambda *_: tokens != pad)
    "True and False are the wrong way round: your `True` marks the real tokens."
    zeros = mask(where=lambda *_: tokens == 0)
    "Padding is taken to be 0, whatever `pad` says."
    up_to_pad = mask(where=lambda *_: tokens <= pad)
    "Every number up to `pad` is blocked, not `pad` alone."
    return mask(where=lambda *_: tokens == pad)


@variant(
    nb04.masked_softmax,
    inputs_of=lambda scores, mask: (scores, ~mask),
    but=("true_means_keep",),
    half=True,
)
def softmax_of_kept(course, scores, keep):
    r"""The other convention: `keep` is bool, broadcasts to the scores $(\dots, T_q, T_k)$, and is
    `True` where a query may look. What may not be seen has weight 0, the others of a row add up to
    one, and a row that may see nothing is all zeros. Nothing is ever NaN, gradients included, in
    any floating dtype."""
    as_blocked = course(scores, keep)
    """`True` is read as blocked: that is the other convention. | `True` means *look* here. In which
    row of your result do you see the opposite?"""
    return course(scores, ~keep)


@variant(
    nb05.sum_of_head_writes,
    "write (B, T, d_model)",
    inputs_of=lambda heads, W_o: (heads, W_o, heads.shape[2] % heads.shape[1]),
    but=("each", "collect"),
)
def write_of_one_head(course, heads, W_o, i):
    r"""`heads` is $(B, h, T, d_k)$ and `W_o` is $(d_\text{model}, h \cdot d_k)$, in the layout of
    `nn.Linear`. Give what head i alone adds to the output, $(B, T, d_\text{model})$."""
    return course(heads, W_o, collect=lambda writes: writes[i])


def tokens_and_four_matrices() -> Iterator[Case]:
    for case in tokens_and_fused_weights():
        x, fused, h = case.inputs
        D = x.shape[-1]
        given = x, *(fused / 2).split(D), normal(D, D, seed=D), h
        yield replace(case, inputs=given)


def _with_matrices(course: Step, x: torch.Tensor, h: int, *four: torch.Tensor) -> torch.Tensor:
    layers = (SimpleNamespace(weight=W, bias=None) for W in four)
    module: Any = SimpleNamespace(**dict(zip(NAMES, layers, strict=True)))
    return course(x, None, Layers(module, h, tuple))


@variant(
    nb06.MultiHeadAttention,
    "output (B, T, d_model)",
    cases=tokens_and_four_matrices,
    but=("read", "fill", "empty", "give"),
)
def all_heads_at_once(course, x, W_q, W_k, W_v, W_o, n_heads):
    r"""The class of exercise 11 as a function, without masks and biases. x is $(B, T,
    d_\text{model})$; the four matrices are $(d_\text{model}, d_\text{model})$, in the layout of
    `nn.Linear`, the heads side by side. Give the output, $(B, T, d_\text{model})$."""
    "`nn.Linear` keeps a row for each *output*. Which axis of each matrix must meet x's last?"
    with_matrices = partial(_with_matrices, course, x, n_heads)
    all_untransposed = with_matrices(W_q.mT, W_k.mT, W_v.mT, W_o.mT)
    "All four matrices are used untransposed: x @ W instead of x @ Wᵀ."
    three_untransposed = with_matrices(W_q.mT, W_k.mT, W_v.mT, W_o)
    "`W_q`, `W_k` and `W_v` are used untransposed: x @ W instead of x @ Wᵀ."
    last_untransposed = with_matrices(W_q, W_k, W_v, W_o.mT)
    "`W_o` is used untransposed: x @ W instead of x @ Wᵀ."
    return with_matrices(W_q, W_k, W_v, W_o)


@variant(
    nb07.next_token_loss,
    inputs_of=lambda logits, ids: (logits, ids, torch.arange(len(ids)) % (ids.shape[1] - 1) + 2),
    reduce=unchanged,
)
def loss_without_padding(course, logits, tokens, lengths):
    """With padding: of sequence b only the first `lengths[b]` tokens are real, 2 at least. Give the
    mean cross-entropy over all predictions of a real token, of all sequences together."""
    "Of a sequence of length 3, how many predictions have a real token as their answer?"
    losses, end = course(logits, tokens), lengths[:, None]
    place = torch.arange(1, losses.shape[1] + 1)  # of the token that each predicts
    padding_counted = losses.mean()
    "Predictions of padding are counted as well: the lengths are not used."
    one_too_many = losses[place <= end].mean()
    "One prediction too many is counted in each sequence: that of the first padding token."
    one_too_few = losses[place < end - 1].mean()
    "One prediction too few is counted in each sequence: that of its last real token."
    sums = losses.masked_fill(place >= end, 0).sum(1)
    mean_of_means = (sums / (lengths - 1)).mean()
    "Each sequence counts the same, however short: the mean is taken of the sequences' means."
    added_up = sums.sum()
    "The losses are added up, not averaged."
    return losses[place < end].mean()


@variant(rotate, "the rotated rows (..., T, d_k)", but=("pair", "join"), half=True)
def rotate_neighbours(course, x, positions):
    r"""The other layout: dimension 2i turns with its neighbour 2i + 1, by the angle position ·
    $\text{base}^{-2i/d_k}$, base 10,000. x is $(\dots, T, d_k)$ with $d_k$ even, positions are
    $(T,)$ whole numbers. The result has the shape, the dtype and the device of x."""
    halves = course(x, positions)
    """Dimension i turns with dimension i + d_k/2: that is the layout of the course. | Which
    dimensions turn together, and where do they go back?"""
    turned = partial(course, x, positions, pair=lambda x: (x[..., 0::2], x[..., 1::2]))
    left_apart = turned()
    """The pairs are turned correctly but then laid apart: first all even dimensions, then all odd.
    | In which order did the dimensions come?"""
    return turned(join=lambda a, b: torch.stack((a, b), -1).flatten(-2))


@variant(
    nb11.grouped_scores,
    "keys (B, h, T_k, d_k)",
    inputs_of=lambda q, k: (k, q.shape[1]) if q.abs().max() < 50 else (),
    but=("product", "scale", "finish"),
)
def spread_keys(course, k, h):
    r"""k is $(B, h_{kv}, T_k, d_k)$, h a multiple of $h_{kv}$. Give the keys $(B, h, T_k, d_k)$
    that h query heads use: query head i those of key head i // $(h / h_{kv})$."""
    return course(k.new_empty(1, h), k, product=lambda q, k: k, scale=unchanged)


def named() -> dict[str, Exercise]:
    """All of them by their own names."""
    return {problem.name: problem for some in VARIANTS.values() for problem in some}
