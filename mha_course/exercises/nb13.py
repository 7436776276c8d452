"""Exercises 21 and 22, notebook 13: which keys are selected, and what a model's cache takes."""

from collections.abc import Iterator

import torch

from mha_course.engine.families import kinds_of_count, kinds_of_mask
from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, exercise


def scores_to_choose_by() -> Iterator[Case]:
    """Without ties, in halves too: in a row the scores are its ranks, half of them below 0."""
    rows = (((2, 7), 3), ((5,), 2), ((2, 3, 7), 1), ((3,), 5), ((1,), 1), ((3, 11), 4), ((1, 2), 2))
    for seed, ((*axes, T), n_keep) in enumerate(rows):
        ranks = normal(*axes, T, T, seed=seed).argsort(-1).argsort(-1)
        scores = 0.75 * (ranks - T // 2).to(torch.float64) - 0.25
        sizes = {"T": T, "n_keep": n_keep}
        yield Case((scores, n_keep), sizes)
        if seed == 0:
            yield Case((strided(scores), n_keep), sizes, "with scores not contiguous")
            yield Case((scores - 100, n_keep), sizes, "where every score is below 0")


@exercise(
    21,
    "13",
    reread="Line 4 again: selected keys",
    make_cases=scores_to_choose_by,
    gradient=False,
    gives=("mask (..., T, T)",),
)
def select_keys(index_scores, n_keep, *, number, order, chosen, together, kind):
    """True at the future, and at all but the n_keep highest scores of what a query may see."""
    T = index_scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool, device=index_scores.device).triu(1)
    kept = chosen(order(index_scores, future), min(number(n_keep), T))
    return kind(together(kept, future.expand(index_scores.shape)))


@select_keys.step
def order(scores, future):
    """Among which keys should the highest be found?"""
    future_not_hidden = scores
    """The highest are chosen among all keys, the future included: a query that chose later tokens
    has fewer left than it may keep, or none. | Which keys may a query choose from?"""
    future_is_zero = scores.masked_fill(future, 0.0)
    """The future counts as 0 while the keys are chosen: that is more than a negative score. | Which
    score is lower than all others?"""
    itself_hidden = scores.masked_fill(future | torch.eye(len(future)).bool(), -torch.inf)
    "A token cannot choose itself: the diagonal is hidden, too. | May a token look at itself?"
    past_hidden = scores.masked_fill(future.mT, -torch.inf)
    """The past is hidden before the choice, and not the future. | Does `triu` or `tril` leave the
    keys after a query?"""
    lowest = (-scores).masked_fill(future, -torch.inf)
    "The keys with the *lowest* scores are kept. | Which end of the order does `topk` give?"
    largest_size = scores.abs().masked_fill(future, -torch.inf)
    "The sign of the scores is lost: far below 0 counts as high."
    scores_transposed = scores.mT.masked_fill(future, -torch.inf)
    "Rows and columns of the scores are exchanged: rows are queries. | Who chooses whom?"
    newest_first = torch.arange(len(future)).expand(scores.shape).masked_fill(future, -1)
    """The newest keys are kept, whatever their scores: that is a window. | By which number should a
    key be chosen?"""
    return scores.masked_fill(future, -torch.inf)


@select_keys.step
def number(n_keep):
    """How many keys are to be left, the query's own among them?"""
    one_more = n_keep + 1
    "One key too many is kept."
    one_fewer = max(n_keep - 1, 0)
    "One key too few is kept."
    return n_keep


@select_keys.step
def chosen(scores, n):
    """Along which axis do the keys lie?"""
    among_queries = torch.zeros_like(scores, dtype=torch.bool).scatter(
        -2, scores.topk(n, dim=-2).indices, True
    )
    """For each key the best *queries* are chosen, not for each query the best keys. | Along which
    axis do the keys lie?"""
    last_row = torch.zeros_like(scores, dtype=torch.bool).scatter(
        -1, scores[..., -1:, :].topk(n, dim=-1).indices.expand(*scores.shape[:-1], n), True
    )
    "The last query chooses for all. | Does every query have a choice of its own?"
    not_the_best = torch.zeros_like(scores, dtype=torch.bool).scatter(
        -1, (-scores).topk(n, dim=-1).indices, True
    )
    """The keys with the *lowest* scores are chosen, what was hidden among them. | Which end of the
    order does `topk` give?"""
    dropped = torch.zeros_like(scores, dtype=torch.bool).scatter(
        -1, scores.topk(scores.shape[-1] - n, dim=-1).indices, True
    )
    "n_keep keys are dropped, and the others kept. | What does n_keep count?"
    return torch.zeros_like(scores, dtype=torch.bool).scatter(
        -1, scores.topk(n, dim=-1).indices, True
    )


@select_keys.step
def together(kept, future):
    """What happens to a query that may see fewer keys than n_keep?"""
    future_open = ~kept
    """The future is open where a query may see fewer than n_keep keys: what was hidden is chosen
    all the same, to make up the number. | What does `topk` take when too few are left?"""
    inverted = kept & ~future
    "True and False are the wrong way round: your True means *keep*."
    future_only = future
    "Only the future is blocked: all earlier keys stay. | Where is the choice used?"
    choice_or_past = ~kept & ~future
    "The future stays open, and only what was not chosen in the past is blocked."
    both_needed = ~kept & future
    "A key is blocked only where it lies in the future *and* was not chosen. | And, or or?"
    return ~kept | future


select_keys.step(kinds_of_mask, at="kind")


@select_keys.step(at=WHOLE)
def _of_few(index_scores, n_keep):
    """What does a query keep that may see fewer than n_keep?"""
    T = index_scores.shape[-1]
    future = torch.ones(T, T, dtype=torch.bool).triu(1).expand(index_scores.shape)
    hidden = index_scores.masked_fill(future, -torch.inf)
    by_threshold = hidden <= hidden.topk(min(n_keep, T), dim=-1).values[..., -1:]
    "The last of the chosen is blocked, too: what equals the n_keep-th score is kept."
    all_or_nothing = future | (torch.arange(T)[:, None] + 1 < n_keep)
    "A query that may see fewer than n_keep keys gets none, and the others get all."


def caches() -> Iterator[Case]:
    rows = (
        (11, 2, 3, 5, 7, 4, 2),
        (3, 1, 7, 2, 5, 13, 4),
        (101, 8, 64, 18, 19, 17, 1),
        (7, 3, 5, 0, 4, 2, 2),
        (13, 5, 2, 3, 0, 6, 4),
        (1, 2, 11, 3, 5, 1, 8),
        (5, 3, 2, 1, 3, 11, 2),
        (5, 2, 13, 3, 7, 2, 8),
        (2, 3, 11, 5, 7, 5, 4),
    )
    names = ("n_tokens", "n_kv_heads", "d_k", "n_global", "n_local", "window", "bytes_per_number")
    for row in rows:
        yield Case(row, dict(zip(names, row, strict=True)))


@exercise(
    22,
    "13",
    reread="Line 4: local and global layers",
    make_cases=caches,
    gradient=False,
    gives=("bytes",),
)
def cache_bytes(
    n_tokens,
    n_kv_heads,
    d_k,
    n_global,
    n_local,
    window,
    bytes_per_number,
    *,
    local,
    layers,
    token,
    size,
    finish,
):
    """2 · h_kv · d_k · (n_global · T + n_local · min(T, window)) · bytes."""
    held = layers(n_tokens, local(n_tokens, window), n_global, n_local)
    return finish(size(held * token(n_kv_heads, d_k), bytes_per_number))


@cache_bytes.step
def local(n_tokens, window):
    """What does a local layer hold before the text is as long as its window?"""
    always_the_window = window
    """The local layers are counted as full even where the text is shorter than the window. | What
    is there to hold of a text of three tokens?"""
    all_tokens = n_tokens
    """The local layers are counted like global ones: they hold every token. | What does a window
    drop?"""
    the_larger = max(n_tokens, window)
    "The larger of the text and the window is taken, not the smaller."
    one_fewer = min(n_tokens, window - 1)
    """A local layer is counted with one token fewer than its window. | How many tokens does the
    exercise keep?"""
    what_is_dropped = max(n_tokens - window, 0)
    "Counted is what the window drops, and not what it keeps."
    return min(n_tokens, window)


@cache_bytes.step
def layers(n_tokens, in_window, n_global, n_local):
    """Which layers hold what?"""
    no_local = n_global * n_tokens
    "The local layers are missing. | Do they hold nothing?"
    no_global = n_local * in_window
    "The global layers are missing."
    one_layer = n_tokens + in_window
    "One layer of each kind is counted. | How many are there?"
    kinds_exchanged = n_local * n_tokens + n_global * in_window
    "The two kinds of layers are exchanged: global ones are cut to the window, local ones are not."
    all_global = (n_global + n_local) * n_tokens
    "= all_tokens"
    all_local = (n_global + n_local) * in_window
    "All layers are counted as local. | What does a global layer keep?"
    return n_global * n_tokens + n_local * in_window


@cache_bytes.step
def token(n_kv_heads, d_k):
    """What is kept of one token in one layer?"""
    keys_only = n_kv_heads * d_k
    """Half of it is counted: the keys, or the values. | What does a later query read of an earlier
    token?"""
    queries_too = 3 * n_kv_heads * d_k
    "Three rows are counted for each head, as if queries were kept. | Who reads an old query?"
    one_head = 2 * d_k
    "One head is counted: n_kv_heads is missing."
    one_number = 2 * n_kv_heads
    "d_k is missing: one number for each head."
    added = 2 * (n_kv_heads + d_k)
    "n_kv_heads and d_k are added. | How many numbers have h heads of d_k each?"
    return 2 * n_kv_heads * d_k


@cache_bytes.step
def size(numbers, bytes_per_number):
    """The exercise gives bytes for each number, and asks for bytes."""
    numbers_only = numbers
    "Numbers are counted, and not bytes: bytes_per_number is missing."
    bits = numbers * bytes_per_number * 8
    "Bits are counted, and not bytes. | How many bits has a byte, and what was asked for?"
    divided = numbers // bytes_per_number
    "It is divided by the bytes of a number. | Do larger numbers need more room or less?"
    kibibytes = numbers * bytes_per_number / 1024
    "The result is in KiB: the exercise asks for bytes."
    return numbers * bytes_per_number


cache_bytes.step(kinds_of_count, at="finish")
