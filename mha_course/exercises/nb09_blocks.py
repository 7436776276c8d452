"""Exercise 15, notebook 09: attention that never holds all of its scores."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from weakref import finalize

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_course.engine.device import address, bare, flat
from mha_course.engine.inputs import normal, strided, unchanged
from mha_course.engine.report import Finding
from mha_course.exercises import WHOLE, Case, exercise
from mha_course.exercises.nb04 import BELOW

SIZES = (  # T_q, T_k, d_k, d_v, block
    "3 7 5 2 3, 2 11 3 5 4, 5 6 2 3 2, 4 5 7 3 5, 3 5 2 7 8, 2 7 3 3 1, 1 1 1 3 1, 3 3 3 3 2, "
    "1 13 5 2 5"
)


def blocks() -> Iterator[Case]:
    for seed, row in enumerate(SIZES.split(", ")):
        t_q, t_k, d_k, d_v, block = map(int, row.split())
        sizes = {"T_q": t_q, "T_k": t_k, "d_k": d_k, "d_v": d_v, "block": block}
        Q = normal(t_q, d_k, seed=seed)
        K, V = normal(t_k, d_k, seed=seed + 20), normal(t_k, d_v, seed=seed + 40)
        yield Case((Q, K, V, block), sizes)
        if seed == 0:
            yield Case(
                (strided(Q), strided(K), strided(V), block), sizes, "with inputs not contiguous"
            )
            wide = "where scores go up to ±1e4"
            yield Case((70 * Q, 70 * K, V, block), sizes, wide, 2e-3, True)
            low = -K.abs() * 1000 * Q.sign()[:1]  # every score of query 0 is far below 0
            yield Case(
                (Q, low, V, block), sizes, "where scores of query 0 are very low", 2e-3, True
            )
            rising = K * torch.arange(1, t_k + 1)[:, None] ** 2
            yield Case((Q, rising, V, block), sizes, "where later keys score higher", 1e-4, True)
    Q = torch.tensor([[300.0, 1.0], [300.0, -2.0]], dtype=torch.float64)
    K = torch.stack([torch.full((7,), -330.0).double(), normal(7, seed=67)], 1)
    inputs = Q, K, normal(7, 3, seed=68), 3
    # In float32 such scores are off by up to .004.
    yield Case(inputs, {}, "where all scores lie near −70,000", 2e-2, asks=BELOW)


def in_turn(K: Tensor, V: Tensor, block: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(K.split(block), V.split(block), strict=True))


def scaled_scores(Q: Tensor, k: Tensor) -> Tensor:
    return Q @ k.mT / math.sqrt(Q.shape[-1])


class _Sizes(TorchFunctionMode):
    """Sees the largest tensor that is computed, all that is kept, and a fused call with all keys.

    A list of many small tensors holds as much as a large one.
    """

    def __init__(self, t_q: int, t_k: int, n_blocks: int) -> None:
        super().__init__()
        self.t_k, self.largest, self.fused = t_k, torch.empty(0), False
        # No scores: FlashAttention's diag(l), and what each block found, stacked.
        self.others = (t_q, t_q), (n_blocks, t_q), (n_blocks, t_q, 1)
        self.kept = Counter[int]()  # address → how many tensors that are alive lie there
        self.now = self.most = 0  # numbers in them

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "scaled_dot_product_attention":
            self.fused |= self.t_k in args[1].shape
        for x in flat(result):
            if isinstance(x, Tensor) and x.shape not in self.others:
                # Under vmap: all that is held, not the share of one.
                self.largest = max(self.largest, bare(x), key=Tensor.numel)
                finalize(x, self._change, address(x), bare(x).numel(), -1)
                self._change(address(x), bare(x).numel(), 1)
        return result

    def _change(self, at: int, size: int, by: int) -> None:
        self.now += by * size * (self.kept[at] == (by < 0))
        self.kept[at] += by
        self.most = max(self.most, self.now)


def held_at_once(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
    """Whether some tensor holds more scores than a block has: more than K, V and a column of ones.

    Or many together as many as there are. Rows of one number, so that all scores of `block`
    queries, or of twice as many keys, are more; so many blocks that as many parts are more, too.
    """
    t_q, t_k, block = 53, 211, 8
    Q, K, V = normal(t_q, 1, seed=7), normal(t_k, 1, seed=8), normal(t_k, 1, seed=9)
    with torch.no_grad(), _Sizes(t_q, t_k, -(-t_k // block)) as sizes:
        answer(Q, K, V, block)
    if sizes.fused:
        what = f"one call of `scaled_dot_product_attention` with all {t_k} keys"
    elif sizes.largest.numel() > 3 * (t_k + block):
        what = f"a tensor {tuple(sizes.largest.shape)}"
    elif sizes.most >= t_q * t_k:
        what = f"a moment in which small tensors together keep {sizes.most} numbers"
    else:
        return None
    return Finding(
        "holds_all_scores",
        f"The values are right, but too much is held: with T_q = {t_q}, T_k = {t_k} and block = "
        f"{block} there is {what}, where a block of scores is {(t_q, block)}.",
        "Which line holds more keys than one block has?",
    )


@exercise(
    15,
    "09",
    reread="The values come along",
    make_cases=blocks,
    gives=("output (T_q, d_v)",),
    further=(held_at_once,),
)
def blockwise_attention(Q, K, V, block, *, cut, score, top, power, add, collect, finish):
    """softmax(Q Kᵀ / √d_k) V, a block of keys at a time."""
    largest = Q.new_full((len(Q), 1), -math.inf)
    total, output = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[-1])
    parts = cut(K, V, block)
    for k, v in parts:
        scores = score(Q, k)
        new = top(largest, scores)
        powers = power(scores, largest, new)
        fade = (largest - new).exp()
        total = add(total, fade, powers)
        output = collect(output, fade, powers, v, total)
        largest = new
    return finish(output, total, len(parts))


@blockwise_attention.step
def power(scores, old, new):
    """Which number may be taken away from a row of scores before `exp`, and from all its blocks?"""
    old_maximum = (scores - old).exp()
    """Everything is NaN from the first block on: the running maximum starts at −∞ or far down, and
    the exponential of a number minus that (the *old* maximum) is ∞, or something is divided by an
    exponential that is 0. | In each of your exponentials: which maximum is subtracted from what?"""
    own_maximum = (scores - scores.amax(-1, keepdim=True)).exp()
    "Each block subtracts its own maximum before `exp`, not the largest so far."
    return (scores - new).exp()


@blockwise_attention.step
def collect(output, fade, powers, v, total):
    output_not_rescaled = output + powers @ v
    """The old output is not rescaled when a block brings a new maximum: earlier blocks weigh too
    much. | The maximum has grown. By which factor have the old numbers become too large?"""
    return output * fade + powers @ v


@blockwise_attention.step(at="collect", finish=unchanged)
def collect_divided(output, fade, powers, v, total):
    divided_inside = (output * fade + powers @ v) / total
    """The output is divided by the sum in every turn, and not once at the end. | Should what was
    divided be divided again?"""


@blockwise_attention.step(
    at="finish",
    power=lambda scores, old, new: scores.softmax(-1),
    collect=lambda output, fade, powers, v, total: output + powers @ v,
)
def a_softmax_for_each_block(output, total, n):
    """By which sum should the output be divided, and when?"""
    blocks_added = output
    "Every block has a softmax of its own, and their outputs are added up."
    blocks_averaged = output / n
    """Every block has a softmax of its own, and their outputs are averaged: all blocks count the
    same."""


@blockwise_attention.step
def add(total, fade, powers):
    """The maximum has grown. By which factor have the old numbers become too large?"""
    sum_not_rescaled = total + powers.sum(-1, keepdim=True)
    "The old sum is not rescaled when a block brings a new maximum."
    return total * fade + powers.sum(-1, keepdim=True)


@blockwise_attention.step(
    at="collect", add=lambda total, fade, powers: total + powers.sum(-1, keepdim=True)
)
def collect_neither(output, fade, powers, v, total):
    neither_rescaled = output + powers @ v
    """Neither the old sum nor the old output is rescaled when a block brings a new maximum. | By
    which factor have the old numbers become too large?"""


def grown(old: Tensor, fade: Tensor) -> Tensor:
    return torch.where(old == 0, old, old / fade)  # nothing yet, or ∞ where scores lie far apart


@blockwise_attention.step(
    at="collect", add=lambda total, fade, powers: grown(total, fade) + powers.sum(-1, keepdim=True)
)
def collect_upside_down(output, fade, powers, v, total):
    both_upside_down = grown(output, fade) + powers @ v
    """The old sum and output are multiplied by exp(new − old) and grow with a new maximum, but they
    have to shrink. | Which way round is the difference?"""


@blockwise_attention.step
def top(old, scores):
    """Which number may be taken away from a row of scores before `exp`, and from all its blocks?"""
    not_above = torch.zeros_like(old)
    """No maximum is subtracted: `exp` of the scores as they are overflows when they are large, and
    is 0 everywhere when they are very low."""
    from_zero = torch.maximum(old, scores.amax(-1, keepdim=True)).clamp(min=0)
    """The running maximum never falls below 0, or what it begins with: where all scores are very
    low every exponential is 0, and that is 0/0. | With what should a maximum begin?"""
    of_all_queries = torch.maximum(old, scores.max())
    """The largest score of *all* queries is subtracted: a query whose scores lie far below it is
    left with 0/0."""
    smallest = scores.amin(-1, keepdim=True)
    """What is subtracted is not the largest score so far (the smallest, perhaps, or the largest of
    one block alone): where scores lie far apart `exp` overflows."""
    return torch.maximum(old, scores.amax(-1, keepdim=True))


@blockwise_attention.step
def cut(K, V, block):
    """Which keys does each turn of the loop get, and does every key get its turn?"""
    parts = in_turn(K, V, block)
    whole = [(k, v) for k, v in parts if len(k) == block]
    last_dropped = whole
    "The last block is dropped where it is shorter than the others: T_k need not be a multiple."
    dropped_but_the_first = whole or parts[:1]
    "= last_dropped"
    first_only = parts[:1]
    "Only the attention to the first block is returned. | Is `return` inside the loop?"
    last_only = parts[-1:]
    """Only the attention to the last block is returned. | What should be left of the first block in
    the end? Which maximum, sum and output does the next turn begin with?"""
    first_left_out = parts[1:]
    "The first block is left out."
    values_of_first_block = [(k, V[: len(k)]) for k, _ in parts]
    "Every block of keys uses the values of the first block."
    rest = -len(K) % block
    padded = in_turn(F.pad(K, (0, 0, 0, rest)), F.pad(V, (0, 0, 0, rest)), block)
    padded_with_zeros = padded
    """The last block is filled up with keys of zeros: their score is 0, and so they get weight. |
    Which score has weight 0?"""
    one_short = [(k[:-1], v[:-1]) for k, v in parts if len(k) > 1]
    "The last key of every block is left out: a slice `a:b` ends before b."
    overlapping_all = [(K[i : i + block], V[i : i + block]) for i in range(len(K))]
    "A block begins at every key: keys count several times. | By how much does `range` step?"
    return parts


@blockwise_attention.step
def score(Q, k):
    """For random vectors the dot product spreads like √d_k. What brings it back to 1?"""
    not_scaled = Q @ k.mT
    "The scores are not scaled: nothing divides Q Kᵀ."
    by_d_k = Q @ k.mT / Q.shape[-1]
    "The scores are divided by d_k itself, not by its root."
    return scaled_scores(Q, k)


@blockwise_attention.step
def finish(output, total, n):
    not_divided = output
    "The output is never divided by the sum of the exponentials. | What does a softmax divide by?"
    return output / total


@blockwise_attention.step(at=WHOLE)
def block_by_block(Q, K, V, block):
    """For random vectors the dot product spreads like √d_k. What brings it back to 1?"""
    by_root_block = (Q @ K.mT / math.sqrt(block)).softmax(-1) @ V
    "The scores are divided by √block, the root of how many keys there are in a block."
    below = [
        ((s - s.amax(-1, keepdim=True)).exp(), v)
        for s, v in ((scaled_scores(Q, k), v) for k, v in in_turn(K, V, block))
    ]
    maxima_apart = sum(e @ v for e, v in below) / sum(e.sum(-1, keepdim=True) for e, _ in below)
    """Each block subtracts a maximum of its own before `exp`, and then all are added as if it had
    been the same one. | Which number can be subtracted from a row of scores, and from all its
    blocks?"""
