"""Exercise 23, notebook 14: the layer of a model that writes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.blocks import Way
from mha_course.engine.compare import same
from mha_course.engine.differs import kind_of
from mha_course.engine.inputs import normal, strided
from mha_course.engine.report import Finding
from mha_course.engine.rules import REMEMBERS
from mha_course.engine.safely import Outcome, Returned, codes_of, run, seed
from mha_course.exercises import Bound, Case, exercise, nb10, nb11
from mha_course.exercises.nb04 import BELOW, RUNS_OUT, minus_1e9
from mha_course.exercises.nb06 import MultiHeadAttention, into_heads, wrong_layers
from mha_course.exercises.nb06_layers import Layers, Stub, scoring_low
from mha_course.exercises.nb10 import rotated

ANGLES = 1e-4  # how far float32 angles of a few radians may move an output

# ---------------------------------------------------------------- what it is tried on


def calls(x: Tensor, pieces: tuple[int, ...], layers: Layers) -> Any:
    """The outputs of as many calls as there are pieces; what else comes back, as it is."""
    outputs: list[Any] = []
    given: Any = ()
    for new in x.split(pieces, dim=1):
        given = layers.module(new, given[1]) if given else layers.module(new)
        if not (isinstance(given, (tuple, list)) and len(given) == 2):
            return given
        outputs.append(given[0])
    return tuple(outputs)


_SIZES: tuple[dict[str, Any], ...] = (
    {"B": 2, "T": 5, "d_model": 36, "n_heads": 6, "n_kv_heads": 3, "d_k": 6, "base": 100_000.0},
    {"B": 1, "T": 7, "d_model": 40, "n_heads": 4, "n_kv_heads": 2, "d_k": 10, "base": 37.0},
    {"B": 3, "T": 4, "d_model": 12, "n_heads": 3, "n_kv_heads": 1, "d_k": 4, "base": 10_000.0},
    {"B": 2, "T": 3, "d_model": 28, "n_heads": 2, "n_kv_heads": 2, "d_k": 14, "base": 500.0},
    {"B": 1, "T": 2, "d_model": 2, "n_heads": 1, "n_kv_heads": 1, "d_k": 2, "base": 10_000.0},
    {"B": 1, "T": 3, "d_model": 24, "n_heads": 12, "n_kv_heads": 4, "d_k": 2, "base": 9.0},
)
_PIECES = ((2, 2, 1), (3, 1, 3), (1, 2, 1), (1, 1, 1), (1, 1), (2, 1))


def _cases(layers: Layers, sizes: dict[str, Any], number: int) -> Iterator[Case]:
    B, T = sizes["B"], sizes["T"]
    x = normal(B, T, sizes["d_model"], seed=number, std=2)
    yield Case((x, (T,), layers), sizes, "in one call, without a cache", ANGLES)
    if not number:  # the second; of the first two the gradient is asked, and a cache may have none
        yield Case((strided(x), (T,), layers), sizes, "with x not contiguous", ANGLES)
    pieces = _PIECES[number % 10]
    note = f"in calls of {', '.join(map(str, pieces))} tokens"
    yield Case((x, pieces, layers), sizes, note, ANGLES)
    if sizes["n_heads"] == 1:
        x = normal(1, 1103, sizes["d_model"], seed=80)
        note = "behind 1,100 tokens in the cache"
        # A float32 angle of 1,100 radians is off by 6e-5.
        yield Case((x, (1100, 2, 1), layers), {}, note, 1e-2, asks=RUNS_OUT)
    if number:
        return
    # A score of 1e4 moves by 3e-3 with a float32 angle.
    note = "where scores are as large as 1e4"
    yield Case((60 * x, pieces, layers), sizes, note, 5e-2, True)
    low = scoring_low(layers, sizes, 3e4).expand(B, 1, -1)
    inputs = torch.cat([low, x[:, 1:]], 1), (T,), layers
    yield Case(inputs, {}, "where the first token scores itself near −3e4", 5e-2, asks=BELOW)


STUB = Stub(
    "WritingAttention",
    ("d_model", "n_heads", "n_kv_heads", "base"),
    _SIZES,
    _cases,
    calls,
    beside=(None,),
    bias=False,
)
NEXT = "Could the next call take what you return as its `cache`?"


def bind(cls: Any) -> Bound | Finding | None:
    """The learner's class with its cases; findings about the form of what comes back."""
    bound = STUB.bind(cls)
    if not isinstance(bound, Bound):
        return bound
    x, _, layers = bound.cases[0].inputs
    first, second = _twice(layers.learning().module, x, codes_of(cls))
    if not isinstance(first, Returned):
        return bound
    asked = "the output and the cache, which the next call takes as one thing, are asked for."
    match first.value:
        case (Tensor(), _):
            return bound if same(second, first.value[0]) else REMEMBERS
        case Tensor():
            does = f"One tensor is returned; {asked}"
            asks = "What does the next call need that only this one has seen?"
            return Finding("only_output", does, asks)
        case (cache, Tensor() as last) if last.shape == x.shape:
            does = f"The cache is returned first, as {kind_of(cache)}, and the output second."
            return Finding("results_exchanged", does, "Which of the two does the stub name first?")
        case (_, _, _, *_):
            does = f"More is returned than is asked for: {asked}"
            return Finding("cache_in_parts", does, "How can keys and values be one thing?")
        case given:
            return Finding("not_as_asked", f"Your class returns {kind_of(given)}; {asked}", NEXT)


def _twice(module: Any, x: Tensor, codes: set[Any]) -> tuple[Outcome, Any]:
    """What it gives for a text, and the output when it is given that again, with equal luck."""
    seed(0)
    first = run(module, (x,), codes)
    seed(0)
    second = run(module, (x,), codes)
    pair = second.value if isinstance(second, Returned) else None
    return first, pair[0] if isinstance(pair, (tuple, list)) and pair else None


def the_old_cache_stays(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    """Whether a text can be continued twice from one cache, and each continuation go on."""
    x, _, layers = next(c.inputs for c in cases if c.sizes["T"] == 7)
    begun, one, other = x[:, :3], x[:, 3:5], x[:, 5:6]

    def both() -> tuple[Any, ...]:
        _, old = layers.module(begun)
        first, cache = layers.module(one, old)
        second, _ = layers.module(other, old)
        third, _ = layers.module(other, cache)
        return first, second, third

    right = WritingAttention.right
    _, first, third = right(x[:, :6], (3, 2, 1), layers)
    _, second = right(torch.cat([begun, other], 1), (3, 1), layers)
    outcome = run(both, (), set())
    if isinstance(outcome, Returned) and same(outcome.value, (first, second, third), ANGLES):
        return None
    return Finding(
        "old_cache_changed",
        "The values are right, but a call changes the *old* cache: whoever kept it, to try "
        "another continuation, finds tokens of the first in it.",
        "Which line writes into a list or a tensor that the caller still holds?",
    )


# ---------------------------------------------------------------- the right answer, and slips


@exercise(
    23,
    "14",
    reread="Exercise 23: The layer that writes",
    make_cases=lambda: (),
    bind=bind,
    further=(the_old_cache_stays,),
    gives=tuple(f"the output of call {n} (B, T_new, d_model)" for n in (1, 2, 3)),
    ready_made=("GroupedQueryAttention",),
    stages="project split turn join share product scale fill normalise mix >leave leave",
)
def WritingAttention(
    x,
    pieces,
    layers,
    *,
    project,
    split,
    place,
    turn,
    join,
    remember,
    share,
    product,
    scale,
    block,
    fill,
    normalise,
    mix,
    arrange,
    order,
    leave,
    give,
    cut=lambda x, pieces: x.split(pieces, 1),
):
    """Causal attention with rotated, shared and cached keys, one call for each piece of a text."""
    heads = layers.n_heads, layers.n_kv_heads, layers.n_kv_heads
    outputs, old_k, old_v = [], None, None
    for new in cut(x, pieces):
        q, k, v = map(split, project(new, layers), heads, "qkv")
        n_old = 0 if old_k is None else old_k.shape[2]
        turned_q, turned_k, turned_v = turn(q, k, v, place(n_old, q, k), layers.base)
        all_k, all_v = join(turned_k, old_k), join(turned_v, old_v)
        of_k, of_v = share(all_k, q), share(all_v, q)
        scores = scale(product(turned_q, of_k), q, of_k)
        scores = fill(scores, block(scores, of_k.shape[2] - q.shape[2]))
        context = mix(normalise(scores), q, of_k, of_v)
        merged = order(arrange(context)).reshape(*new.shape[:2], -1)
        outputs.append(give(leave(merged, layers, new)))
        old_k, old_v = remember(all_k, all_v, k, old_k, old_v, layers.base)
    return tuple(outputs)


@WritingAttention.step
def project(x, layers):
    return layers.projected(x)


WritingAttention.step(
    (way for way in wrong_layers() if way[0] in ("made_by_qkk", "made_by_qvv", "made_by_qvk")),
    at="project",
)


@WritingAttention.step
def place(n_old, q, k):
    """At which place of the whole text does the first new token stand?"""
    n_new = q.shape[2]
    new = torch.arange(n_new, device=q.device)
    starts_anew = new
    """Positions start anew at every call: the new tokens stand at 0, 1, …, as if there were no
    cache."""
    all_at_one = torch.full((n_new,), n_old)
    "All new tokens of a call stand at one and the same place. | Where does the second one stand?"
    other_axis_counted = ((k.shape[axis] if n_old else 0) + new for axis in (0, 1))
    """The first new token stands at the length of the cache's axis 0 or 1, which counts sequences
    or heads. | Which axis of the cached keys counts the tokens?"""
    one_too_early_later = new + n_old - int(n_old > 0)
    """With a cache every position is one too small: the first new token stands where the last old
    one does. | How many tokens stand before it?"""
    one_too_far_later = new + n_old + int(n_old > 0)
    "With a cache every position is one too large. | How many tokens stand before the first new?"
    from_the_new = new + (n_new if n_old else 0)
    """With a cache positions begin at the number of *new* tokens, and not at that of the old
    ones."""
    return n_old + new


@WritingAttention.step
def turn(q, k, v, at, base):
    """Which two of q, k and v decide who looks where, and must know where they stand?"""
    of_q, of_k = rotated(q, at, base), rotated(k, at, base)
    nothing_turned = q, k, v
    "Nothing is turned: no token knows where it stands. | Which line of yours uses `base`?"
    only_queries_turned = of_q, k, v
    """Only the queries are turned. | Does a product of a turned row and one that is not depend on
    the distance?"""
    only_keys_turned = q, of_k, v
    """Only the keys are turned. | Does a product of a turned row and one that is not depend on the
    distance?"""
    values_turned_too = of_q, of_k, rotated(v, at, base)
    "The values are turned, too: what a token gives depends on its place then."
    only_values_and_queries = of_q, k, rotated(v, at, base)
    "Queries and *values* are turned, and the keys are not."
    base_not_used = rotated(q, at, 10_000.0), rotated(k, at, 10_000.0), v
    """The base is always 10,000: the one that the class is built with is not used. | Where does
    `__init__` keep it, and which line should read it?"""
    queries_start_anew = rotated(q, at - at[0], base), of_k, v
    """The positions of the queries start anew at every call, those of the keys do not. | Query and
    key of one token stand at the same place. Which place is it?"""
    keys_start_anew = of_q, rotated(k, at - at[0], base), v
    """The positions of the keys start anew at every call, those of the queries do not. | Query and
    key of one token stand at the same place. Which place is it?"""
    head = torch.arange(q.shape[1], device=q.device)
    by_head = tuple(
        rotated(x.transpose(1, 2), head[: x.shape[1]], base).transpose(1, 2) for x in (q, k)
    )
    turned_by_head = *by_head, v
    """Rows are turned by the number of their *head*, and not of their token: axis 1 is taken for
    the tokens. | When do the heads come before the tokens, and when does `rotate` have to run?"""
    wide = tuple(into_heads(rotated(joined(x), at, base), x.shape[1]) for x in (q, k))
    turned_before_cut = *wide, v
    """Rows are turned before they are cut into heads: dimensions of different heads turn together.
    | Which dimensions make a pair?"""
    d_model, half = q.shape[1] * q.shape[3], q.shape[3] // 2
    i = torch.arange(half, dtype=torch.float64, device=at.device)
    slow = at[:, None] * base ** (-2 * i / d_model)
    pairs = tuple(x.chunk(2, dim=-1) for x in (q, k))
    by_d_model = tuple(torch.cat(nb10.turned(a, b, slow), -1) for a, b in pairs)
    speeds_of_d_model = *by_d_model, v
    """The exponent is −2i/d_model, so the pairs of a head hardly slow down. | How many pairs does
    one head have?"""
    return of_q, of_k, v


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


# What both queries and keys undergo leaves their products as they are, or turns them as another
# slip does.
_UNDONE = """
    one_further own_count interleaved halves_exchanged neighbours_to_halves exchanged
    sin_and_cos_exchanged stacked
"""


def turned_wrongly() -> Iterator[Way]:
    """The slips of exercise 16, in queries and keys alike."""
    for slip in nb10.rotate.slips:
        if slip.key not in (*_UNDONE.split(), *nb10.OF_BASES):

            def turn(q: Any, k: Any, v: Any, at: Any, base: Any, steps: Any = slip.steps) -> Any:
                return *(rotated(x, at, base, **steps) for x in (q, k)), v

            yield slip.key, slip.does, slip.asks, turn


WritingAttention.step(turned_wrongly(), at="turn")


@WritingAttention.step
def remember(all_k, all_v, k, old_k, old_v, base):
    """What does the next call need as its `cache`?"""
    n_new, n_all = k.shape[2], all_k.shape[2]
    old_cache = (all_k, all_v) if old_k is None else (old_k, old_v)
    """The cache is returned as it was, without the new tokens: the next call will not see them. |
    Which variable holds old and new together?"""
    only_new_in_cache = all_k[:, :, -n_new:], all_v[:, :, -n_new:]
    "The new cache holds the new tokens only: what was before them is forgotten."
    keys_and_values_exchanged = all_v, all_k
    "In the new cache keys and values are exchanged."
    oldest_dropped = all_k[:, :, 1:], all_v[:, :, 1:]
    "The oldest token is dropped from the returned cache: all of them are asked for."
    turned_again = rotated(all_k, torch.arange(n_all), base), all_v
    """The cached keys are turned again at every call: they were turned when they came, and old and
    new are turned together. | Do the keys go into the cache before they are turned, or after?"""
    unturned_kept = (k if old_k is None else torch.cat((old_k, k), 2)), all_v
    """The keys go into the cache before they are turned, and come out as they went in: old keys do
    not know where they stand. | When does a key of the cache get turned?"""
    return all_k, all_v


@WritingAttention.step
def give(output):
    """Of which tokens is the output asked for?"""
    last_output = output[:, -1:]
    "Only the last new token's output is returned: all T_new are asked for."
    return output


WritingAttention.adopt(nb11.grouped_scores, "share")
# Some come to the same as others here, where a cache is not looked into.
WritingAttention.adopt(nb11.cached_attention, "join", "block", but=("old_blocked",))
WritingAttention.adopt(
    nb11.cached_attention, "fill", "normalise", "product", "scale", "mix", but=("global_maximum",)
)
WritingAttention.adopt(MultiHeadAttention, "split", "arrange", "order", "leave", but=("same_head",))


@WritingAttention.step(at="block", fill=minus_1e9)
def with_a_large_number(scores, n_old):
    blind = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(n_old)
    "= one_too_early"
