"""Exercises 7, 8 and 9, notebook 04: two masks, and the softmax that survives them."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, Exercise, Finding, exercise
from mha_lesson.check.inputs import normal, strided

# --- exercise 7 ----------------------------------------------------------------------------------


def lengths_of_sequences() -> Iterator[Case]:
    for T in (5, 3, 7, 2, 1):
        yield Case((T,), {"T": T})


def future(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(1)


def as_bool(mask: Any) -> Any:
    return mask


@exercise(7, "04", cases=lengths_of_sequences, gradient=None, gives=("mask (T, T)",))
def causal_mask(T: int, *, triangle: Any = future, kind: Any = as_bool, axes: Any = as_bool) -> Any:
    """True above the diagonal."""
    return axes(kind(triangle(T)))


MEANING = "True means *blocked* here. May query 2 look at key 1?"


@causal_mask.slip(
    "triangle",
    "True and False are the wrong way round: your True stands where looking is *allowed*.",
    MEANING,
)
def keep_mask(T: int) -> Tensor:
    return ~future(T)


@causal_mask.slip(
    "triangle",
    "The diagonal is blocked as well: no token may look at itself, and query 0 is left with no key "
    "at all.",
    "Query i may see keys 0 … i. Is i among them?",
)
def diagonal_blocked(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(0)


@causal_mask.slip(
    "triangle",
    "The *past* is blocked instead of the future: your True stands below the diagonal.",
    "Row i is query i, column j is key j. Which keys come later than the query?",
)
def past_blocked(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril(-1)


@causal_mask.slip(
    "triangle",
    "Off by one: the next token can still be seen, the mask starts at the second after it.",
    "Which is the first key that query i may not see?",
)
def one_too_late(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(2)


@causal_mask.slip(
    "triangle",
    "Off by one: the last past token is blocked too.",
    "Which is the first key that query i may not see?",
)
def one_too_early(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(-1)


@causal_mask.slip("triangle", "Nothing is blocked: every entry is False.", MEANING)
def nothing_blocked(T: int) -> Tensor:
    return torch.zeros(T, T, dtype=torch.bool)


@causal_mask.slip("triangle", "Everything is blocked: every entry is True.", MEANING)
def everything_blocked(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool)


@causal_mask.slip(
    "triangle",
    "Only the diagonal is True: each token is barred from itself, and from nothing else.",
    MEANING,
)
def only_diagonal(T: int) -> Tensor:
    return torch.eye(T, dtype=torch.bool)


@causal_mask.slip(
    "triangle",
    "Only the next token is blocked, not all that follow.",
    "Which keys lie in the future of query 0?",
)
def only_next(T: int) -> Tensor:
    return future(T) & ~one_too_late(T)


@causal_mask.slip(
    "triangle",
    "All but the diagonal is blocked: each token only sees itself.",
    "Query i may see keys 0 … i. Which are missing?",
)
def only_itself(T: int) -> Tensor:
    return ~only_diagonal(T)


@causal_mask.slip(
    "triangle",
    "The triangle is cut along the other diagonal, from top right to bottom left.",
    "Where in the matrix do query i and key i meet?",
)
def other_diagonal(T: int) -> Tensor:
    return future(T).flip(0)


@causal_mask.slip(
    "triangle",
    "The triangle is cut along the other diagonal, from top right to bottom left.",
    "Where in the matrix do query i and key i meet?",
    key="other_diagonal_columns",
)
def other_diagonal_columns(T: int) -> Tensor:
    return future(T).flip(1)


@causal_mask.slip(
    "triangle",
    "The mask is one row and one column too large, (T+1, T+1).",
    "How many queries and how many keys are there?",
)
def too_large(T: int) -> Tensor:
    return future(T + 1)


@causal_mask.slip(
    "triangle",
    "The mask is a single row of T entries: which keys are blocked depends on the query, too.",
    "What is the shape of one True or False per query and key?",
)
def one_row(T: int) -> Tensor:
    return future(T)[0]


NUMBERS = "Which comparison, or which `dtype`, turns this into True and False?"


def _kinds(mask: Any, which: str) -> None:
    """The ways to give a mask that is not bool."""
    for key, does, step in (
        (
            "as_floats",
            f"{which} holds the floats 0 and 1, not bool: a float mask would be *added* to the "
            "scores, and `masked_fill` refuses it.",
            lambda m: m.to(torch.float32),
        ),
        (
            "as_integers",
            f"{which} holds the integers 0 and 1, not bool: `~` of 1 is −2, and `masked_fill` "
            "refuses it.",
            lambda m: m.to(torch.int64),
        ),
        (
            "as_int32",
            f"{which} holds 32-bit integers, not bool: `~` of 1 is −2.",
            lambda m: m.to(torch.int32),
        ),
        (
            "as_minus_infinity",
            f"{which} holds 0 and −∞, to be *added* to scores: here a mask says True or False.",
            lambda m: torch.zeros(m.shape).masked_fill(m, -math.inf),
        ),
        (
            "as_nan",
            f"{which} is 0 · −∞ where nothing is blocked, and that is NaN.",
            lambda m: m.float() * -math.inf,
        ),
        (
            "as_large_negative",
            f"{which} holds 0 and −1e9, to be *added* to scores: here a mask says True or False.",
            lambda m: m.float() * -1e9,
        ),
        ("as_list", f"{which} is a nested list, not a tensor.", lambda m: m.tolist()),
    ):
        mask.slip("kind", does, NUMBERS, key=key)(step)


_kinds(causal_mask, "Your mask")


@causal_mask.slip(
    "axes",
    "The mask has axes of size 1 in front; (T, T) is asked for, and broadcasting adds them anyway.",
    "How many axes does the stub promise?",
)
def two_more_axes(mask: Tensor) -> Any:
    return mask[None, None]


@causal_mask.slip(
    "axes",
    "The mask has an axis of size 1 in front; (T, T) is asked for, broadcasting adds it anyway.",
    "How many axes does the stub promise?",
)
def one_more_axis(mask: Tensor) -> Any:
    return mask[None]


# --- exercise 8 ----------------------------------------------------------------------------------


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


def from_length_on(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions >= lengths


def key_axis_last(mask: Tensor) -> Tensor:
    return mask[:, None, None, :]


@exercise(8, "04", cases=batches_of_lengths, gradient=None, gives=("mask (B, 1, 1, T)",))
def padding_mask(
    lengths: Tensor,
    T: int,
    *,
    where: Any = from_length_on,
    axes: Any = key_axis_last,
    kind: Any = as_bool,
) -> Any:
    """True at keys from lengths[b] on, (B, 1, 1, T)."""
    positions = torch.arange(T, device=lengths.device)
    return kind(axes(where(positions, lengths[:, None])))


FIRST_PAD = "A sequence of length 3 has tokens at positions 0, 1, 2. Where does padding begin?"
PAD_MEANING = "True means *blocked* here. Which keys are to be blocked, tokens or padding?"


@padding_mask.slip(
    "where",
    "True and False are the wrong way round: your True marks the real tokens.",
    PAD_MEANING,
)
def tokens_marked(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions < lengths


@padding_mask.slip(
    "where",
    "Off by one: `>` lets the first padding key through, at position lengths[b].",
    FIRST_PAD,
)
def pad_one_late(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions > lengths


@padding_mask.slip(
    "where",
    "Off by one: the last real token of every sequence is blocked as well.",
    FIRST_PAD,
)
def pad_one_early(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions >= lengths - 1


@padding_mask.slip(
    "where",
    "The wrong way round, and off by one: `<=` marks the tokens and the first padding key.",
    PAD_MEANING,
)
def tokens_and_one_marked(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions <= lengths


@padding_mask.slip(
    "where",
    "Only the key at position lengths[b] is True, and not those after it.",
    "How many padding keys does a sequence of length 3 have among T = 7?",
)
def only_the_first_pad(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions == lengths


@padding_mask.slip(
    "where",
    "Padding is taken to stand *in front*: the first T − lengths[b] keys are blocked.",
    "At which end of a sequence do its tokens begin here?",
)
def padding_in_front(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions < len(positions) - lengths


@padding_mask.slip(
    "where",
    "The first lengths[b] keys are counted from the end: positions run backwards.",
    "At which end of a sequence do its tokens begin here?",
)
def counted_from_end(positions: Tensor, lengths: Tensor) -> Tensor:
    return positions >= len(positions) - lengths


@padding_mask.slip("where", "Nothing is blocked: every entry is False.", PAD_MEANING)
def no_padding(positions: Tensor, lengths: Tensor) -> Tensor:
    return (positions >= lengths) & False


@padding_mask.slip(
    "where",
    "Every sequence gets the same mask, by the longest length.",
    "Which axis of the mask should tell sequences apart?",
)
def longest_for_all(positions: Tensor, lengths: Tensor) -> Tensor:
    return (positions >= lengths.max()).expand(len(lengths), -1)


@padding_mask.slip(
    "where",
    "Every sequence gets the same mask, by the length of sequence 0.",
    "Which axis of the mask should tell sequences apart?",
)
def first_length_for_all(positions: Tensor, lengths: Tensor) -> Tensor:
    return (positions >= lengths[0]).expand(len(lengths), -1)


@padding_mask.slip(
    "axes",
    "The mask has shape (B, T): against scores (B, h, T, T) its B would meet the *queries*.",
    "From the right the axes of the scores are keys, queries, heads, batch. Where do B and T go?",
)
def no_axes_for_heads(mask: Tensor) -> Tensor:
    return mask


@padding_mask.slip(
    "axes",
    "The mask has shape (B, 1, T): the axis for the heads is missing, and B would meet the heads.",
    "From the right the axes of the scores are keys, queries, heads, batch. Where do B and T go?",
)
def one_axis_short(mask: Tensor) -> Tensor:
    return mask[:, None, :]


@padding_mask.slip(
    "axes",
    "The mask has shape (B, 1, T, 1): T stands at the *queries*, so whole rows are blocked and "
    "padding keys can still be seen.",
    "Should the padding be unseen, or unseeing?",
)
def queries_blocked(mask: Tensor) -> Tensor:
    return mask[:, None, :, None]


@padding_mask.slip(
    "axes",
    "The mask has shape (B, T, 1, 1): T stands where the heads are.",
    "From the right the axes of the scores are keys, queries, heads, batch. Where does T go?",
)
def tokens_at_heads(mask: Tensor) -> Tensor:
    return mask[:, :, None, None]


@padding_mask.slip(
    "axes",
    "The mask has shape (1, 1, B, T): B stands where the queries are.",
    "From the right the axes of the scores are keys, queries, heads, batch. Where does B go?",
)
def batch_at_queries(mask: Tensor) -> Tensor:
    return mask[None, None]


@padding_mask.slip(
    "axes",
    "The mask has shape (1, B, 1, T): B stands where the heads are.",
    "From the right the axes of the scores are keys, queries, heads, batch. Where does B go?",
)
def batch_at_heads(mask: Tensor) -> Tensor:
    return mask[None, :, None, :]


@padding_mask.slip(
    "axes",
    "The mask is already spread over the queries, (B, 1, T, T): an axis of 1 would broadcast.",
    "Which two axes may stay 1?",
)
def spread_over_queries(mask: Tensor) -> Tensor:
    return mask[:, None, None, :].expand(-1, -1, mask.shape[1], -1)


@padding_mask.slip(
    "axes",
    "Padding queries are blocked as well, (B, 1, T, T): a row with every key blocked has nothing "
    "left to attend to.",
    "Should the padding be unseen, or unseeing?",
)
def queries_and_keys(mask: Tensor) -> Tensor:
    return mask[:, None, None, :] | mask[:, None, :, None]


@padding_mask.slip(
    "axes",
    "Only where query *and* key are padding is blocked, (B, 1, T, T): real tokens still see it.",
    "What does a real query see of the padding keys?",
)
def queries_with_keys(mask: Tensor) -> Tensor:
    return mask[:, None, None, :] & mask[:, None, :, None]


@padding_mask.slip(
    "axes",
    "The mask is one tensor (B, T, T), for each query and key, without an axis for the heads.",
    "From the right the axes of the scores are keys, queries, heads, batch. Which are missing?",
)
def three_axes(mask: Tensor) -> Tensor:
    return mask[:, None, :].expand(-1, mask.shape[1], -1)


@padding_mask.slip(
    "axes",
    "The mask is transposed, (T, B): sequences are the last axis.",
    "Which axis of the scores does the last axis of the mask meet?",
)
def transposed_mask(mask: Tensor) -> Tensor:
    return mask.mT


_kinds(padding_mask, "Your mask")


@padding_mask.slip(
    WHOLE,
    "The mask is as wide as the longest sequence instead of T.",
    "How many keys do the scores have?",
)
def as_wide_as_longest(lengths: Tensor, T: int) -> Any:
    return (torch.arange(int(lengths.max())) >= lengths[:, None])[:, None, None, :]


@padding_mask.slip(
    WHOLE,
    "Positions are counted from 1 to T and compared with `>=`: the last token is blocked as well.",
    FIRST_PAD,
    key="counted_from_one",
)
def counted_from_one(lengths: Tensor, T: int) -> Any:
    return (torch.arange(1, T + 1) >= lengths[:, None])[:, None, None, :]


@padding_mask.slip(
    WHOLE,
    "The causal triangle is blocked as well, (B, 1, T, T).",
    "What was asked for is padding alone. Which line adds the future?",
)
def causal_too(lengths: Tensor, T: int) -> Any:
    return (torch.arange(T) >= lengths[:, None])[:, None, None, :] | future(T)


# --- exercise 9 ----------------------------------------------------------------------------------


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
    mixed = normal(3, 5, seed=13)
    mixed[0] = torch.tensor([-1e4, 1e4, -1e4, -1e4, 1e4])
    note = "where open keys score −1e4 and blocked ones 1e4"
    yield Case((mixed, blocked), small, note, 2e-3, True)
    yield Case((normal(1, 1, seed=14), torch.tensor([[True]])), {"T_q": 1, "T_k": 1}, "blocked")


def true_means_blocked(mask: Tensor, scores: Tensor) -> Tensor:
    return mask


def minus_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -math.inf)


def softmax_over_keys(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(-1)


def blocked_rows_to_zero(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0)


def gradients_of_blocked_rows(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    """Weights may be clean and their gradients NaN all the same."""
    for case in cases:
        scores, mask = case.inputs
        leaf = scores.clone().requires_grad_()
        try:
            weights = answer(leaf * 1.0, mask.clone())  # a copy: it may be written into
            (weights * normal(*weights.shape, seed=99)).sum().backward()
        except Exception:
            continue  # nothing to differentiate, or not differentiable: not NaN
        if leaf.grad is not None and leaf.grad.isnan().any():
            return Finding(
                "nan_gradient",
                "The weights are right, and the *gradient* of the scores has NaN in it: the "
                "softmax of a row of nothing but −∞ was NaN for a moment. Mending its result (with "
                "`nan_to_num`, `where` or `masked_fill`) does not mend the way back through it.",
                "How could the softmax of a fully blocked row be kept from ever seeing nothing but "
                "−∞?",
            )
    return None


@exercise(
    9,
    "04",
    cases=scores_and_masks,
    gives=("weights (..., T_q, T_k)",),
    further=(gradients_of_blocked_rows,),
)
def masked_softmax(
    scores: Tensor,
    mask: Tensor,
    *,
    read: Any = true_means_blocked,
    fill: Any = minus_infinity,
    normalise: Any = softmax_over_keys,
    empty: Any = blocked_rows_to_zero,
) -> Any:
    """Softmax over the keys that are not blocked; a row without any is zero."""
    blocked = read(mask, scores)
    return empty(normalise(fill(scores, blocked), blocked), blocked)


SENSE = "True means *blocked* in this course. In which row of your result do you see the opposite?"
NOTHING_LEFT = "What should a query get that has no key left to look at?"
BEFORE = "What has to happen to a score so that its weight becomes 0, and the others sum to 1?"


# Other right ways: none is a mistake, but a mistake elsewhere may meet any of them.


@masked_softmax.also_right("empty")
def nan_to_zero(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.nan_to_num(0.0)


@masked_softmax.also_right("fill")
def blocked_rows_left_open(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask & ~mask.all(-1, keepdim=True), -math.inf)


@masked_softmax.also_right("fill")
def finite(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -1e9)


def as_softmax_gives(weights: Tensor, mask: Tensor) -> Tensor:
    return weights


def scores_untouched(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


def fills(exercise: Exercise, does: str, asks: str, key: str = "") -> Callable[[Any], Any]:
    """A wrong way to fill, with fully blocked rows left as they come, or set to zero after all."""

    def register(step: Any) -> Any:
        exercise.slip("fill", does, asks, key=key, also={"empty": as_softmax_gives})(step)
        return exercise.slip("fill", does, asks, key=key)(step)

    return register


filling = partial(fills, masked_softmax)
KEEP = "The mask is used the wrong way round: what is True stays, and what is False is blocked."


@masked_softmax.slip("read", KEEP, SENSE)
def true_means_keep(mask: Tensor, scores: Tensor) -> Tensor:
    return ~mask


@filling(KEEP, SENSE, "true_means_keep")
def filled_where_false(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf)


@filling(KEEP, SENSE, "true_means_keep")
def filled_where_false_finite(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -1e9)


@masked_softmax.slip("read", "The mask takes no part: no score is changed by it.", BEFORE)
def mask_ignored(mask: Tensor, scores: Tensor) -> Tensor:
    return torch.zeros_like(mask)


@masked_softmax.slip(
    "fill",
    "Only rows whose every key is blocked are dealt with; everywhere else the mask takes no part.",
    BEFORE,
)
def only_blocked_rows(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


@filling(
    "Blocked scores become 0 (or nearly 0), and 0 is an ordinary score: exp(0) = 1, so blocked "
    "keys get weight.",
    "Which score has weight 0 after a softmax?",
)
def zero_scores(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, 0.0)


@masked_softmax.slip(
    "fill",
    "Blocked scores become −1e9 (or another huge negative number). In a row whose every key is "
    "blocked all scores are then alike, and the softmax shares the weight out evenly over what was "
    "blocked.",
    NOTHING_LEFT,
    also={"empty": as_softmax_gives},
)
def large_negative(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -1e9)


def _not_low_enough() -> None:
    for low in (-1e4, -1e3, -100.0, -10.0, -1.0):

        def fill_too_high(scores: Tensor, mask: Tensor, low: float = low) -> Tensor:
            return scores.masked_fill(mask, low)

        filling(
            "Blocked scores become a negative number that is not low enough: real scores can be "
            "as low as −1e4, and then blocked keys get weight.",
            "Which value lies below every possible score?",
        )(fill_too_high)


_not_low_enough()


@filling(
    "The mask is *added* to the scores as 0 and 1: a blocked key scores one point more.",
    BEFORE,
)
def mask_added(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype)


@filling(
    "The mask is *subtracted* from the scores as 0 and 1: a blocked key scores one point less.",
    BEFORE,
)
def mask_subtracted(scores: Tensor, mask: Tensor) -> Tensor:
    return scores - mask.to(scores.dtype)


@filling(
    "The scores are multiplied by the mask: open keys get score 0, blocked ones keep theirs.",
    BEFORE,
)
def times_mask(scores: Tensor, mask: Tensor) -> Tensor:
    return scores * mask


@filling(
    "The mask is multiplied by −∞ and added: where nothing is blocked that is 0 · −∞, which is "
    "NaN.",
    "How can −∞ be put in certain places without multiplying?",
)
def times_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask.to(scores.dtype) * -math.inf


@filling(
    "Blocked scores become +∞: ∞ − ∞ is NaN, and a blocked key would win.",
    "Should a blocked key score high or low?",
)
def plus_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, math.inf)


@filling(
    "Blocked scores become +1e9: a blocked key gets all the weight.",
    "Should a blocked key score high or low?",
)
def large_positive(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, 1e9)


@masked_softmax.slip(
    "read",
    "The mask is transposed before it is used: queries and keys are exchanged.",
    "Which axis of the mask belongs to the keys?",
)
def mask_transposed(mask: Tensor, scores: Tensor) -> Tensor:
    return mask.mT


@masked_softmax.slip(
    "read",
    "A causal mask is applied, and not the one that was given.",
    "What does the second argument say?",
)
def causal_instead(mask: Tensor, scores: Tensor) -> Tensor:
    return torch.ones_like(scores).triu(1).bool()


@masked_softmax.slip(
    "fill",
    "Blocked rows are filled with 0 before the softmax, and that spreads them evenly.",
    NOTHING_LEFT,
    also={"empty": as_softmax_gives},
)
def blocked_rows_zeroed_before(scores: Tensor, mask: Tensor) -> Tensor:
    return minus_infinity(scores, mask).masked_fill(mask.all(-1, keepdim=True), 0.0)


SHARE = "Each query shares out a weight of 1 among its keys. Along which axis do the keys lie?"


@masked_softmax.slip(
    "normalise", "The softmax runs over the queries (axis −2): columns sum to 1.", SHARE
)
def over_queries(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(-2)


@masked_softmax.slip("normalise", "The softmax runs over axis 0, the batch or the queries.", SHARE)
def over_axis_0(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(0)


@masked_softmax.slip(
    "normalise",
    "The softmax runs over axis 1, counted from the front: these are the keys only where nothing "
    "stands before the queries.",
    SHARE,
)
def over_axis_1(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(1)


@masked_softmax.slip("normalise", "The softmax runs over axis 2, counted from the front.", SHARE)
def over_axis_2(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(2)


@masked_softmax.slip("normalise", "The softmax runs over the whole matrix at once.", SHARE)
def over_matrix(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


@masked_softmax.slip("normalise", "The softmax runs over all numbers of the tensor at once.", SHARE)
def over_everything(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.flatten().softmax(-1).view_as(scores)


@masked_softmax.slip(
    "normalise",
    "There is no softmax: what comes back are scores.",
    "What makes the weights of a query positive, with a sum of 1?",
)
def scores_only(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


@masked_softmax.slip(
    "normalise",
    "`log_softmax` gives logarithms of weights.",
    "Can a weight be negative?",
)
def logarithms(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.log_softmax(-1)


@masked_softmax.slip(
    "normalise",
    "`exp` of the scores as they are overflows when scores are large (∞/∞ is NaN), and underflows "
    "when they are very low (0/0 is NaN).",
    "Adding one number to a whole row does not change its softmax. Which number would help?",
)
def naive_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


@masked_softmax.slip(
    "normalise",
    "`exp` of the scores as they are overflows or underflows when scores are large or very low; "
    "the small number added to the sum only hides the division by 0.",
    "Adding one number to a whole row does not change its softmax. Which number would help?",
)
def naive_softmax_guarded(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True).clamp(min=1e-9)


@masked_softmax.slip(
    "normalise",
    "The scores are exponentiated, and never divided by their sum.",
    "What should the weights of one query sum to?",
)
def only_exponentials(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.exp()


@masked_softmax.slip(
    "normalise",
    "The softmax is applied twice.",
    "What do weights between 0 and 1 look like after another softmax?",
)
def twice(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(-1).softmax(-1)


@masked_softmax.slip(
    "normalise",
    "A sigmoid weighs every key on its own, so a row need not sum to 1.",
    "Which function lets the keys of a query compete?",
)
def sigmoid_weights(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.sigmoid()


@masked_softmax.also_right("empty")
def blocked_to_zero(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, 0.0)


@masked_softmax.slip(
    "empty",
    "Fully blocked rows are left as the softmax gives them. With −∞ everywhere that is 0/0 = NaN.",
    NOTHING_LEFT,
)
def blocked_rows_left(weights: Tensor, mask: Tensor) -> Tensor:
    return weights


@masked_softmax.slip(
    "empty",
    "After the softmax the blocked weights are set to 0; so their share is missing from the row, "
    "which no longer sums to 1.",
    "When would the open keys share out all of the weight: mask before the softmax, or after?",
    also={"fill": scores_untouched},
)
def zeroed_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, 0.0)


@masked_softmax.slip(
    "empty",
    "After the softmax the weights are multiplied by the mask itself: blocked keys are what stays.",
    SENSE,
    also={"fill": scores_untouched},
)
def blocked_kept_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights * mask


@masked_softmax.slip(
    "empty",
    "After the softmax blocked weights become −∞ (or −1e9): a weight is a share, and cannot be "
    "negative.",
    "Does the mask belong before or after the softmax?",
    also={"fill": scores_untouched},
)
def infinite_after(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask, -math.inf)


@masked_softmax.slip(
    "empty",
    "The mask comes after the softmax, and the rows are divided by what is left: where the open "
    "keys score far below the blocked ones nothing is left, and that is 0/0.",
    "Which scores should the softmax never get to see?",
    also={"fill": scores_untouched},
)
def renormalised_after(weights: Tensor, mask: Tensor) -> Tensor:
    kept = weights.masked_fill(mask, 0.0)
    return kept / kept.sum(-1, keepdim=True)


@masked_softmax.slip(
    "empty",
    "The mask comes after the softmax, and the rows are divided by what is left, with a guard "
    "against 0: where the open keys score far below the blocked ones the row is lost.",
    "Which scores should the softmax never get to see?",
    also={"fill": scores_untouched},
)
def renormalised_guarded(weights: Tensor, mask: Tensor) -> Tensor:
    kept = weights.masked_fill(mask, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)


@masked_softmax.slip(
    "empty",
    "In every fully blocked row all keys get 1/T_k.",
    NOTHING_LEFT,
)
def blocked_rows_uniform(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask.all(-1, keepdim=True), 1 / weights.shape[-1])


@masked_softmax.slip(
    "empty",
    "In every fully blocked row all keys get weight 1.",
    NOTHING_LEFT,
)
def blocked_rows_one(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask.all(-1, keepdim=True), 1.0)


@masked_softmax.slip(
    "empty",
    "Any row that has *one* blocked key is set to zero: `any` where `all` is meant.",
    "Which rows have nothing left to look at?",
)
def any_for_all(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask.any(-1, keepdim=True), 0.0)


@masked_softmax.slip(
    "empty",
    "Blocked *columns* are zeroed (`all` over axis −2), not blocked rows.",
    "Over which axis do you ask whether all keys of a query are blocked?",
)
def all_over_queries(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(mask.all(-2, keepdim=True), 0.0)


@masked_softmax.slip(
    "empty",
    "If any row is blocked entirely, everything becomes zero: `all` without an axis, or an `if`.",
    "Which rows have nothing left to look at, and which others should stay?",
)
def everything_zeroed(weights: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros_like(weights) if mask.all(-1).any() else weights


@masked_softmax.slip(
    "empty",
    "Blocked rows are only dealt with if *every* entry of the mask is True; one blocked row alone "
    "stays 0/0 = NaN.",
    "Over which axis do you ask whether all keys of a query are blocked?",
)
def only_if_all_is_blocked(weights: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros_like(weights) if mask.all() else weights


@masked_softmax.slip(
    WHOLE,
    "Two large negative numbers are added up: the mask times −1e9 is added to the scores, and in a "
    "fully blocked row all keys lose the same, so they get the weights as if nothing were blocked.",
    NOTHING_LEFT,
)
def large_negative_added(scores: Tensor, mask: Tensor) -> Any:
    return (scores + mask.to(scores.dtype) * -1e9).softmax(-1)


@masked_softmax.slip(
    WHOLE,
    "The mask times −1e4 is added to the scores: real scores can differ by more than that, and in "
    "a fully blocked row nothing is blocked.",
    NOTHING_LEFT,
)
def small_negative_added(scores: Tensor, mask: Tensor) -> Any:
    return (scores + mask.to(scores.dtype) * -1e4).softmax(-1)


@masked_softmax.slip(
    WHOLE,
    "The mask times −1e4 is added to the scores, and blocked rows are zeroed after: real scores "
    "can differ by more than 1e4, and then a blocked key wins.",
    "Which value lies below every possible score, whatever is added to it?",
)
def small_negative_added_guarded(scores: Tensor, mask: Tensor) -> Any:
    return blocked_rows_to_zero(small_negative_added(scores, mask), mask)
