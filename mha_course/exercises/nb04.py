"""Exercises 7, 8 and 9, notebook 04: two masks, and the softmax that survives them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.attempt import Attempt
from mha_course.engine.families import kinds_of_mask
from mha_course.engine.gradients import has_nan
from mha_course.engine.inputs import normal, strided, unchanged
from mha_course.engine.report import Finding
from mha_course.engine.watch import where_nan
from mha_course.exercises import WHOLE, Case, exercise
from mha_course.exercises.nb01 import attention, shares

RUNS_OUT = "Does a fixed table, or a number format, run out?"


def lengths_of_sequences() -> Iterator[Case]:
    for T in (5, 3, 7, 2, 1):
        yield Case((T,), {"T": T})
    yield Case((300,), {}, "with T = 300", asks=RUNS_OUT)


def future(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(1)


@exercise(
    7,
    "04",
    reread="Blocking the future",
    make_cases=lengths_of_sequences,
    gradient=False,
    gives=("mask (T, T)",),
)
def causal_mask(T, *, triangle, kind, axes):
    """True above the diagonal."""
    return axes(kind(triangle(T)))


@causal_mask.step
def triangle(T):
    """True means *blocked* here. May query 2 look at key 1?"""
    mask, square = future(T), torch.ones(T, T, dtype=torch.bool)
    keep_mask = ~mask
    "True and False are the wrong way round: your True means that looking is *allowed*."
    diagonal_blocked = square.triu(0)
    """The diagonal is blocked as well: no token may look at itself, and query 0 is left with no key
    at all. | Query i may see keys 0 … i. Is i among them?"""
    past_blocked = square.tril(-1)
    """The *past* is blocked instead of the future: your True stands below the diagonal. | Row i is
    query i, column j is key j. Which keys come later than the query?"""
    one_too_late = square.triu(2)
    """Off by one: the next token can still be seen; the mask starts one key too late. | Which is
    the first key that query i may not see?"""
    one_too_early = square.triu(-1)
    """Off by one: the last past token is blocked too. | Which is the first key that query i may not
    see?"""
    nothing_blocked = ~square
    "Nothing is blocked: every entry is False."
    only_next = mask & ~square.triu(2)
    """Only the next token is blocked, not all that follow. | Which keys lie in the future of query
    0?"""
    only_itself = ~torch.eye(T, dtype=torch.bool)
    """Everything but the diagonal is blocked: each token sees only itself. | Query i may see keys 0
    … i. Which are missing?"""
    return mask


causal_mask.step(kinds_of_mask, at="kind")


@causal_mask.step(at=WHOLE)
def as_a_buffer(T):
    """True means *blocked* here. May query 2 look at key 1?"""
    ones_where_allowed = torch.ones(T, T).tril()[None, None]
    """Your mask holds the number 1 where looking is *allowed*, in (1, 1, T, T), as many models keep
    it; here True means blocked, in (T, T)."""


@causal_mask.step
def axes(mask):
    """How many axes does the exercise ask for?"""
    two_more_axes = mask[None, None]
    "The mask has axes of size 1 in front; (T, T) is asked for, and broadcasting adds them anyway."
    one_more_axis = mask[None]
    "The mask has an axis of size 1 in front; (T, T) is asked for, broadcasting adds it anyway."
    axis_behind = mask[..., None]
    """The mask has an axis of size 1 at its end, (T, T, 1): against scores (..., T_q, T_k) its
    columns would line up with the queries."""
    axis_between = mask[:, None]
    """The mask has an axis of size 1 in the middle, (T, 1, T): against scores (h, T_q, T_k) its
    rows would line up with the heads."""
    return mask


def batches_of_lengths() -> Iterator[Case]:
    for lengths, T, dtype in (
        ((3, 5, 2), 5, torch.int64),
        ((4, 0, 1, 7, 2), 7, torch.int64),
        ((2, 1), 5, torch.int32),
        ((3,), 5, torch.int64),
        ((0, 0), 3, torch.int64),
        ((1, 1, 0), 1, torch.int32),
        ((3, 1, 2), 3, torch.int64),
    ):
        what = ", ".join(map(str, lengths))
        kind = str(dtype).removeprefix("torch.")
        note = f"with lengths ({what}{',' * (len(lengths) == 1)}), {kind}"
        yield Case((torch.tensor(lengths, dtype=dtype), T), {"B": len(lengths), "T": T}, note)
    yield Case((torch.tensor([2500, 10]), 3000), {}, "with T = 3,000", asks=RUNS_OUT)
    note, asks = "where no sequence is padded", "What does the caller get then: a mask?"
    yield Case((torch.tensor([3, 3]), 3), {}, note, asks=asks)


@exercise(
    8,
    "04",
    reread="Blocking the padding",
    make_cases=batches_of_lengths,
    gradient=False,
    gives=("mask (B, 1, 1, T)",),
)
def padding_mask(lengths, T, *, where, axes, kind):
    """True at keys from lengths[b] on, (B, 1, 1, T)."""
    positions = torch.arange(T, device=lengths.device)
    return kind(axes(where(positions, lengths[:, None])))


@padding_mask.step
def where(positions, lengths):
    """True means *blocked* here. Which keys are to be blocked, tokens or padding?"""
    tokens_marked = positions < lengths
    "True and False are the wrong way round: your True marks the real tokens."
    pad_one_late = positions > lengths
    """Off by one: the first padding key is let through, at position lengths[b]. | A sequence of
    length 3 has tokens at positions 0, 1, 2. Where does padding begin?"""
    pad_one_early = positions >= lengths - 1
    """Off by one: the last real token of every sequence is blocked as well. | A sequence of length
    3 has tokens at positions 0, 1, 2. Where does padding begin?"""
    tokens_and_one_marked = positions <= lengths
    "The wrong way round, and off by one: your True marks the tokens and the first padding key."
    padding_in_front = positions < len(positions) - lengths
    """Padding is taken to be *in front*: the first T − lengths[b] keys are blocked. | At which end
    of a sequence do its tokens begin here?"""
    first_length_for_all = (positions >= lengths[0]).expand(len(lengths), -1)
    """Every sequence gets the same mask, made from the length of sequence 0. | Which axis of the
    mask should tell sequences apart?"""
    return positions >= lengths


@padding_mask.step(at="axes")
def axes_of_padding(mask):
    """From the right the axes of the scores are keys, queries, heads, batch. Where do B and T
    go?"""
    no_axes_for_heads = mask
    "The mask has shape (B, T): against scores (B, h, T, T) its B would line up with the *queries*."
    one_axis_short = mask[:, None, :]
    """The mask has shape (B, 1, T): the axis for the heads is missing, and B would line up with the
    heads."""
    axis_behind = mask[..., None]
    """The mask has shape (B, T, 1): against scores (B, h, T, T) its T would line up with the
    *queries*, and its B with the heads."""
    queries_blocked = mask[:, None, :, None]
    """The mask has shape (B, 1, T, 1): T is on the axis of the *queries*, so whole rows are blocked
    and padding keys can still be seen. | Should the padding be unseen, or unseeing?"""
    tokens_at_heads = mask[:, :, None, None]
    """The mask has shape (B, T, 1, 1): T is where the heads should be. | From the right the axes of
    the scores are keys, queries, heads, batch. Where does T go?"""
    batch_at_queries = mask[None, None]
    """The mask has shape (1, 1, B, T): B is where the queries should be. | From the right the axes
    of the scores are keys, queries, heads, batch. Where does B go?"""
    spread_over_queries = mask[:, None, None, :].expand(-1, -1, mask.shape[1], -1)
    """The mask is already spread over the queries, (B, 1, T, T): an axis of 1 would broadcast. |
    Which two axes may stay 1?"""
    queries_and_keys = mask[:, None, None, :] | mask[:, None, :, None]
    """Padding queries are blocked as well, (B, 1, T, T): a row with every key blocked has nothing
    left to attend to. | Should the padding be unseen, or unseeing?"""
    three_axes = mask[:, None, :].expand(-1, mask.shape[1], -1)
    """The mask is one tensor (B, T, T), for each query and key, without an axis for the heads. |
    From the right the axes of the scores are keys, queries, heads, batch. Which are missing?"""
    return mask[:, None, None, :]


padding_mask.step(kinds_of_mask, at="kind")


@padding_mask.step(at=WHOLE)
def in_another_way(lengths, T):
    as_wide_as_longest = (torch.arange(int(lengths.max())) >= lengths[:, None])[:, None, None, :]
    "The mask is as wide as the longest sequence instead of T. | How many keys do the scores have?"
    padded = torch.arange(T) >= lengths[:, None]
    ones_at_tokens = (~padded).long()
    """Your mask holds 1 at tokens and 0 at padding, (B, T), as tokenizers give it; the exercise
    asks for True where a key is blocked, (B, 1, 1, T). | What does True mean here, and where do the
    axes belong?"""
    full_length_blocked = (padded | (lengths == T)[:, None])[:, None, None, :]
    """A sequence without any padding is blocked from end to end. (A slice that begins at −0 does
    that: it begins at 0.) | What is T − length there, and what does your line make of it?"""
    lengths_as_tokens = (lengths == 0)[:, None, None, None].expand(-1, 1, 1, T)
    """A sequence of length 0 is blocked, but nothing in the others. (Comparing the lengths with 0,
    as if they were tokens, does that; so does an index along the wrong axis.) | What does a length
    of 3 say about keys 0 to T − 1?"""
    first_only = (torch.arange(T) == lengths[:, None])[:, None, None, :]
    """Only the first padding key is blocked, the one at position lengths[b]: those after it stay
    open. | Which of the keys 0 to T − 1 are padding?"""
    causal_too = padded[:, None, None, :] | future(T)
    """The causal triangle is blocked as well, (B, 1, T, T). | The exercise asks for padding alone.
    Which line adds the future?"""


BELOW = "What lies below every score, however low?"


def scores_and_masks() -> Iterator[Case]:
    def mask(*shape: int, seed: int) -> Tensor:
        blocked = normal(*shape, seed=seed) > 0.3
        blocked[..., 0] = False  # a key is left to every query
        return blocked

    sizes = {"B": 2, "h": 3, "T_q": 5, "T_k": 7}
    scores = normal(2, 3, 5, 7, seed=0, std=2)
    yield Case((scores, mask(2, 3, 5, 7, seed=1)), sizes, "with a mask of its own for every head")
    dead = mask(2, 3, 5, 7, seed=2)
    dead[0, 1, 2] = dead[1, :, 4] = True
    yield Case((scores, dead), sizes, "with rows in which every key is blocked")
    small = {"T_q": 3, "T_k": 5}
    blocked = torch.tensor([[0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).bool()
    note = "with every key of query 1 blocked"
    yield Case((normal(3, 5, seed=3), blocked), small, note)
    yield Case((normal(3, 5, seed=4), blocked[:1]), small, "with one mask row for all queries")
    padding = torch.tensor([3, 0])[:, None] <= torch.arange(7)
    yield Case((scores, padding[:, None, None]), sizes, "with lengths 3 and 0, mask (B, 1, 1, T_k)")
    yield Case((scores, mask(5, 7, seed=6)), sizes, "with a mask (T_q, T_k)")
    note = "with nothing blocked"
    yield Case((normal(2, 3, 5, seed=7), torch.zeros(3, 5).bool()), {"B": 2, **small}, note)
    yield Case((strided(scores), strided(dead)), sizes, "with scores and mask not contiguous")
    square = {"B": 3, "T_q": 3, "T_k": 3}
    dead = mask(3, 3, 3, seed=9)
    dead[0, 2] = True
    yield Case((normal(3, 3, 3, seed=8), dead), square, "with the last row of sequence 0 blocked")
    note = "with a causal mask"
    yield Case((normal(5, 5, seed=10), future(5)), {"T_q": 5, "T_k": 5}, note)
    # Sixteenths, so that an answer that computes in float32 sees the very same scores.
    low, wide = ((normal(3, 5, seed=11, std=std) * 16).round() / 16 for std in (1, 5_000))
    yield Case((low - 10_000, blocked), small, "with scores near −1e4", 2e-3, True)
    yield Case((wide, blocked), small, "with scores up to ±1e4", 2e-3, True)
    order = normal(3, 5, seed=15).argsort(-1)
    coarse = -64 * (157 + order.double())  # every dtype has these, and their weights are 0 and 1
    yield Case((coarse, blocked), small, "with scores of −10,048 and below")
    mixed = normal(3, 5, seed=13)
    mixed[0] = torch.tensor([-1e4, 1e4, -1e4, -1e4, 1e4])
    note = "where open keys score −1e4 and blocked ones 1e4"
    yield Case((mixed, blocked), small, note, 2e-3, True)
    yield Case(
        (normal(1, 1, seed=14), torch.tensor([[True]])),
        {"T_q": 1, "T_k": 1},
        "with the only key blocked",
    )
    scores, asks = normal(3, 5, seed=60), "Which masks broadcast to the shape of the scores?"
    yield Case((scores, blocked[:, :1]), {}, "with a mask (T_q, 1)", asks=asks)
    yield Case((scores, blocked[0]), {}, "with a mask (T_k,)", asks=asks)
    # In float32 such scores are off by up to .004.
    low, note = scores - 7e4, "where the open scores lie near −70,000"
    yield Case((low, torch.arange(5).expand(3, 5) > 2), {}, note, 2e-2, asks=BELOW)


def minus_1e9(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -1e9)


def zero_where_blocked(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, 0.0)


def nan_of_empty_rows(where: str) -> Finding:
    """Results may be clean and their gradients NaN all the same."""
    return Finding(
        "nan_gradient",
        f"{where} has NaN in it. (A softmax of nothing but −∞ is NaN. A zero in its place does not "
        "repair the backward pass where −∞ was *added* to the scores, nor where it comes only "
        "after the product with V.)",
        "How could the softmax of a blocked row be kept from ever seeing nothing but −∞?",
    )


def nan_of_overflow(where: str, also: str = "") -> Finding:
    return Finding(
        "nan_gradient",
        f"{where} has NaN in it{also}. (Where `exp` overflows at a blocked key, a zero in its "
        "place afterwards does not repair the backward pass: 0 · ∞ is NaN.)",
        "Which blocked scores does `exp` see, and could they be lowered first?",
    )


def gradients_of_blocked_rows(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    where = "The weights are right, but the *gradient* of the scores"
    for case in cases:
        scores, mask = case.inputs
        with_keys = replace(case, inputs=(scores, mask & ~mask.all(-1, keepdim=True)))
        if has_nan(masked_softmax, answer, case):
            if has_nan(masked_softmax, answer, with_keys):
                return nan_of_overflow(where, ", also where every query has a key left")
            return nan_of_empty_rows(where)
    return None


def nan_on_the_way(attempt: Attempt) -> str:
    seen = (where_nan(attempt, case) for case in attempt.bound.cases)
    if not (first := next(filter(None, seen), "")):
        return ""
    return (
        f"On the way an empty row is NaN. {first} It leaves no trace here, in weights or "
        "gradients, because −∞ was filled in; added, it would spoil the gradients. Can you do "
        f"without NaN?{HIDES if attempt.source.calls(('nan_to_num',)) else ''}"
    )


HIDES = (
    " And `nan_to_num` makes *every* NaN a 0: one that comes in with the scores, from a mistake "
    "elsewhere, goes unseen."
)


@exercise(
    9,
    "04",
    reread="A query that may see nothing",
    half=True,
    remark=nan_on_the_way,
    make_cases=scores_and_masks,
    gives=("weights (..., T_q, T_k)",),
    stages="fill normalise empty",
    further=(gradients_of_blocked_rows,),
)
def masked_softmax(scores, mask, *, read, fill, normalise, empty):
    """Softmax over the keys that are not blocked; a row without any is zero."""
    blocked = read(mask, scores)
    return empty(normalise(fill(scores, blocked)), blocked)


masked_softmax.adopt(attention, "normalise", but=("causal_softmax",))


@masked_softmax.step
def empty(weights, mask):
    """What should a query get that has no key left to look at?"""
    gone = mask.all(-1, keepdim=True)
    nan_to_zero = weights.nan_to_num(0.0)
    "right"
    blocked_rows_left = weights
    "A row whose every key is blocked is NaN: no key is left to share out the 1, and 0/0 is NaN."
    blocked_rows_uniform = weights.masked_fill(gone, 1 / weights.shape[-1])
    """A row whose every key is blocked still shares out a weight of 1, evenly over what was
    blocked. (That is what a softmax gives of equal scores, be they all −1e9 or all 0.)"""
    itself = torch.eye(*weights.shape[-2:], dtype=weights.dtype).expand_as(weights)
    own_key_for_blocked_rows = torch.where(gone, itself, weights)
    "A row whose every key is blocked gives all of its weight to the key at its own place."
    any_for_all = weights.masked_fill(mask.any(-1, keepdim=True), 0.0)
    "Any row that has *one* blocked key is set to zero. | Which rows have nothing left to look at?"
    only_if_all_is_blocked = torch.zeros_like(weights) if mask.all() else weights
    """Blocked rows are only dealt with if *every* entry of the mask is True; one blocked row alone
    stays 0/0 = NaN. | Over which axis do you ask whether all keys of a query are blocked?"""
    return weights.masked_fill(gone, 0.0)


@masked_softmax.step
def fill(scores, mask):
    blocked_rows_left_open = scores.masked_fill(mask & ~mask.all(-1, keepdim=True), -math.inf)
    "right"
    return scores.masked_fill(mask, -math.inf)


@masked_softmax.step
def read(mask, scores):
    """True means *blocked* in this course. In which row of your result do you see the opposite?"""
    true_means_keep = ~mask
    "The mask is used the wrong way round: what is True stays, and what is False is blocked."
    mask_ignored = torch.zeros_like(mask)
    """The mask is not used: it changes no weight. | What has to happen to a score so that its
    weight becomes 0, and the others sum to 1?"""
    causal_instead = torch.ones_like(scores).triu(1).bool()
    "A causal mask is applied, not the one that was given. | What does the second argument say?"
    mask_of_sequence_0 = torch.broadcast_to(mask, scores.shape)[:1]
    """All sequences are masked alike, by the mask of the first. | What does the mask's first axis
    count, where it has four?"""
    mask_of_head_0 = mask[:, :1] if mask.ndim == 4 else mask
    """All heads are masked alike, by the mask of head 0. | The mask may have an axis for the heads.
    How long can it be?"""
    first_key_open = mask & (torch.arange(mask.shape[-1]) > 0)
    "Key 0 stays open for every query, whatever the mask says. | May that key be blocked as well?"
    return mask


@masked_softmax.step(at="fill")
def fill_inverted(scores, mask):
    filled_where_false = scores.masked_fill(~mask, -math.inf)
    "= true_means_keep"


@masked_softmax.step(at="fill", empty=unchanged)
def fill_all_alike(scores, mask):
    """What should a query get that has no key left to look at?"""
    large_negative = scores.masked_fill(mask, -1e9)
    "= blocked_rows_uniform"
    added_1e9 = scores + mask.to(scores.dtype) * -1e9
    """A row whose every key is blocked gets weights as if nothing were blocked. (Adding −1e9 to all
    of its scores does that, and so does leaving such rows out of the mask.)"""
    lowest_score = scores.masked_fill(mask, scores.min())
    """Blocked scores become the lowest score that there is, and that is an ordinary one: blocked
    keys keep a share. | Which score has weight 0 after a softmax?"""


@masked_softmax.step(at="fill", empty=(unchanged, None))
def fill_wrongly(scores, mask):
    """What has to happen to a score so that its weight becomes 0, and the others sum to 1?"""
    zero_scores = scores.masked_fill(mask, 0.0)
    """Blocked scores become 0 (or nearly 0), and 0 is an ordinary score: exp(0) = 1, so blocked
    keys get weight. | Which score has weight 0 after a softmax?"""
    only_blocked_rows = scores.masked_fill(mask & mask.all(-1, keepdim=True), -math.inf)
    """Only rows whose *every* key is blocked are masked: in all others every key stays open. |
    Which of the two sets of entries is to be filled?"""
    numbers = mask.to(scores.dtype)
    mask_added = scores + numbers
    "The mask is *added* to the scores as 0 and 1: a blocked key scores one point more."
    times_infinity = scores + numbers * -math.inf
    """What is not blocked becomes NaN, as 0 · −∞ is, or a softmax over nothing but −∞. | Which of
    the two does your code make, and how can −∞ be put in certain places and nowhere else?"""
    added_1e4 = (scores + numbers * n for n in (-1e4, -1000))
    """A number is only subtracted from a blocked score: real scores can differ by more than that,
    and then a blocked key wins. | Which value lies below every possible score?"""


@masked_softmax.step(at="fill", empty=zero_where_blocked)
def fill_and_zero(scores, mask):
    zero_scores_zeroed = scores.masked_fill(mask, 0.0)
    """Blocked scores become 0, take their share in the softmax, and are set to 0 only after it:
    rows no longer sum to 1. | Which score has weight 0 after a softmax?"""


@masked_softmax.step(at="normalise", fill=minus_1e9, empty=zero_where_blocked)
def normalise_and_zero(scores):
    """Each query shares out a weight of 1 among the keys. Along which axis do the keys lie?"""
    over_queries = scores.softmax(-2)
    "= softmax_over_queries"
    over_axis_1 = scores.softmax(1)
    "= softmax_over_axis_1"
    over_axis_0 = scores.softmax(0)
    "= softmax_over_axis_0"


@masked_softmax.step(at="fill", empty=lambda weights, mask: weights.nan_to_num(0.0))
def fill_and_mend(scores, mask):
    times_infinity_mended = scores + mask.to(scores.dtype) * -math.inf
    """Every weight is 0: all rows were NaN before NaN was made 0, as 0 · −∞ is, or a softmax over
    nothing but −∞. | How can −∞ be put in certain places and nowhere else?"""


@masked_softmax.step(at="empty", fill=unchanged)
def empty_after(weights, mask):
    """Which scores should the softmax never get to see?"""
    kept = weights.masked_fill(mask, 0.0)
    zeroed_after = kept
    """The mask comes after the softmax: blocked weights are set to 0, their share is lost, and rows
    no longer sum to 1. | When would the open keys share out all of the weight: mask before the
    softmax, or after?"""
    blocked_kept_after = weights * mask
    """After the softmax the weights are multiplied by the mask itself: only blocked keys keep their
    weight. | True means *blocked* in this course. In which row of your result do you see the
    opposite?"""
    gone = mask.all(-1, keepdim=True)
    infinity_after = (weights.masked_fill(mask, n) for n in (-math.inf, -1e9, -1e4))
    """−∞, or a number nearly as low, is put in after the softmax, among the *weights*: there it is
    multiplied with a value like any other weight. | −∞ is the score whose weight is 0. On which
    side of the softmax do scores stand?"""
    infinity_after_cleared = (
        weights.masked_fill(mask, n).masked_fill(gone, 0.0) for n in (-math.inf, -1e9)
    )
    "= infinity_after"
    renormalised_after = shares(kept)
    """The mask comes after the softmax (or its `exp`), and rows are divided by what is left: where
    nothing is left (no key is open, or the open ones score far below the blocked) that is 0/0."""
    renormalised_cleared = shares(kept).nan_to_num(0.0)
    """Where the open keys score far below the blocked ones the row is lost, and comes out as 0: a
    blocked score still takes part in the softmax, or in the maximum, and is removed only after
    it."""


@masked_softmax.step(at=WHOLE)
def one_maximum(scores, mask):
    """Which number may be taken away from a row without changing its softmax?"""
    kept = (scores - scores.max()).exp().masked_fill(mask, 0.0)
    global_maximum_cleared = kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)
    """The largest number of the *whole* tensor is subtracted before `exp`: rows that lie far below
    it lose all their weight, and come out as 0."""
    raw = scores.exp().masked_fill(mask, 0.0)
    product = scores.exp() * ~mask
    naive_times = product / product.sum(-1, keepdim=True).clamp(min=1e-300)
    """Rows with very large or very low scores are lost. (`exp` of the scores as they are does that:
    it overflows for the first, and is 0 for the others.)"""
    naive_mended = shares(raw).nan_to_num(0.0)
    "= naive_times"
    low = scores.masked_fill(mask, -math.inf)
    most = low.amax(-1, keepdim=True).clamp(min=0.0)
    powers = (low - most).exp()
    one_added = powers / ((-most).exp() + powers.sum(-1, keepdim=True))
    """A 1 is added to the sum of the exponentials, as if there were one key more with score 0: rows
    sum to less than 1. | What should the weights of one query sum to?"""
    powers = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0.0)
    epsilon_added = (shares(powers, small) for small in (0.1, 1e-2, 1e-3, 1e-4, 1e-5))
    """A small number is added to the sum that is divided by: rows sum to less than 1, and where the
    open keys score low they lose most of their weight. | Which rows need that number, and what
    could be done for those alone?"""
    of_open_keys = (low - low.amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    epsilon_after_mask = (shares(of_open_keys, small) for small in (0.1, 1e-2, 1e-3, 1e-4, 1e-5))
    "= epsilon_added"
    epsilon_and_overflow = (shares(product, small) for small in (0.1, 1e-2, 1e-3, 1e-4, 1e-5))
    """A small number is added to the sum that is divided by, so rows sum to less than 1; and `exp`
    takes the scores as they are, and overflows where they are large. | What may be taken away from
    a row before `exp`, and which rows need the small number?"""


@masked_softmax.step(at="fill", empty=(unchanged, None, zero_where_blocked))
def filled_too_high(scores, mask):
    too_high = (
        scores.masked_fill(mask, -n)
        for n in (1e4, 9999, 5000, 1000, 999, 500, 100, 99, 50, 20, 10, 5, 2, 1)
    )
    """Blocked scores become a number that is not low enough (0, where the scores are multiplied by
    the mask): real scores can be as low as −1e4, and then the blocked ones take the weight. | Which
    value lies below every possible score?"""
