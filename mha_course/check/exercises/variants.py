"""The exercises in another layout, for practice: what is understood survives it.

Each is a problem of its own, judged as the exercise that it stands for: it calls that exercise's
right answer behind another layout. Steps that it does not make itself (`**steps`) are the
exercise's, with their slips; the layout brings slips of its own. The docstring is what learners
read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from inspect import Signature, signature
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from mha_course.check.engine.beyond import right_too
from mha_course.check.engine.families import orders_of_axes
from mha_course.check.engine.inputs import normal, unchanged
from mha_course.check.engine.problem import Case, Step
from mha_course.check.engine.report import Finding
from mha_course.check.exercises import Exercise, exercise, nb01, nb02, nb03, nb04, nb05, nb07, nb11
from mha_course.check.exercises.nb10 import rotate

VARIANTS: dict[str, list[Exercise]] = {}  # of each exercise, by its name


def variant(
    of: Exercise,
    *gives: str,
    given: Callable[..., tuple[Any, ...]] = lambda *inputs: inputs,
    cases: Callable[[], Iterable[Case]] | None = None,
    but: tuple[str, ...] = (),
    further: tuple[Callable[..., Finding | None], ...] = (),
) -> Callable[[Step], Exercise]:
    """Makes a variant of an exercise; `gives` and `further` are those of any problem.

    Args:
        given: its inputs, of the exercise's; none leaves a case out.
        cases: in place of the exercise's.
        but: steps of the exercise that have one way only here, and slips that would not be true.
    """

    def make(right: Step) -> Exercise:
        own = {n: p for n, p in signature(right).parameters.items() if p.kind is not p.VAR_KEYWORD}
        theirs = {n: signature(of.right).parameters[n] for n in of.sites if n not in but}
        every = sorted((theirs | own).values(), key=lambda p: p.kind)
        right.__signature__ = Signature(every)  # type: ignore[attr-defined]

        def make_cases() -> Iterator[Case]:
            for case in (cases or of.make_cases)():
                if inputs := given(*case.inputs):
                    new = zip(made.arguments, map(torch.as_tensor, inputs), strict=True)
                    small = [(n, x) for n, x in new if n not in of.arguments and x.ndim < 2]
                    notes = [f"with {n} = {x.tolist()}" for n, x in small if n not in case.sizes]
                    note = ", ".join(note for note in (case.note, *notes) if note)
                    yield replace(case, inputs=inputs, note=note)

        more = {"gives": gives, "further": further, "gradient": of.gradient}
        made = exercise(of.number, of.notebook, make_cases=make_cases, **more)(right)
        made.adopt(of, *(n for n in theirs if made.steps[n] is of.steps[n]), but=but)
        VARIANTS.setdefault(of.name, []).append(made)
        return made

    return make


def exchanged(*tensors: Tensor) -> tuple[Tensor, ...]:
    """(T, B, …) -> (B, T, …), and back."""
    return tuple(x.transpose(0, 1) for x in tensors)


@variant(
    nb01.attention_scores,
    "scores (B, T_q, T_k)",
    given=lambda Q, K: exchanged(Q, K) * (Q.ndim == 3),
    but=(*nb11.DO_NOT_FIT, "by_root_axis_0", "by_root_axis_1", "by_root_axis_1_of_k"),
)
def scores_tokens_first(Q, K, *, move=exchanged, **steps):
    """Tokens come first here, as in PyTorch's own layers by default: Q is
    $(T_q, B, d_k)$ and K is $(T_k, B, d_k)$. Give the scaled scores $(B, T_q, T_k)$."""
    return nb01.attention_scores.right(*move(Q, K), **steps)


@scores_tokens_first.step
def move(Q, K):
    """Which axis of Q counts the sequences?"""
    across_the_batch = Q, K
    """Every sequence is compared with every other one, at the same position: the axis in front is
    taken for the batch, and here it counts the tokens."""
    keys_not_moved = Q.transpose(0, 1), K
    "The batch of Q comes to the front, but the batch of K stays where it is."


@scores_tokens_first.step
def finish(scores):
    queries_first = scores.transpose(0, 1)
    "The scores have shape (T_q, B, T_k). | Which axis should come first?"


@variant(
    nb01.attention, "output (B, T, d_model)", cases=nb02.tokens_and_weights, but=("product", "give")
)
def attention_from_fused(X, W_qkv, *, project=nb02.project_qkv.right, **steps):
    """One head, from its weights on: X is $(B, T, d_\\text{model})$, and $W_{qkv}$ is
    $(3 \\cdot d_\\text{model}, d_\\text{model})$, its rows stacked Q, K, V. Give what each token
    gathers, $(B, T, d_\\text{model})$; $d_k$ is $d_\\text{model}$ here."""
    return nb01.attention.right(*project(X, W_qkv), **steps)[0]


@attention_from_fused.step
def project(X, W):
    """Which rows of the fused weights belong to the queries?"""
    q, k, v = (X @ W.mT).chunk(3, -1)
    queries_and_keys_exchanged = k, q, v
    "The first rows are taken for the keys, and the second for the queries."
    keys_and_values_exchanged = q, v, k
    "The second rows are taken for the values, and the third for the keys."
    dealt_out = (X @ W.mT).unflatten(-1, (-1, 3)).unbind(-1)
    "The rows are dealt out in turn, as if they came q k v, q k v, and so on."


def tokens_and_fused_weights() -> Iterator[Case]:
    for seed, (B, h, T, d_k) in enumerate(nb03.SIZES):
        sizes = {"B": B, "T": T, "n_heads": h, "d_k": d_k, "d_model": h * d_k}
        X, W_qkv = normal(B, T, h * d_k, seed=seed), normal(3 * h * d_k, h * d_k, seed=seed + 20)
        yield Case((X, W_qkv, h), sizes)


def of_each_head(y: Tensor, h: int) -> tuple[Tensor, ...]:
    return y.unflatten(-1, (h, 3, -1)).permute(3, 0, 2, 1, 4).unbind(0)


@variant(
    nb02.project_qkv,
    *(f"{name} (B, n_heads, T, d_k)" for name in "QKV"),
    cases=tokens_and_fused_weights,
    but=("not_cut", "stacked", "each_transposed", "queries_scaled"),
)
def project_head_by_head(X, W_qkv, n_heads, *, cut=of_each_head, **steps):
    """Some models stack the rows of $W_{qkv}$ head by head: q, k and v of head 0, then q, k and v
    of head 1, and so on. X is $(B, T, d_\\text{model})$. Give a tuple of Q, K and V, each
    $(B, n_\\text{heads}, T, d_k)$."""
    return nb02.project_qkv.right(X, W_qkv, cut=lambda y: cut(y, n_heads), **steps)


@project_head_by_head.step
def cut(y, h):
    """Of the first 3·d_k rows, which belong to head 0?"""
    three_thirds = y.unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    "The rows are read as all of Q, all of K, all of V; here they come head by head."
    dimensions_dealt_out = y.unflatten(-1, (h, -1, 3)).permute(4, 0, 2, 1, 3).unbind(0)
    "Within a head the rows are dealt out in turn, q k v, q k v; here its q's all come first."
    tokens_before_heads = y.unflatten(-1, (h, 3, -1)).unbind(3)
    "The axes are (B, T, n_heads, d_k): the heads have not come before the tokens."


@variant(
    nb03.split_heads,
    "heads (B, n_heads, T, d_k)",
    given=lambda x, n_heads: (x.transpose(0, 1), n_heads),
)
def split_tokens_first(x, n_heads, *, order=lambda x: x.permute(1, 2, 0, 3), **steps):
    """Tokens come first: x is $(T, B, d_\\text{model})$, the heads side by side in the last axis,
    head 0 first. Give $(B, n_\\text{heads}, T, d_k)$."""
    return nb03.split_heads.right(x, n_heads, order=order, **steps)


BATCH_FIRST = "The input has its tokens first. Which axis should come first in the result?"
split_tokens_first.step(orders_of_axes("T B h d_k", "B h T d_k", BATCH_FIRST), at="order")


@variant(nb03.merge_heads, "merged (T, B, n_heads·d_k)", but=("join",))
def merge_tokens_first(x, *, order=lambda x: x.permute(2, 0, 1, 3), **steps):
    """The way back, for a layer whose tokens come first: x is $(B, n_\\text{heads}, T, d_k)$; give
    $(T, B, n_\\text{heads} \\cdot d_k)$, with head 0 first in every row."""
    return nb03.merge_heads.right(x, order=order, join=lambda y, _: y.flatten(2), **steps)


BEFORE = "In which order do the axes stand before h and d_k become one?"
merge_tokens_first.step(orders_of_axes("B h T d_k", "T B h d_k", BEFORE), at="order")


@merge_tokens_first.step
def order(x):
    """Which axis comes first, and which two become one?"""
    B, h, T, d_k = x.shape
    not_permuted = x.reshape(T, B, h, d_k)
    "The axes are not moved before the heads are joined: memory is cut in its own order."


@variant(nb04.causal_mask, "mask (T, T)", but=("keep_mask", "past_blocked", "nothing_blocked"))
def causal_keep(T, *, triangle=nb04.future, turn=torch.logical_not, **steps):
    """The other convention, that of `F.scaled_dot_product_attention`: give the bool mask $(T, T)$
    that is `True` where a query *may* look. No query may look ahead."""
    return nb04.causal_mask.right(T, triangle=lambda T: turn(triangle(T)), **steps)


@causal_keep.step
def turn(mask):
    """`True` means *look* here. May query 2 look at key 1, at key 2, at key 3?"""
    blocked = mask
    "Your `True` means that looking is forbidden: that is the other convention."


def padded(lengths: Tensor, T: int) -> tuple[Tensor, int]:
    pad = T % 3
    tokens = (normal(len(lengths), T, seed=T).abs() * 5).to(lengths.dtype)
    tokens += tokens >= pad  # every number but that of padding
    return tokens.masked_fill(torch.arange(T) >= lengths[:, None], pad), pad


@variant(nb04.padding_mask, "mask (B, 1, 1, T)", given=padded)
def padding_from_ids(tokens, pad, *, where=torch.eq, **steps):
    """The lengths are not given; `tokens` is $(B, T)$, and its padding holds the number `pad`. Give
    the bool mask $(B, 1, 1, T)$, `True` at padding keys."""
    of_ids = {"where": lambda *_: where(tokens, pad)}
    return nb04.padding_mask.right(tokens[:, 0], tokens.shape[1], **of_ids, **steps)


@padding_from_ids.step
def where(tokens, pad):
    """`True` means *blocked* here. Which keys are to be blocked?"""
    real_tokens = tokens != pad
    "True and False are the wrong way round: your `True` marks the real tokens."
    zeros = tokens == 0
    "Padding is taken to be 0, whatever `pad` says."
    up_to_pad = tokens <= pad
    "Every number up to `pad` is blocked, not `pad` alone."


def gradients_where_nothing_is_kept(answer: Callable[..., Any], _: list[Case]) -> Finding | None:
    cases = nb04.masked_softmax.cases
    return nb04.gradients_of_blocked_rows(lambda scores, mask: answer(scores, ~mask), cases)


@variant(
    nb04.masked_softmax,
    "weights (..., T_q, T_k)",
    given=lambda scores, mask: (scores, ~mask),
    but=("true_means_keep",),
    further=(gradients_where_nothing_is_kept,),
)
def softmax_of_kept(scores, keep, *, invert=torch.logical_not, **steps):
    """The other convention: `keep` is bool, broadcasts to the scores $(\\dots, T_q, T_k)$, and is
    `True` where a query may look. What may not be seen has weight 0, the others of a row add up to
    one, and a row that may see nothing is all zeros. Nothing is ever NaN, gradients included."""
    return nb04.masked_softmax.right(scores, invert(keep), **steps)


@softmax_of_kept.step
def invert(keep):
    """`True` means *look* here. In which row of your result do you see the opposite?"""
    as_blocked = keep
    "`True` is read as blocked: that is the other convention."


@variant(
    nb05.sum_of_head_writes,
    "write (B, T, d_model)",
    given=lambda heads, W_o: (heads, W_o, heads.shape[2] % heads.shape[1]),
    but=("each", "collect"),
)
def write_of_one_head(heads, W_o, i, **steps):
    """`heads` is $(B, h, T, d_k)$ and `W_o` is $(d_\\text{model}, h \\cdot d_k)$, in the layout of
    `nn.Linear`. Give what head i alone adds to the output, $(B, T, d_\\text{model})$."""
    return nb05.sum_of_head_writes.right(heads, W_o, collect=itemgetter(i), **steps)


def of_real_tokens(losses: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(1, losses.shape[1] + 1, device=lengths.device) < lengths[:, None]
    return losses[real].mean()


@variant(
    nb07.next_token_loss,
    "loss ()",
    given=lambda logits, tokens: (
        *(logits, tokens),
        torch.arange(len(tokens)) % (tokens.shape[1] - 1) + 2,
    ),
)
def loss_without_padding(logits, tokens, lengths, *, reduce=of_real_tokens, **steps):
    """As you know it, with padding: of sequence b only the first `lengths[b]` tokens are real (2 at
    least), and the rest is padding at its end. Give the mean cross-entropy over all predictions of
    a real token, of all sequences together."""
    of_lengths = {"reduce": lambda losses, _: reduce(losses, lengths)}
    return nb07.next_token_loss.right(logits, tokens, **of_lengths, **steps)


@loss_without_padding.step
def reduce(losses, lengths):
    """Of a sequence of length 3, how many predictions have a real token as their answer?"""
    padding_counted = losses.mean()
    "Predictions of padding are counted as well: the lengths are not used."
    one_too_many = of_real_tokens(losses, lengths + 1)
    "One prediction too many is counted in each sequence: that of the first padding token."
    one_too_few = of_real_tokens(losses, lengths - 1)
    "One prediction too few is counted in each sequence: that of its last real token."
    each = losses.masked_fill(torch.arange(losses.shape[1]) >= lengths[:, None] - 1, 0)
    mean_of_means = (each.sum(1) / (lengths - 1)).mean()
    "Each sequence counts the same, however short: the mean is taken of the sequences' means."
    added_up = each.sum()
    "The losses are added up, not averaged."


def neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0::2], x[..., 1::2]


def in_turn(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack((a, b), -1).flatten(-2)


@variant(rotate, "the rotated rows (..., T, d_k)")
def rotate_neighbours(x, positions, *, pair=neighbours, join=in_turn, **steps):
    """The other layout: dimension 2i turns with its neighbour 2i + 1, by the angle position ·
    $\\text{base}^{-2i/d_k}$, base 10,000. x is $(\\dots, T, d_k)$ with $d_k$ even, positions are
    $(T,)$ whole numbers. The result has the shape, the dtype and the device of x."""
    return rotate.right(x, positions, pair=pair, join=join, **steps)


right_too(
    rotate_neighbours,
    lambda cases: (cases[0].inputs[0], cases[0].inputs[1] + 11),
    "With the first x again, at other positions,",
    "Is something kept from call to call?",
)


@rotate_neighbours.step(at="pair", join=lambda a, b: torch.cat((a, b), -1))
def pair_and_join(x):
    """Which dimensions turn together, and where do they go back?"""
    halves = x.chunk(2, -1)
    "Dimension i turns with dimension i + d_k/2: that is the layout of the course."


@rotate_neighbours.step
def join(a, b):
    """In which order did the dimensions come?"""
    left_apart = torch.cat((a, b), -1)
    "The pairs are turned correctly but then laid apart: first all even dimensions, then all odd."


@variant(
    nb11.grouped_scores,
    "keys (B, h, T_k, d_k)",
    given=lambda q, k: (k, q.shape[1]) if q.abs().max() < 50 else (),
    but=("product", "scale", "finish"),
)
def spread_keys(k, h, **steps):
    """k is $(B, h_{kv}, T_k, d_k)$, and h is a multiple of $h_{kv}$. Give the keys
    $(B, h, T_k, d_k)$ with which each of h query heads looks: head i with key head
    i // $(h / h_{kv})$."""
    keys = {"product": lambda q, k: k, "scale": unchanged}
    return nb11.grouped_scores.right(k.new_empty(1, h), k, **keys, **steps)
