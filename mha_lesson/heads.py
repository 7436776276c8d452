"""What a head does, in numbers: small functions of attention weights and nothing else.

Weights are (…, T, T), row = query, column = key: the leading axes (layers, heads, a batch) are
kept, so one call scores every head of a model. Where words are meant, not word pieces, join the
pieces first with `join_pieces`.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lesson import refusals
from mha_lesson.refusals import MOST, describe, say

Link = tuple[int, int]  # (from, to): word numbers, "[CLS]" being 0

# ---------------------------------------------------------------- how a head spreads its weight


def previous_token(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """The mean weight that queries 1 … T-1 give to the token just before them: 0 to 1."""
    return _at_offset(weights, -1)


def next_token(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """The mean weight that queries 0 … T-2 give to the token just after them: 0 to 1."""
    return _at_offset(weights, 1)


def parking(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """The mean weight that goes to token 0, "[CLS]", which means nothing: 0 to 1."""
    _require_square(weights)
    return weights[..., 0].mean(dim=-1)


def breadth(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """How broadly a head looks: the mean entropy of its rows over log T, from 0 to 1.

    0 is one key for each query, 1 is the same weight for every key; of one token it is neither.
    """
    _require_square(weights, 2)
    entropy = -torch.special.xlogy(weights, weights).sum(dim=-1)  # (…, T); 0·log 0 is 0
    return entropy.mean(dim=-1) / math.log(weights.shape[-1])


# ---------------------------------------------------------------- words and their links


def join_pieces(
    weights: Float[Tensor, "*heads T T"], word_of: Sequence[int]
) -> Float[Tensor, "*heads W W"]:
    """Weights between words: to a word's pieces they add up, from its pieces they are averaged.

    `word_of` has for each of the T pieces the number of its word, 0 … W-1 in order.

    Source: Clark et al. (2019), What Does BERT Look At?, section 4.1.
    """
    _require_square(weights)
    T = weights.shape[-1]
    word = refusals.listed_ints("word_of", word_of, 0, T - 1)
    if len(word) != T or len(set(word)) != max(word) + 1:
        raise ValueError(f"word_of must hold T = {T} numbers, 0 to the last; got {say(word)}.")
    numbers = torch.tensor(word, device=weights.device)
    member = torch.nn.functional.one_hot(numbers).to(weights.dtype)  # (T, W)
    return (member / member.sum(dim=0)).T @ weights @ member


def strongest_word(weights: Float[Tensor, "*heads W W"]) -> Tensor:
    """(…, W) the word each word looks at most, leaving out itself, "[CLS]" and "[SEP]"."""
    _require_square(weights, 4)  # "[CLS]", two words, "[SEP]"
    open_words = weights.clone()
    open_words.diagonal(dim1=-2, dim2=-1).fill_(-1)
    open_words[..., [0, -1]] = -1
    return open_words.argmax(dim=-1)


def found(
    weights: Float[Tensor, "*heads W W"], links: Sequence[Link]
) -> Bool[Tensor, "*heads n_links"]:
    """Whether a head finds each link: of all other words the first looks most at the second.

    The first of the W words is "[CLS]", the last "[SEP]"; neither is looked at.
    """
    _require_square(weights)
    pairs = _pairs(links, weights.shape[-1] - 1)
    start, end = torch.tensor(pairs, dtype=torch.long, device=weights.device).view(-1, 2).T
    return strongest_word(weights)[..., start] == end


def best_offset(links: Sequence[Link]) -> tuple[int, float]:
    """What needs no head at all: the distance that explains most links, and its share of them.

    Offset 1 is the word after. Of several that explain as many it is the nearest, and of two as
    near the one after.
    """
    pairs = _pairs(links, MOST)
    if not pairs:
        raise ValueError("links must hold at least one (from, to) pair; got none.")
    offsets = [end - start for start, end in pairs]
    best = max(sorted(set(offsets), key=lambda o: (abs(o), -o)), key=offsets.count)
    return best, offsets.count(best) / len(offsets)


def prefers(
    weights: Float[Tensor, "*heads W W"], query: int, this: int, other: int
) -> Bool[Tensor, "*heads"]:
    """Whether word `query` gives more weight to word `this` than to word `other`."""
    _require_square(weights)
    for name, word in (("query", query), ("this", this), ("other", other)):
        refusals.require_whole(name, word, 0, weights.shape[-1] - 1)
    return weights[..., query, this] > weights[..., query, other]


# ---------------------------------------------------------------- how sure a count is


def interval(found: int, n: int) -> tuple[float, float]:
    """Which true shares go well with `found` of `n`: Wilson's 95% interval.

    Unlike found/n ± 1.96 standard errors it never leaves 0 to 1, and says something at 0 of n.

    Source: Wilson (1927), Probable Inference, the Law of Succession, and Statistical Inference.
    """
    refusals.require_whole("n", n, 1, MOST)
    refusals.require_whole("found", found, 0, n)
    found, n = int(found), int(n)
    z = 1.96  # 95% of a normal distribution lie within so many standard deviations
    middle = (found + z * z / 2) / (n + z * z)
    half = z * math.sqrt(found * (n - found) / n + z * z / 4) / (n + z * z)
    return max(0.0, middle - half), min(1.0, middle + half)


def best_of_coins(n: int, chance: float, heads: int) -> float:
    """What the best of so many heads that only toss coins would find of `n`, on average.

    A maximum over many heads is large by luck alone: this is what to compare it with. Each head
    answers n questions, each answer right with probability `chance`.
    """
    refusals.require_whole("n", n, 1, 1000)  # of more, a float cannot hold the number of ways
    refusals.require_whole("heads", heads, 1, MOST)
    refusals.require_probability("chance", chance)
    n, heads = int(n), int(heads)
    one = [math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)]
    # The mean of the best is the sum over k of P(best ≥ k), and P(best < k) is P(one < k)^heads.
    return sum(1 - math.fsum(one[:k]) ** heads for k in range(1, n + 1))


def _at_offset(weights: Tensor, offset: int) -> Tensor:
    _require_square(weights, 2)
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean(dim=-1)


def _pairs(links: Sequence[Link], last: int) -> list[Link]:
    """The links, each checked to be two word numbers up to `last`."""
    pairs = []
    for i, link in enumerate(refusals.listed("links", links, "(from, to) pairs")):
        ends = refusals.listed_ints(f"links[{i}]", link, 0, last)
        if len(ends) != 2:
            raise ValueError(f"links[{i}] must be a (from, to) pair; got {say(link)}.")
        pairs.append((ends[0], ends[1]))
    return pairs


def _require_square(weights: Tensor, least: int = 1) -> None:
    refusals.require_floats("weights", weights, "(..., T, T)")
    n = weights.shape[-1] if weights.ndim else 0
    if n < least or weights.shape[-2:] != (n, n):
        raise ValueError(f"weights must be (..., T, T), T ≥ {least}; got {describe(weights)}.")
