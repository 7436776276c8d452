"""Exercises 17, 18 and 19, notebook 11: a cache, shared keys, and the mask that both need."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.differs import kind_of
from mha_course.engine.families import kinds_of_mask
from mha_course.engine.inputs import normal, strided, unchanged
from mha_course.engine.report import Finding
from mha_course.engine.safely import Returned, codes_of, fresh, run
from mha_course.exercises import WHOLE, Bound, Case, exercise, nb01, nb04

# Slips of two axes or three that stop with four, or say the same as another there.
DO_NOT_FIT = ("all_axes_reversed", "first_axes_exchanged", "axes_one_and_two", "query_transposed")

# ---------------------------------------------------------------- 17, attention with a cache


def new_tokens_and_a_cache() -> Iterator[Case]:
    rows = ((2, 3, 4, 5, 7), (2, 3, 5, 0, 7), (1, 2, 1, 7, 5), (3, 1, 2, 1, 11), (1, 5, 7, 3, 2))
    for seed, (B, h, n_new, n_old, d_k) in enumerate(rows):
        q, k, v = (normal(B, h, n_new, d_k, seed=seed + 20 * i) for i in range(3))
        old = (
            [normal(B, h, n_old, d_k, seed=seed + 20 * i) for i in (3, 4)] if n_old else [None] * 2
        )
        sizes = {"B": B, "h": h, "T_new": n_new, "T_old": n_old, "d_k": d_k}
        note = f"with {n_old} tokens in the cache" if n_old else "with a cache of None"
        yield Case((q, k, v, *old), sizes, note)
        if seed == 0:
            yield Case((strided(q), strided(k), strided(v), *old), sizes, "not contiguous")
            large = (70 * q, 70 * k, v, 70 * normal(B, h, n_old, d_k, seed=60), old[1])
            yield Case(large, sizes, "where scores go up to ±1e4", 2e-3, True)
    asks = "Which line needs memory in one piece, and who says that it is?"
    moved = [normal(2, n, 3, 5, seed=60 + i).transpose(1, 2) for i, n in enumerate((4, 4, 4))]
    note = "with no cache, and heads that have been moved before the tokens,"
    yield Case((*moved, None, None), {}, note, asks=asks)
    lengths = (2, 2, 2, 1100, 1100)
    moved = [normal(2, n, 3, 5, seed=60 + i).transpose(1, 2) for i, n in enumerate(lengths)]
    note = "with 1,100 tokens in a cache that is not contiguous"
    yield Case((*moved,), {}, note, asks=f"{asks} Or is there a table that is too short?")
    # Each query at least 22,000 below 0 with every key; in float32 that is off by up to .004.
    q, k, v = (normal(2, 3, 4, 5, seed=66 + i).abs() + 1 for i in range(3))
    low = (100 * q, -100 * k, v, None, None)
    yield Case(low, {}, "where all scores are below −20,000", 2e-2, asks=nb04.BELOW)


def flat(
    answer: Any, q: Tensor, k: Tensor, v: Tensor, old_k: Tensor | None, old_v: Tensor | None
) -> Any:
    """What the learner's function gives, of flat inputs, and flat itself."""
    given = answer(q, k, v, None if old_k is None else (old_k, old_v))
    if not (isinstance(given, (tuple, list)) and len(given) == 2):
        return given
    context, cache = given
    if cache is None:
        return context, None, None  # which is told of its parts
    return (context, *cache) if isinstance(cache, (tuple, list)) else (context, cache)


def bind(answer: Any) -> Bound | Finding | None:
    """The learner's function with its cases; findings about the form of what comes back."""
    cases = cached_attention.every_case
    bound = Bound(partial(flat, answer), cases, partial(partial, flat))
    outcome = run(answer, (*cases[0].inputs[:3], cases[0].inputs[3:]), codes_of(answer))
    match outcome.value if isinstance(outcome, Returned) else None:
        case None | (_, (_, _)):
            return bound
        case (_, Tensor()):
            return Finding(
                "cache_in_one",
                "The cache is returned as one tensor; it should be a pair, (k, v), as it came in.",
                "How can keys and values stay two tensors?",
            )
        case (_, cache):
            return _not_asked_for(f"The cache is returned as {kind_of(cache)}")
        case (_, _, _):
            return Finding(
                "cache_not_a_pair",
                "Three things are returned instead of two: the context and the cache, which is "
                "itself a pair (k, v).",
                NEXT,
            )
        case Tensor():
            return Finding(
                "only_context",
                "One tensor is returned; the context *and* the longer cache are asked for.",
                "What does the next call need that only this one has seen?",
            )
        case given:
            return bound if given is ... else _not_asked_for(f"Your code returns {kind_of(given)}")


NEXT = "Could the next call take what you return as its `cache`?"


def _not_asked_for(what: str) -> Finding:
    asked = "two things are asked for, the context and the cache, which is a pair (k, v)."
    return Finding("not_as_asked", f"{what}; {asked}", NEXT)


def the_old_cache_stays(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    for case in cases:
        new = map(fresh, case.inputs[:3])
        outcome = run(partial(answer, *new), case.inputs[3:], set())
        if isinstance(outcome, Returned) and outcome.changed:
            return Finding(
                "old_cache_changed",
                "The values are right, but the *old* cache was changed: whoever kept it, to try "
                "another continuation, finds it overwritten.",
                "Which line writes into a tensor instead of making a new one?",
            )
    return None


@exercise(
    17,
    "11",
    reread="What the new token needs",
    half=True,
    make_cases=new_tokens_and_a_cache,
    bind=bind,
    further=(the_old_cache_stays,),
    gives=(
        "the context (B, h, T_new, d_k)",
        "the cache's tensor of keys (B, h, T_old + T_new, d_k)",
        "the cache's tensor of values (B, h, T_old + T_new, d_k)",
    ),
    stages="join product scale fill normalise mix",
)
def cached_attention(
    q, k, v, old_k, old_v, *, join, product, scale, block, fill, normalise, mix, give
):
    """Causal attention of the new tokens over old and new, and the longer cache."""
    all_k, all_v = join(k, old_k), join(v, old_v)
    scores = scale(product(q, all_k), q, all_k)
    scores = fill(scores, block(scores, all_k.shape[2] - q.shape[2]))
    return give(mix(normalise(scores), q, all_k, all_v), all_k, all_v, (q, k, v, old_k, old_v))


cached_attention.adopt(
    nb01.attention,
    "normalise",
    "mix",
    "product",
    "scale",
    but=(
        *DO_NOT_FIT,
        "by_root_axis_1",
        "causal_softmax",
        "softmax_without_axis",
        "key_not_transposed",
        "entry_by_entry",
        "values_transposed",
    ),
)


@cached_attention.step
def join(new, old):
    """In which order did the tokens come, and along which axis do they lie?"""
    cache_unused = new
    """The cache is not used: the new tokens look at each other only. | Where do the keys of the
    earlier tokens come in?"""
    new_before_old = new if old is None else torch.cat((new, old), dim=2)
    "The new keys and values stand *before* the old ones."
    return new if old is None else torch.cat((old, new), dim=2)


@cached_attention.step(at=WHOLE)
def read_wrongly(q, k, v, old_k, old_v):
    scaled = k / math.sqrt(k.shape[-1])
    scaled_keys_kept = cached_attention.right(q, scaled, v, old_k, old_v, scale=unchanged)
    """The new keys go into the cache already divided by √d_k, and nothing else is scaled: keys that
    come from outside are used as they are. | Should the cache depend on what is done with it?"""
    rows = q if old_k is None else torch.cat((old_k, q), dim=2)
    old_keys_ask = cached_attention.right(rows, k, v, old_k, old_v)
    """The cached keys are joined to the new queries as if they were old ones: there is a row for
    every token, old and new. | Which tokens want a context now?"""

    def pair_exchanged():
        """The cache is read, and given back, as (values, keys). | In which order does the
        exercise name its two parts?"""
        context, values, keys = cached_attention.right(q, k, v, old_v, old_k)
        return context, keys, values

    cache_read_exchanged = cached_attention.right(q, k, v, old_v, old_k)
    "The cache is read as (values, keys). | In which order does the exercise name its two parts?"
    second = v if old_k is None else k
    keys_as_values = cached_attention.right(q, k, second, old_k, old_v)
    """As soon as there is a cache the new *keys* are joined to the old values. | Which two tensors
    belong together?"""


@cached_attention.step
def block(scores, n_old):
    """The last query belongs to the last key. Which columns may the *first* new query see?"""
    square = torch.ones_like(scores[0, 0], dtype=torch.bool)
    n_new, n_all = square.shape
    not_offset = square.triu(1)
    """The mask is not moved by the cache's length: its diagonal begins at the top left, so that the
    first new token sees the very first key only, the second two, and so on."""
    no_mask = ~square
    """There is no mask: the first of several new tokens sees those that come after it. | With one
    new token nothing has to be blocked. And with two?"""
    keys = torch.arange(n_all)
    only_itself = (keys >= n_old) & (keys != torch.arange(n_old, n_all)[:, None])
    """Each new token sees the cache and itself, and none of the new ones before it."""
    mask_with_cache_only = ~square if n_old == 0 else square.triu(n_old + 1)
    """Nothing is blocked while the cache is empty: in the first call every token sees those that
    come after it. | How many new tokens can come in the first call?"""
    mask_without_cache_only = square.triu(1) if n_old == 0 else ~square
    """The future is blocked only while the cache is empty: later, the first of several new tokens
    sees those that come after it."""
    one_too_far = square.triu(n_old + 2)
    "Off by one: each new token sees the one after it."
    one_too_early = square.triu(n_old)
    "Off by one: no token may look at itself."
    new_blocked_later = (keys >= n_old).expand(n_new, n_all) if n_old else square.triu(1)
    """As soon as there is a cache all new keys are blocked: the new tokens see the cache only, not
    even themselves."""
    old_blocked = square.triu(n_old + 1) | (keys < n_old)
    "No new token looks at an old key: the cache is there, but the context does not use it."
    from_the_other_end = square.triu(n_new + 1 if n_old else 1)
    """The diagonal is moved by the number of *new* tokens instead of the number of those in the
    cache."""
    return square.triu(n_old + 1)


@cached_attention.step(at="fill", normalise=unchanged)
def masked_after(scores, blocked):
    """When would the open keys share out all of the weight: mask before the softmax, or after?"""
    zeroed_after = scores.softmax(-1).masked_fill(blocked, 0.0)
    """The mask comes after the softmax: blocked weights are set to 0, their share is lost, and rows
    no longer sum to 1."""
    heads_zeroed_after = scores.softmax(1).masked_fill(blocked, 0.0)
    "The softmax runs over the heads, and the mask comes after it."
    return scores.masked_fill(blocked, -math.inf)  # before the softmax


@cached_attention.step
def give(context, k, v, new):
    """What does the next call need as its `cache`?"""
    _, k_new, v_new, k_old, v_old = new
    old_or_new = (k_new, v_new) if k_old is None else (k_old, v_old)
    old_cache = (context, *old_or_new)
    """The cache is returned as it was, without the new tokens: the next call will not see them. |
    Which variable holds old and new together?"""
    only_new_in_cache = (context, k_new, v_new)
    "The new cache holds the new tokens only: what was before them is forgotten."
    keys_and_values_exchanged = (context, v, k)
    "In the new cache keys and values are exchanged."
    oldest_dropped = (context, k[:, :, 1:], v[:, :, 1:])
    "The oldest token is dropped from the returned cache: all of them are asked for."
    cut_to_8 = ((context, k[:, :, -n:], v[:, :, -n:]) for n in (8, 4))
    """The returned cache is cut to its last tokens: all of them are asked for. | How long may a
    text become?"""
    heads_joined = (context.transpose(1, 2).flatten(2), k, v)
    """The heads of the context are joined, (B, T_new, h·d_k): here they stay apart. | Which shape
    does the exercise ask for?"""
    last_context = (context[:, :, -1:], k, v)
    "Only the last new token's context is returned: all T_new are asked for."
    return context, k, v


# ---------------------------------------------------------------- 18, scores with shared keys


def queries_and_fewer_keys() -> Iterator[Case]:
    rows = (
        (2, 6, 3, 4, 5, 7),
        (3, 6, 2, 5, 7, 11),
        (1, 4, 1, 3, 2, 5),
        (2, 3, 3, 5, 3, 2),
        (2, 1, 1, 7, 3, 5),
        (5, 8, 4, 1, 3, 3),
    )
    for seed, (B, h, h_kv, t_q, t_k, d_k) in enumerate(rows):
        q, k = normal(B, h, t_q, d_k, seed=seed), normal(B, h_kv, t_k, d_k, seed=seed + 20)
        sizes = {"B": B, "h": h, "h_kv": h_kv, "T_q": t_q, "T_k": t_k, "d_k": d_k}
        yield Case((q, k), sizes, f"with h = {h} and h_kv = {h_kv}")
        if seed == 0:
            yield Case((strided(q), strided(k)), sizes, "with inputs not contiguous")
            yield Case((70 * q, 70 * k), sizes, "where scores go up to ±1e4", 2e-3, True)
    inputs = normal(1, 12, 2, 5, seed=60), normal(1, 4, 3, 5, seed=61)
    asks = "Which key head does each of the twelve use?"
    yield Case(inputs, {}, "with h = 12 and h_kv = 4", asks=asks)


@exercise(
    18,
    "11",
    reread="Fewer keys and values than queries",
    make_cases=queries_and_fewer_keys,
    gives=("scores (B, h, T_q, T_k)",),
)
def grouped_scores(q, k, *, share, product, scale, finish):
    """Query head i uses key head i // (h / h_kv)."""
    k = share(k, q)
    return finish(scale(product(q, k), q, k))


grouped_scores.adopt(
    nb01.attention_scores, "product", "scale", "finish", but=(*DO_NOT_FIT, "by_root_axis_1_of_k")
)


@grouped_scores.step
def share(k, q):
    """With h = 6 and h_kv = 3: which key head do query heads 0 and 1 use?"""
    h, h_kv = q.shape[1], k.shape[1]
    dealt_out = k.repeat(1, h // h_kv, 1, 1)
    """The key heads are dealt out in turn, 0, 1, 2, 0, 1, 2, as `repeat` does it: query head i
    uses key head i % h_kv. | Neighbouring query heads are to share a key head. Which function
    repeats each entry on the spot?"""
    first_for_all = k[:, :1].expand(-1, h, -1, -1)
    "All query heads use key head 0."
    mean_of_all = k.mean(1, keepdim=True).expand(-1, h, -1, -1)
    "All query heads use the mean of the key heads: the groups are lost."
    sum_of_all = k.sum(1, keepdim=True).expand(-1, h, -1, -1)
    "All query heads use the sum of the key heads: the groups are lost."
    tokens_repeated = k.repeat_interleave(h // h_kv, dim=2).reshape(k.shape[0], h, *k.shape[2:])
    """The *tokens* of each key head are repeated, and then cut into heads: a head of yours holds
    some tokens several times and others not at all. | After which axis does a new one belong?"""
    by_number_of_groups = k[:, torch.arange(h) // h_kv % h_kv]
    """Query head i uses key head i // h_kv: it has to be divided by the size of a group, h /
    h_kv. | How many query heads share one key head?"""
    return k.repeat_interleave(h // h_kv, dim=1)


@grouped_scores.step
def finish(scores):
    heads_first = scores.transpose(0, 1)
    "The heads come before the batch: (h, B, T_q, T_k). | Batch first: which axis may not move?"


@grouped_scores.step(at=WHOLE)
def _whole(q, k):
    """Which shape is asked for, and which axis of yours is one too many or too few?"""
    B, _, t_q, d_k = q.shape
    h_kv = k.shape[1]
    groups = q.view(B, h_kv, -1, t_q, d_k) if q.is_contiguous() else q.unflatten(1, (h_kv, -1))
    five = groups @ k[:, :, None].mT / math.sqrt(d_k)
    groups_left_apart = five
    """The groups are right, but still an axis of their own: (B, h_kv, h / h_kv, T_q, T_k). | Which
    call joins two neighbouring axes?"""
    averaged = groups.mean(2) @ k.mT / math.sqrt(d_k)
    mean_query_of_group = averaged
    "The *queries* of a group are averaged, (B, h_kv, …): only the keys are shared."
    mean_query_for_each = averaged.repeat_interleave(q.shape[1] // h_kv, dim=1)
    "The *queries* of a group are averaged, so all its heads get the same scores."
    sum_query_of_group = groups.sum(2) @ k.mT / math.sqrt(d_k)
    "The *queries* of a group are added up, (B, h_kv, …): only the keys are shared."
    first_queries_only = five[:, :, 0]
    """Only the first query head of each group is returned, (B, h_kv, T_q, T_k): the others are left
    out. | Every query head keeps scores of its own. What do the heads of a group share?"""
    groups_put_back_wrongly = five.transpose(1, 2).flatten(1, 2)
    """The groups are right, but are joined in the wrong order: head 0 of each group, then head 1 of
    each. | Which of the two axes has to stand in front when they become one?"""


# ---------------------------------------------------------------- 19, the mask of a cache


def new_cached_and_window() -> Iterator[Case]:
    for n_new, n_cached, window in (
        (3, 5, None),
        (3, 5, 4),
        (5, 0, None),
        (4, 0, 2),
        (1, 7, None),
        (1, 7, 3),
        (2, 3, 1),
        (5, 2, 11),
        (7, 4, 5),
        (1, 0, 1),
    ):
        sizes = {"n_new": n_new, "n_cached": n_cached}
        yield Case((n_new, n_cached, window), sizes, f"with window = {window}")
    yield Case((3, 1100, 1090), {}, "with 1,100 tokens in the cache", asks=nb04.RUNS_OUT)


@exercise(
    19,
    "11",
    reread="Windows: look back so far and no further",
    make_cases=new_cached_and_window,
    gradient=False,
    gives=("mask (n_new, n_cached + n_new)",),
)
def cached_mask(n_new, n_cached, window, *, queries, future, past, together, kind, axes):
    """True at the future, and at what lies `window` or more tokens back."""
    query, key = queries(n_new, n_cached), torch.arange(n_cached + n_new)
    return axes(kind(together(future(query, key), past(query, key, window))))


@cached_mask.step
def future(query, key):
    """True means *blocked*. May a token look at itself, and at the one after it?"""
    itself_too = key >= query
    "No token may look at itself: the diagonal is blocked as well."
    from_the_top_left = key > query - query[:1]
    """The future is counted from the top left, in rows of the mask: it is not moved by the cache's
    length, but the window is. | At which place of the text does the first new token stand?"""
    nothing = torch.zeros_like(query - key, dtype=torch.bool)
    """The future is not blocked at all. | With one new token nothing has to be blocked. And with
    two?"""
    return key > query


@cached_mask.step
def past(query, key, window):
    """With a window of 1 a token sees itself only. How far back is the last one that it may see?"""
    back = query - key
    none = torch.zeros_like(back, dtype=torch.bool)
    window_ignored = none
    """The window is not used: everything earlier stays visible. | What may a token see with a
    window of 1?"""
    one_too_narrow = none if window is None else back >= window - 1
    """Off by one: a token sees one too few; with a window of 1 not even itself. | What may a token
    see with a window of 1?"""
    one_too_wide = none if window is None else back > window
    """Off by one: a token sees itself and `window` tokens before it, one too many. | What may a
    token see with a window of 1?"""
    front_blocked = none if window is None else (key < window) & (key < query)
    "The first `window` keys are blocked, and not those that lie `window` or more places back."
    from_the_end = none if window is None else key < key.max() + 1 - window + 0 * query
    """The window is counted back from the last token for everybody: earlier new tokens lose what
    they should still see."""
    from_the_first_new = none if window is None else key <= query[:1] - window + 0 * query
    "The window is counted back from the *first* new token for everybody: later ones see too much."
    not_offset_rows = none if window is None else back - query[:1] >= window
    """The window counts the rows of the mask, not the places in the text: it is not moved by the
    cache's length."""
    pieces = none if window is None else key // window < query // window
    """The text is cut into pieces of `window` tokens, and a token sees those of its own piece only.
    | How far back may the first token of a piece see?"""
    ends = query + 1 - (window or 0)
    negative_end = none if window is None else key < ends + (ends < 0) * (key.max() + 1)
    """Where the window reaches back before token 0 a slice has a negative index there, and that is
    counted from the right. | Which index should it be?"""
    among_new_only = none if window is None else (back >= window) & (key >= query[0])
    "The window is laid over the new tokens only: everything cached stays visible."
    none_is_zero = back >= (window or 0)
    "Where the window is `None` everything is blocked: None means no window."
    none_is_one = back >= (1 if window is None else window)
    "Where the window is `None`, everything but the token itself is blocked: None means no window."
    return none if window is None else back >= window


@cached_mask.step(at="past", future=lambda query, key: torch.zeros_like(query - key) > 0)
def both_sides(query, key, window):
    """May a token look ahead within its window?"""
    back = query - key
    future_or_window = back < 0 if window is None else back >= window
    "As soon as there is a window the future is open: only what lies too far back is blocked."
    symmetric = back < 0 if window is None else back.abs() >= window
    "The window reaches to both sides: what lies ahead within it is open."


@cached_mask.step
def queries(n_new, n_cached):
    """At which place of the whole text does the first new token stand?"""
    not_offset = torch.arange(n_new)[:, None]
    """The rows are those of tokens 0, 1, …, as if nothing stood before the new ones: the mask is
    not moved by the cache's length."""
    one_too_far = torch.arange(n_cached + 1, n_cached + n_new + 1)[:, None]
    "The rows are those of tokens one place later: each sees the one after it."
    one_too_early = torch.arange(n_cached - 1, n_cached + n_new - 1)[:, None]
    "The rows are those of tokens one place earlier: none sees itself."
    return torch.arange(n_cached, n_cached + n_new)[:, None]


@cached_mask.step
def together(future, past):
    """What does True say of a key in this course?"""
    inverted = ~(future | past)
    "True and False are the wrong way round: your True means *keep*."
    return future | past


cached_mask.step(kinds_of_mask, at="kind")


@cached_mask.step
def axes(mask):
    """How many rows has the mask, and how many columns?"""
    transposed = mask.T
    "Rows and columns are exchanged: rows are queries, columns are keys."
    new_columns_only = mask[:, -len(mask) :]
    "The mask has columns for the new tokens only; the cached ones are keys as well."
    return mask


@cached_mask.step(at=WHOLE)
def _square(n_new, n_cached, window):
    """Which of these rows belong to the new tokens?"""
    n_all = n_cached + n_new
    position = torch.arange(n_all)
    blocked = position > position[:, None]
    if window is not None:
        blocked = blocked | (position[:, None] - position >= window)
    nothing = torch.zeros_like(blocked[n_cached:])
    open_with_cache = blocked if n_cached == 0 else nothing
    """As soon as something is cached nothing is blocked: right for one new token without a window
    only. | Which keys lie in the future of the first of several new tokens?"""
    all_rows = blocked
    "The mask has a row for every token, the cached ones included: only the new ones are queries."
