"""Exercises 17, 18 and 19, notebook 11: a cache, keys shared by heads, and the mask for both."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.exercise import WHOLE, Bound, Case, exercise
from mha_lesson.check.engine.families import kinds_of_mask
from mha_lesson.check.engine.inputs import normal, strided, unchanged
from mha_lesson.check.exercises.nb01 import attention_scores, by_root_d_k

NOT_HERE = ("by_root_axis_1", "by_root_axis_1_of_k", "minus_root")  # axis 1 is h

# --- 17: attention with a cache -------------------------------------------------------------------


def steps_of_a_text() -> Iterator[Case]:
    for seed, (B, h, new, old, d_k) in enumerate(
        ((2, 3, 2, 4, 7), (1, 2, 3, 5, 2), (2, 3, 5, 0, 7), (3, 1, 1, 6, 5), (2, 2, 1, 0, 3),
         (3, 3, 3, 3, 3), (1, 1, 4, 2, 6))
    ):  # fmt: skip
        sizes = {"B": B, "h": h, "T_new": new, "T_old": old, "T": old + new, "d_k": d_k}
        q, k, v = (normal(B, h, new, d_k, seed=seed + s) for s in (0, 20, 40))
        cache = (
            tuple(normal(B, h, old, d_k, seed=seed + s) for s in (60, 80)) if old else (None,) * 2
        )
        note = f"with {old} tokens in the cache" if old else "without a cache"
        yield Case((q, k, v, *cache), sizes, note)
        if seed == 0:
            yield Case((strided(q), strided(k), strided(v), *cache), sizes, "with q not contiguous")
            yield Case((70 * q, 70 * k, v, *cache), sizes, "with large scores", 2e-3, True)


def bind(answer: Any) -> Bound:
    """The answer takes the cache as one pair, and gives one; the check looks at both halves."""

    def flat(q: Any, k: Any, v: Any, old_k: Any, old_v: Any) -> Any:
        found = answer(q, k, v, None if old_k is None else (old_k, old_v))
        if isinstance(found, (tuple, list)) and len(found) == 2:
            context, cache = found
            if isinstance(cache, (tuple, list)) and len(cache) == 2:
                return context, *cache
        return found

    return Bound(flat, list(steps_of_a_text()))


def old_then_new(x: Tensor, old: Tensor | None) -> Tensor:
    """the keys or values of old and new tokens"""
    return x if old is None else torch.cat([old, x], -2)


def future_of(new: int, length: int) -> Tensor:
    return torch.ones(new, length, dtype=torch.bool).triu(1 + length - new)


def every_key(q: Tensor, k: Tensor) -> Tensor:
    """the products Q Kᵀ"""
    return q @ k.mT


@exercise(
    17,
    "11",
    cases=steps_of_a_text,
    gives=("context (B, h, T_new, d_k)", "cache k (B, h, T, d_k)", "cache v (B, h, T, d_k)"),
    bind=bind,
    keeps_inputs=True,
)
def cached_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    old_k: Any,
    old_v: Any,
    *,
    keys: Any = old_then_new,
    values: Any = old_then_new,
    product: Any = every_key,
    scale: Any = by_root_d_k,
    block: Any = future_of,
    keep: Any = unchanged,
    give: Any = unchanged,
) -> Any:
    """Causal attention of the new tokens over old and new, and the longer cache."""
    all_k, all_v = keys(k, old_k), values(v, old_v)
    scores = scale(product(q, all_k), q, all_k)
    blocked = block(q.shape[-2], all_k.shape[-2]).to(q.device)
    weights = scores.masked_fill(blocked, -math.inf).softmax(-1)
    return give((weights @ all_v, *keep((all_k, all_v), k, v, old_k, old_v)))


@cached_attention.step
def block(new, length):
    """Query 0 of the new tokens stands at position T_old. Which keys may it see?"""
    square = torch.ones(new, length, dtype=torch.bool)
    not_offset = square.triu(1)
    """The mask is not offset by the length of the cache: query i sees keys 0 … i, as if nothing
    came before it."""
    no_mask = ~square
    "Nothing is blocked: new tokens see those that come after them."
    itself_blocked = square.triu(length - new)
    "Every new token is barred from itself, too."
    one_too_late = square.triu(2 + length - new)
    "Off by one: a new token still sees the one after it."
    old_blocked = square.tril(length - new - 1)
    "What is blocked are the old tokens, not the future."
    past_blocked = square.tril(length - new - 1) | future_of(new, length)
    "Everything but the token itself is blocked: the cache takes no part."
    columns_cut = square.triu(1 + length - new).roll(new - length, -1)
    """The mask is cut by columns from the wrong end: what it blocks belongs to other keys than
    those it meets."""
    upside_down = future_of(new, length).flip(0)
    "The mask is upside down: the last new token sees least."


def _joined_wrongly() -> None:
    """Keys and values alike, or the keys alone."""
    asks = "Which tokens does a new one look at, and in which order do they stand?"
    for key, does, way in (
        ("new_first", "stand before the old ones", lambda x, old: torch.cat([x, old], -2)),
        ("only_new", "alone are used: what the cache holds is lost", lambda x, old: x),
        ("only_old", "never come into the cache: only the old ones are used", lambda x, old: old),
        ("along_heads", "are joined along the heads (axis 1)", lambda x, o: torch.cat([o, x], 1)),
        ("last_cached_lost", "follow all old ones but the last, which is lost",
         lambda x, old: torch.cat([old[:, :, :-1], x], -2)),
        ("first_cached_lost", "follow all old ones but the first, which is lost",
         lambda x, old: torch.cat([old[:, :, 1:], x], -2)),
    ):  # fmt: skip

        def join(x: Tensor, old: Any, way: Any = way) -> Tensor:
            return x if old is None else way(x, old)

        cached_attention.slip(
            "keys", f"The new keys and values {does}.", asks, key=key, also={"values": join}
        )(join)
        if key == "new_first":
            words = "The new keys stand before the old ones, and the values after them."
            cached_attention.slip("keys", words, asks, key="keys_first")(join)
            words = "The new values stand before the old ones, and the keys after them."
            cached_attention.slip("values", words, asks, key="values_first")(join)


_joined_wrongly()


@cached_attention.step
def keep(parts, k, v, old_k, old_v):
    """What will the next token need, and what has it not got itself?"""
    exchanged = (parts[1], parts[0])
    "The cache comes back as (v, k)."
    only_the_new = (k, v)
    "The cache that comes back holds the new tokens only: all earlier ones are lost."
    the_old_one = (k, v) if old_k is None else (old_k, old_v)
    "The cache comes back as it went in: the new tokens are not in it."
    keys_twice = (parts[0], parts[0])
    "The cache holds the keys twice, and no values."
    one_token_lost = tuple(x[:, :, 1:] for x in parts)
    "The oldest token is missing in the cache that comes back."
    last_token_lost = tuple(x[:, :, :-1] for x in parts)
    "The newest token is missing in the cache that comes back."
    values_not_kept = (parts[0], v)
    "The values of the earlier tokens are missing in the cache that comes back."


@cached_attention.step
def give(parts):
    """The exercise asks for two things, the context and the pair of keys and values."""
    context_only = parts[0]
    "Only the context comes back: the next token has no cache."
    all_new_tokens_but_one = (parts[0][:, :, -1:], *parts[1:])
    "Only the context of the last new token comes back. | For how many queries is it asked?"


cached_attention.adopt(attention_scores, "scale", but=NOT_HERE)


# --- 18: keys shared by several heads -------------------------------------------------------------


def queries_and_shared_keys() -> Iterator[Case]:
    for seed, (B, h, shared, t_q, t_k, d_k) in enumerate(
        ((2, 6, 2, 3, 5, 7), (1, 4, 2, 3, 2, 5), (2, 6, 3, 5, 7, 3), (3, 5, 1, 2, 3, 7),
         (2, 3, 3, 5, 2, 5), (1, 1, 1, 1, 1, 2), (3, 9, 3, 3, 3, 3))
    ):  # fmt: skip
        sizes = {"B": B, "h": h, "h_kv": shared, "T_q": t_q, "T_k": t_k, "d_k": d_k}
        q, k = normal(B, h, t_q, d_k, seed=seed), normal(B, shared, t_k, d_k, seed=seed + 20)
        yield Case((q, k), sizes)
        if seed == 0:
            yield Case((strided(q), strided(k)), sizes, "with q and k not contiguous")
            yield Case((70 * q, 70 * k), sizes, "where scores go up to ±1e4", 2e-3, True)


def neighbours_share(k: Tensor, h: int) -> Tensor:
    """the keys, one for each head"""
    return k.repeat_interleave(h // k.shape[1], 1)


@exercise(18, "11", cases=queries_and_shared_keys, gives=("scores (B, h, T_q, T_k)",))
def grouped_scores(
    q: Tensor,
    k: Tensor,
    *,
    spread: Any = neighbours_share,
    product: Any = every_key,
    scale: Any = by_root_d_k,
    finish: Any = unchanged,
) -> Any:
    """Scaled scores; query head i looks with key head i // (h / h_kv)."""
    keys = spread(k, q.shape[1])
    return finish(scale(product(q, keys), q, keys), k.shape[1])


@grouped_scores.step
def spread(k, h):
    """With h = 6 and h_kv = 2, with which key head does query head 2 look?"""
    in_turn = k.repeat(1, h // k.shape[1], 1, 1)
    "Key heads are dealt in turn, i % h_kv (`repeat`): neighbouring query heads should share one."
    first_for_all = k[:, :1].expand(-1, h, -1, -1)
    "All query heads look with key head 0."
    last_for_all = k[:, -1:].expand(-1, h, -1, -1)
    "All query heads look with the last key head."
    mean_for_all = k.mean(1, keepdim=True).expand(-1, h, -1, -1)
    "All query heads look with the mean of the key heads."
    sum_for_all = k.sum(1, keepdim=True).expand(-1, h, -1, -1)
    "All query heads look with the sum of the key heads."
    group = h // k.shape[1]
    back_to_front = k.flip(1).repeat_interleave(group, 1)
    "The key heads come back to front."
    shifted = k.repeat_interleave(group, 1).roll(1, 1)
    "The groups are shifted by one head."
    memory_order = k.repeat_interleave(group, 0).reshape(len(k), h, *k.shape[2:])
    "= in_turn"
    tokens_repeated = k.repeat_interleave(group, 2).reshape(len(k), h, *k.shape[2:])
    "The *tokens* are repeated, and then pressed into shape: heads get tokens of others."
    group_for_heads = k[:, (torch.arange(h) // k.shape[1]).clamp(max=k.shape[1] - 1)]
    "Key head i // h_kv is taken, and not i // (h / h_kv)."


@grouped_scores.step
def finish(scores, shared):
    """What does the exercise ask for, for how many query heads?"""
    grouped = scores.unflatten(1, (shared, -1))
    "The groups have an axis of their own, (B, h_kv, h / h_kv, T_q, T_k): five axes, not four."
    summed_in_groups = scores.unflatten(1, (shared, -1)).sum(2)
    "The scores of a group are added up: h_kv heads remain."
    first_of_groups = scores.unflatten(1, (shared, -1))[:, :, 0]
    "Only the first query head of each group comes back."
    groups_dealt = scores.unflatten(1, (shared, -1)).transpose(1, 2).flatten(1, 2)
    "The heads come in another order: the first of each group, then the second of each."
    already_weights = scores.softmax(-1)
    "A softmax is applied already: these are weights, and the scores were asked for."


grouped_scores.adopt(attention_scores, "scale", but=("by_root_axis_1", "by_root_axis_1_of_k"))


# --- 19: the mask for a cache and a window --------------------------------------------------------


def windows() -> Iterator[Case]:
    for new, old, window in (
        (3, 4, None), (4, 3, 2), (5, 0, None), (2, 7, 3), (1, 6, 4), (5, 2, 1), (3, 3, 9),
        (1, 0, 1), (7, 0, 3),
    ):  # fmt: skip
        yield Case((new, old, window), {"n_new": new, "n_cached": old}, f"with window = {window}")


def positions_of(new: int, old: int) -> tuple[Tensor, Tensor]:
    return torch.arange(old, old + new)[:, None], torch.arange(old + new)


def later(query: Tensor, key: Tensor) -> Tensor:
    return key > query


def too_far_back(query: Tensor, key: Tensor, window: Any) -> Tensor:
    return query - key >= window


@exercise(19, "11", cases=windows, gives=("mask (n_new, n_cached + n_new)",), gradient=None)
def cached_mask(
    n_new: int,
    n_cached: int,
    window: Any,
    *,
    place: Any = positions_of,
    future: Any = later,
    far: Any = too_far_back,
    kind: Any = unchanged,
    finish: Any = unchanged,
) -> Any:
    """True where a new query may not look: the future, and what lies `window` or more back."""
    query, key = place(n_new, n_cached)
    mask = future(query, key)
    if window is not None:
        mask = mask | far(query, key, window)
    return finish(kind(mask), n_new, n_cached)


@cached_mask.step
def place(new, old):
    """The first new token comes after everything that is in the cache. Which position is that?"""
    not_offset = (torch.arange(new)[:, None], torch.arange(old + new))
    """The mask is not offset by the length of the cache: the first new query is taken to stand at
    position 0."""
    one_too_far = (torch.arange(old, old + new)[:, None] + 1, torch.arange(old + new))
    "The queries stand one position too late."
    one_too_early = (torch.arange(old, old + new)[:, None] - 1, torch.arange(old + new))
    "The queries stand one position too early: no token sees itself."
    not_advanced = (torch.full((new, 1), old), torch.arange(old + new))
    "All new queries stand at one and the same position: the counter does not advance."
    at_the_end = (torch.full((new, 1), old + new - 1), torch.arange(old + new))
    "All new queries stand at the last position."
    new_keys_only = (torch.arange(new)[:, None], torch.arange(new))
    "The mask has no columns for what is in the cache: (n_new, n_new)."
    square = (torch.arange(old + new)[:, None], torch.arange(old + new))
    "The mask has rows for the cached tokens, too: only the new ones ask."
    twice_offset = (torch.arange(old, old + new)[:, None] + old, torch.arange(old + new))
    "The length of the cache is added twice."
    keys_backwards = (torch.arange(old, old + new)[:, None], torch.arange(old + new).flip(0))
    "The keys are counted backwards."


@cached_mask.step
def future(query, key):
    """May a token look at itself?"""
    itself_too = key >= query
    "Every token is barred from itself, too."
    next_open = key > query + 1
    "The next token can still be seen."
    past = key < query
    "The past is blocked and not the future."
    nothing = (key > query) & False
    "The future is not blocked."


@cached_mask.step
def far(query, key, window):
    """With window = 2 a token sees itself and one before it. Which keys are too far back?"""
    ignored = (query - key) < -(10**6)
    "The window takes no part."
    one_more = query - key > window
    "Off by one: a key that lies exactly `window` tokens back can still be seen."
    one_less = query - key >= window - 1
    "Off by one: the window is one token too narrow."
    both_sides = (query - key).abs() >= window
    "right"
    from_the_last = query.max() - key >= window
    """All queries keep the same last keys (the mask is cut by columns, or the cache is trimmed
    before the early queries have used it): each new query has a window of its own."""
    from_the_first = query.min() - key >= window
    "The window is counted from the first new token for all of them."
    first_columns = (key >= window).expand(len(query), -1)
    "The window keeps the first `window` columns, and not the last ones before each query."
    cut_by_columns = (key < key.numel() - window).expand(len(query), -1)
    "= from_the_last"
    cut_by_rows = (query < window).expand(-1, key.numel())
    "The mask is cut by rows: whole queries are blocked."
    inside = query - key < window
    "What lies *inside* the window is blocked."


kinds_of_mask(cached_mask)


@cached_mask.step(at="finish")
def finished(mask, new, old):
    """The exercise asks for (n_new, n_cached + n_new): a row for each new token."""
    turned = ~mask
    "True and False are the wrong way round: your True stands where looking is *allowed*."
    transposed = mask.mT
    "The mask is transposed: rows are keys."
    an_axis_more = mask[None, None]
    "The mask has axes of size 1 in front."
    new_columns = mask[:, old:]
    "= new_keys_only"
    last_row = mask[-1:]
    "Only the row of the last new token comes back."
    cache_open = mask & (torch.arange(mask.shape[-1]) >= old)
    "Nothing in the cache is blocked, however far back: the cached part ignores the window."


@cached_mask.step(at=WHOLE)
def without_window(n_new, n_cached, window):
    """What does `None` mean, and what does a window of 3?"""
    mask = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).triu(1 + n_cached)
    back = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    window_only = torch.zeros_like(mask) if window is None else back >= window
    "= nothing"
    window_for_future = mask if window is None else back >= window
    "With a window the future stays open."
    both_at_once = mask if window is None else mask & (back >= window)
    "Only what is blocked by both is blocked (`&`): no key is."
