"""The exercises in another dress, for practice: what is understood survives another layout.

Each is a problem of its own, judged as the exercise that it stands for; its docstring is what the
learner reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_course.check.engine.beyond import right_too
from mha_course.check.engine.families import kinds_of_mask, orders_of_axes
from mha_course.check.engine.inputs import normal, unchanged
from mha_course.check.engine.problem import Step
from mha_course.check.engine.report import Finding
from mha_course.check.engine.safely import fresh
from mha_course.check.exercise import Case, Exercise, exercise
from mha_course.check.exercises import nb01, nb02, nb03, nb04, nb05, nb07, nb10, nb11

VARIANTS: dict[str, list[Exercise]] = {}  # of each exercise, by its name
BATCH_FIRST = "What comes in has its tokens first. Which axis comes first in what is asked for?"


def variant(
    of: Exercise, make_cases: Callable[[], Iterator[Case]], *gives: str, **more: Any
) -> Callable[[Step], Exercise]:
    def make(right: Step) -> Exercise:
        made = exercise(of.number, of.notebook, make_cases=make_cases, gives=gives, **more)(right)
        VARIANTS.setdefault(of.name, []).append(made)
        return made

    return make


def with_inputs(cases: Iterator[Case], change: Callable[..., tuple[Any, ...]]) -> Iterator[Case]:
    for case in cases:
        yield replace(case, inputs=change(*case.inputs))


# --- scores and attention -------------------------------------------------------------------------


def tokens_first() -> Iterator[Case]:
    cases = (case for case in nb01.queries_and_keys() if case.inputs[0].ndim == 3)
    return with_inputs(cases, lambda Q, K: (Q.transpose(0, 1), K.transpose(0, 1)))


@variant(nb01.attention_scores, tokens_first, "scores (B, T_q, T_k)")
def scores_tokens_first(
    Q: Tensor,
    K: Tensor,
    *,
    product: Any = lambda Q, K: Q.transpose(0, 1) @ K.permute(1, 2, 0),
    scale: Any = nb01.by_root_d_k,
    finish: Any = unchanged,
) -> Any:
    """Tokens come first here, as in PyTorch's own layers unless they are told otherwise: Q is
    $(T_q, B, d_k)$ and K is $(T_k, B, d_k)$. Give the scaled scores $(B, T_q, T_k)$."""
    return finish(scale(product(Q, K), Q, K))


scores_tokens_first.adopt(nb01.attention_scores, "scale")


@scores_tokens_first.step
def product(Q, K):
    """Which axis of Q counts the sequences?"""
    across_the_batch = Q @ K.transpose(-2, -1)
    """Every sequence is compared with every other one, at the same position: the axis in front is
    taken for the batch, and here it counts the tokens."""
    keys_not_moved = Q.transpose(0, 1) @ K.transpose(-2, -1)
    """The batch of Q comes to the front, and the batch of K stays where it is."""


@scores_tokens_first.step
def finish(scores):
    """Which axis comes first in what is asked for?"""
    queries_first = scores.transpose(0, 1)
    "The scores come as (T_q, B, T_k)."
    keys_for_queries = scores.mT
    "Rows and columns are exchanged: (B, T_k, T_q)."


def four_axes() -> Iterator[Case]:
    return (case for case in nb01.queries_and_keys() if case.inputs[0].ndim == 4)


def by_einsum(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    with torch.no_grad(), nb02.Products() as products:
        answer(*map(fresh, cases[0].inputs))
    if {*products.names} == {"einsum"}:
        return None
    does = "The scores are right, and come of another product than `torch.einsum`."
    return Finding("not_einsum", does, "Which letters stand for B, h, T_q, T_k and d_k?")


@variant(nb01.attention_scores, four_axes, "scores (B, h, T_q, T_k)", further=(by_einsum,))
def scores_by_einsum(
    Q: Tensor,
    K: Tensor,
    *,
    product: Any = nb01.every_query_with_every_key,
    scale: Any = nb01.by_root_d_k,
    finish: Any = unchanged,
) -> Any:
    """Q is $(B, h, T_q, d_k)$ and K is $(B, h, T_k, d_k)$. Give the scaled scores
    $(B, h, T_q, T_k)$, with `torch.einsum` for the product and no other one."""
    return finish(scale(product(Q, K), Q, K))


scores_by_einsum.adopt(nb01.attention_scores, "product", "scale", "finish")


@variant(nb01.attention, nb02.tokens_and_weights, "output (B, T, d_model)")
def attention_from_fused(
    X: Tensor,
    W_qkv: Tensor,
    *,
    project: Any = lambda X, W: (X @ W.mT).chunk(3, -1),
    product: Any = nb01.every_query_with_every_key,
    scale: Any = nb01.by_root_d_k,
    normalise: Any = nb01.softmax_over_keys,
    mix: Any = nb01.weights_times_values,
) -> Any:
    """One head, from its weights on: X is $(B, T, d_\\text{model})$, and $W_{qkv}$ is
    $(3 \\cdot d_\\text{model}, d_\\text{model})$, its rows stacked Q, K, V. Give what each token
    gathers, $(B, T, d_\\text{model})$; $d_k$ is $d_\\text{model}$ here."""
    Q, K, V = project(X, W_qkv)
    return mix(normalise(scale(product(Q, K), Q, K)), Q, K, V)


attention_from_fused.adopt(nb01.attention, "scale", "normalise", "mix")


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


# --- projections ----------------------------------------------------------------------------------


def fused_by_head() -> Iterator[Case]:
    for seed, (B, T, h, d_k) in enumerate(((2, 5, 3, 7), (1, 3, 2, 5), (3, 2, 1, 3), (2, 1, 3, 3))):
        sizes = {"B": B, "T": T, "n_heads": h, "d_k": d_k, "d_model": h * d_k}
        X = normal(B, T, h * d_k, seed=seed)
        yield Case((X, normal(3 * h * d_k, h * d_k, seed=seed + 20), h), sizes)


@variant(nb02.project_qkv, fused_by_head, *(f"{name} (B, n_heads, T, d_k)" for name in "QKV"))
def project_head_by_head(
    X: Tensor,
    W_qkv: Tensor,
    n_heads: int,
    *,
    cut: Any = lambda y, h: y.unflatten(-1, (h, 3, -1)).permute(3, 0, 2, 1, 4),
    give: Any = lambda three: three.unbind(0),
) -> Any:
    """Some models stack the rows of $W_{qkv}$ head by head: q, k and v of head 0, then q, k and v
    of head 1, and so on. X is $(B, T, d_\\text{model})$. Give a tuple of Q, K and V, each
    $(B, n_\\text{heads}, T, d_k)$."""
    return give(cut(X @ W_qkv.mT, n_heads))


@project_head_by_head.step
def cut(y, h):
    """Of the first 3·d_k rows, which belong to head 0?"""
    three_thirds = y.unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4)
    "The rows are read as all of Q, all of K, all of V; here they come head by head."
    dimensions_dealt_out = y.unflatten(-1, (h, -1, 3)).permute(4, 0, 2, 1, 3)
    "Within a head the rows are dealt out in turn, q k v, q k v; here its q's all come first."
    by_head = y.unflatten(-1, (h, 3, -1))
    tokens_before_heads = by_head.permute(3, 0, 1, 2, 4)
    "The axes are (B, T, n_heads, d_k): the heads have not come before the tokens."


@project_head_by_head.step
def give(three):
    """In which order does the exercise ask for them?"""
    q, k, v = three.unbind(0)
    key_query_value = k, q, v
    "The results come in the order K, Q, V."


# --- heads ----------------------------------------------------------------------------------------


def split_cases() -> Iterator[Case]:
    for case in nb03.tokens():
        note = "with x not contiguous" if "not" in case.note else ""
        x, h = case.inputs
        yield replace(case, inputs=(x.transpose(0, 1).contiguous(), h), note=note)


@variant(nb03.split_heads, split_cases, "heads (B, n_heads, T, d_k)")
def split_tokens_first(
    x: Tensor,
    n_heads: int,
    *,
    cut: Any = lambda x, h: x.unflatten(-1, (h, -1)),
    order: Any = lambda x: x.permute(1, 2, 0, 3),
) -> Any:
    """Tokens come first: x is $(T, B, d_\\text{model})$, the heads side by side in the last axis,
    head 0 first. Give $(B, n_\\text{heads}, T, d_k)$."""
    return order(cut(x, n_heads))


split_tokens_first.adopt(nb03.split_heads, "cut")
split_tokens_first.step(orders_of_axes("T B h d_k", "B h T d_k", BATCH_FIRST), at="order")


def merge_cases() -> Iterator[Case]:
    for case in nb03.heads():
        yield replace(case, note=case.note if "not" in case.note else "")


@variant(nb03.merge_heads, merge_cases, "merged (T, B, n_heads·d_k)")
def merge_tokens_first(
    x: Tensor,
    *,
    order: Any = lambda x: x.permute(2, 0, 1, 3),
    join: Any = lambda y, x: y.reshape(*y.shape[:2], x.shape[1] * x.shape[3]),
) -> Any:
    """The way back, for a layer whose tokens come first: x is $(B, n_\\text{heads}, T, d_k)$; give
    $(T, B, n_\\text{heads} \\cdot d_k)$, with head 0 first in every row."""
    return join(order(x), x)


@merge_tokens_first.step(at="join")
def another_order(y, x):
    """In which order do the axes stand before h and d_k become one?"""
    batch_first = y.transpose(0, 1).flatten(2)
    "The batch comes first, (B, T, n_heads·d_k), as in the exercise that you know."
    B, h, T, d_k = x.shape
    not_permuted = x.reshape(T, B, h * d_k)
    "The axes are not moved before the heads are joined: memory is cut in its own order."
    dimensions_first = x.permute(2, 0, 3, 1).flatten(2)
    "The heads are interleaved: a row runs head 0, head 1, … for dimension 0, then for dimension 1."
    in_reverse = x.flip(1).permute(2, 0, 1, 3).flatten(2)
    "The heads come in reverse order: the last head's numbers stand first."


# --- masks ----------------------------------------------------------------------------------------


@variant(nb04.causal_mask, nb04.lengths_of_sequences, "mask (T, T)", gradient=False)
def causal_keep(T: int, *, triangle: Any = lambda T: ~nb04.future(T), kind: Any = unchanged) -> Any:
    """The other convention, that of `F.scaled_dot_product_attention`: give the bool mask $(T, T)$
    that is `True` where a query *may* look. No query may look ahead."""
    return kind(triangle(T))


causal_keep.step(kinds_of_mask(), at="kind")


@causal_keep.step
def triangle(T):
    """`True` means *look* here. May query 2 look at key 1, at key 2, at key 3?"""
    ones = torch.ones(T, T, dtype=torch.bool)
    blocked = ones.triu(1)
    "Your `True` stands where looking is forbidden: that is the other convention."
    without_itself = ones.tril(-1)
    "No token may look at itself, and query 0 is left with no key at all."
    next_too = ones.tril(1)
    "Off by one: the next token can still be seen."


def fewer_queries() -> Iterator[Case]:
    for t_q, t_k in ((3, 5), (1, 7), (5, 5), (2, 3), (1, 1), (4, 11)):
        yield Case((t_q, t_k), {"T_q": t_q, "T_k": t_k})


@variant(nb04.causal_mask, fewer_queries, "mask (T_q, T_k)", gradient=False)
def causal_last_queries(
    T_q: int,
    T_k: int,
    *,
    diagonal: Any = lambda t_q, t_k: torch.ones(t_q, t_k).bool().triu(t_k - t_q + 1),
    kind: Any = unchanged,
) -> Any:
    """Of $T_k$ tokens only the last $T_q$ ask. Give their causal bool mask $(T_q, T_k)$, `True` =
    blocked: the last query sees all keys."""
    return kind(diagonal(T_q, T_k))


causal_last_queries.step(kinds_of_mask(), at="kind")


@causal_last_queries.step
def diagonal(t_q, t_k):
    """At which position does the first of the last T_q tokens stand?"""
    ones = torch.ones(t_q, t_k).bool()
    first_queries = ones.triu(1)
    "The mask is that of the *first* T_q tokens: query 0 sees key 0 alone."
    one_early = ones.triu(t_k - t_q)
    "Off by one: no token may look at itself."
    one_late = ones.triu(t_k - t_q + 2)
    "Off by one: each query still sees the token after it."
    keep = ~ones.triu(t_k - t_q + 1)
    "True and False are the wrong way round: `True` means blocked here."


def padded_ids() -> Iterator[Case]:
    for seed, (B, T, pad) in enumerate(((3, 5, 0), (2, 7, 1), (1, 3, 0), (5, 2, 2), (3, 3, 0))):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(0, T + 1, (B,), generator=generator)
        ids = torch.randint(0, 9, (B, T), generator=generator)
        ids += ids >= pad  # every number but that of padding
        ids[torch.arange(T) >= lengths[:, None]] = pad
        yield Case((ids, pad), {"B": B, "T": T}, f"with pad = {pad}")


@variant(nb04.padding_mask, padded_ids, "mask (B, 1, 1, T)", gradient=False)
def padding_from_ids(
    tokens: Tensor,
    pad: int,
    *,
    where: Any = lambda tokens, pad: tokens == pad,
    axes: Any = lambda mask: mask[:, None, None, :],
    kind: Any = unchanged,
) -> Any:
    """The lengths are not told; `tokens` is $(B, T)$, and its padding holds the number `pad`. Give
    the bool mask $(B, 1, 1, T)$, `True` at padding keys."""
    return kind(axes(where(tokens, pad)))


padding_from_ids.adopt(nb04.padding_mask, "axes", "kind")


@padding_from_ids.step
def where(tokens, pad):
    """`True` means *blocked* here. Which keys are to be blocked?"""
    real_tokens = tokens != pad
    "True and False are the wrong way round: your `True` marks the real tokens."
    zeros = tokens == 0
    "Padding is taken to be 0, whatever `pad` says."
    up_to_pad = tokens <= pad
    "Every number up to `pad` is blocked, and not `pad` alone."


def scores_and_keep() -> Iterator[Case]:
    return with_inputs(nb04.scores_and_masks(), lambda scores, mask: (scores, ~mask))


def gradients_where_nothing_is_kept(answer: Callable[..., Any], cases: list[Case]) -> Any:
    def of_a_mask(scores: Tensor, mask: Tensor) -> Any:
        return answer(scores, ~mask)

    return nb04.gradients_of_blocked_rows(of_a_mask, nb04.masked_softmax.cases)


@variant(
    nb04.masked_softmax,
    scores_and_keep,
    "weights (..., T_q, T_k)",
    further=(gradients_where_nothing_is_kept,),
)
def softmax_of_kept(
    scores: Tensor,
    keep: Tensor,
    *,
    read: Any = lambda keep, scores: ~keep,
    fill: Any = nb04.minus_infinity,
    normalise: Any = nb04.softmax_over_keys,
    empty: Any = nb04.blocked_rows_to_zero,
) -> Any:
    """The other convention: `keep` is bool, broadcasts to the scores $(\\dots, T_q, T_k)$, and is
    `True` where a query may look. What may not be seen has weight 0, the others of a row add up to
    one, and a row that may see nothing is all zeros. Nothing is ever NaN, gradients included."""
    blocked = read(keep, scores)
    return empty(normalise(fill(scores, blocked)), blocked)


softmax_of_kept.adopt(nb04.masked_softmax, "fill", "normalise", "empty")


@softmax_of_kept.step
def read(keep, scores):
    """`True` means *look* here. In which row of your result do you see the opposite?"""
    as_blocked = keep
    "`True` is read as blocked: that is the other convention."
    ignored = torch.zeros_like(keep)
    "The mask takes no part: no weight is changed by it."


# --- output, loss ---------------------------------------------------------------------------------


def one_head() -> Iterator[Case]:
    for n, case in enumerate(nb05.heads_and_w_o()):
        heads, W_o = case.inputs
        i = n % heads.shape[1]
        yield replace(case, inputs=(heads, W_o, i), note=f"for head {i}")


@variant(nb05.sum_of_head_writes, one_head, "write (B, T, d_model)")
def write_of_one_head(
    heads: Tensor,
    W_o: Tensor,
    i: int,
    *,
    slab: Any = nb05.neighbouring_columns,
    write: Any = lambda head, slab: head @ slab.mT,
) -> Any:
    """`heads` is $(B, h, T, d_k)$ and `W_o` is $(d_\\text{model}, h \\cdot d_k)$, in the layout of
    `nn.Linear`. Give what head i alone adds to the output, $(B, T, d_\\text{model})$."""
    return write(heads[:, i], slab(W_o, i, heads.shape[1], heads.shape[-1]))


write_of_one_head.adopt(nb05.sum_of_head_writes, "slab", "write")


def with_lengths() -> Iterator[Case]:
    for case in nb07.logits_and_tokens():
        B, T = case.inputs[1].shape
        lengths = torch.arange(B) % (T - 1) + 2
        said = ", ".join(map(str, lengths.tolist()))
        note = f"{case.note}, lengths ({said})" if case.note else f"with lengths ({said})"
        yield replace(case, inputs=(*case.inputs, lengths), note=note)


def of_real_tokens(losses: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(1, losses.shape[1] + 1, device=lengths.device) < lengths[:, None]
    return losses[real].mean()


@variant(nb07.next_token_loss, with_lengths, "loss ()")
def loss_without_padding(
    logits: Tensor,
    tokens: Tensor,
    lengths: Tensor,
    *,
    shift: Any = lambda logits, tokens: (logits[:, :-1], tokens[:, 1:]),
    normalise: Any = lambda logits: logits.log_softmax(-1),
    reduce: Any = of_real_tokens,
) -> Any:
    """As you know it, with padding: of sequence b only the first `lengths[b]` tokens are real (2 at
    least), and the rest is padding at its end. Give the mean cross-entropy over all predictions of
    a real token, of all sequences together."""
    predictions, targets = shift(logits, tokens)
    logs = normalise(predictions).gather(-1, targets[..., None])[..., 0]
    return reduce(-logs, lengths)


@loss_without_padding.step
def shift(logits, tokens):
    """The logits at position 0 have seen token 0 only. Which token should they predict?"""
    last_dropped = (logits[:, :-1], tokens[:, :-1])
    "There is no shift: each position is asked for the token that it has just read."


@loss_without_padding.step
def reduce(losses, lengths):
    """Of a sequence of length 3, how many predictions have a real token as their answer?"""
    padding_counted = losses.mean()
    "Predictions of padding are counted as well: the lengths take no part."
    places = torch.arange(losses.shape[1])
    one_too_many = losses[places < lengths[:, None]].mean()
    "One prediction too many is counted in each sequence: that of the first padding token."
    one_too_few = losses[places < lengths[:, None] - 2].mean()
    "One prediction too few is counted in each sequence: that of its last real token."
    each = losses.masked_fill(places >= lengths[:, None] - 1, 0)
    mean_of_means = (each.sum(1) / (lengths - 1)).mean()
    "Each sequence counts the same, however short: the mean is taken of the sequences' means."
    added_up = each.sum()
    "The losses are added up and not averaged."


# --- order, shared keys ---------------------------------------------------------------------------


@variant(nb10.rotate, nb10.rows_and_positions, "the rotated rows (..., T, d_k)")
def rotate_neighbours(
    x: Tensor,
    positions: Tensor,
    *,
    speed: Any = nb10.base_to_minus_2i_over_d_k,
    angle: Any = lambda speed, positions, x: positions[:, None] * speed,
    pair: Any = lambda x: (x[..., 0::2], x[..., 1::2]),
    turn: Any = nb10.turned,
    join: Any = lambda a, b: torch.stack((a, b), -1).flatten(-2),
) -> Any:
    """The other layout: dimension 2i turns with its neighbour 2i + 1, by the angle position ·
    $\\text{base}^{-2i/d_k}$, base 10,000. x is $(\\dots, T, d_k)$ with $d_k$ even, positions are
    $(T,)$ whole numbers. The result has the shape, the dtype and the device of x."""
    first, second = pair(x)
    return join(*turn(first, second, angle(speed(x), positions, x)))


rotate_neighbours.adopt(nb10.rotate, "speed", "angle", "turn")
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
    "The pairs are turned rightly and then laid apart: first all even dimensions, then all odd."


def shared_keys() -> Iterator[Case]:
    for seed, (B, h_kv, T, d_k, h) in enumerate(
        ((2, 3, 5, 7, 6), (1, 2, 3, 5, 6), (3, 1, 2, 3, 5), (2, 3, 3, 3, 3), (1, 4, 1, 2, 12))
    ):
        sizes = {"B": B, "h_kv": h_kv, "T": T, "d_k": d_k, "h": h}
        yield Case((normal(B, h_kv, T, d_k, seed=seed), h), sizes)


@variant(nb11.grouped_scores, shared_keys, "keys (B, h, T, d_k)")
def spread_keys(
    k: Tensor, h: int, *, share: Any = lambda k, h: k.repeat_interleave(h // k.shape[1], dim=1)
) -> Any:
    """k is $(B, h_{kv}, T, d_k)$, and h is a multiple of $h_{kv}$. Give the keys $(B, h, T, d_k)$
    with which each of h query heads looks: head i with key head i // $(h / h_{kv})$."""
    return share(k, h)


@spread_keys.step
def share(k, h):
    """With h = 6 and h_kv = 3: which key head do query heads 0 and 1 look with?"""
    h_kv = k.shape[1]
    dealt_out = k.repeat(1, h // h_kv, 1, 1)
    "The key heads are dealt out in turn, 0, 1, 2, 0, 1, 2: query head i gets key head i % h_kv."
    mean_for_all = k.mean(1, keepdim=True).expand(-1, h, -1, -1)
    "All query heads get the mean of the key heads: the groups are lost."
    by_number_of_groups = k[:, torch.arange(h) // h_kv % h_kv]
    "Query head i gets key head i // h_kv: it has to be divided by the size of a group, h / h_kv."
