"""What a head does, in numbers: small functions of attention weights and nothing else.

Weights are (…, T, T), row = query, column = key: the leading axes (layers, heads, a batch) are
kept, so one call scores every head of a model. Where words are meant, not word pieces, join the
pieces first with `join_pieces`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lesson.refusals import describe

Link = tuple[int, int]  # (from, to): a query and the key that it should look at

# ---------------------------------------------------------------- how a head spreads its weight


def previous_token(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """The mean weight that queries 1 … T-1 give to the token just before them: 0 to 1."""
    return _at_offset(weights, -1)


def next_token(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """The mean weight that queries 0 … T-2 give to the token just after them: 0 to 1."""
    return _at_offset(weights, 1)


def same_word(
    weights: Float[Tensor, "*heads T T"], tokens: Sequence[str]
) -> Float[Tensor, "*heads"]:
    """The mean weight that a repeated word gives to its other occurrences: 0 to 1.

    Args:
        weights: (…, T, T).
        tokens: T tokens, of which one at least occurs twice; capitals do not matter.

    Raises:
        ValueError: no token occurs twice, or there are not T of them.
    """
    _require_square(weights)
    lower = [token.lower() for token in tokens]
    same = torch.tensor([[a == b for b in lower] for a in lower], device=weights.device)
    same.fill_diagonal_(False)  # itself is not elsewhere
    if same.shape[0] != weights.shape[-1] or not same.any():
        raise ValueError(
            f"tokens must be T = {weights.shape[-1]} tokens, one of them at least twice; "
            f"got {len(lower)}: {describe(list(tokens))}."
        )
    return (weights * same).sum(dim=-1)[..., same.any(dim=-1)].mean(dim=-1)


def parking(
    weights: Float[Tensor, "*heads T T"], places: Sequence[int] = (0,)
) -> Float[Tensor, "*heads"]:
    """The mean share that goes to tokens without meaning: 0 to 1.

    Args:
        weights: (…, T, T).
        places: which keys: (0,) is "[CLS]", (0, -1) is "[CLS]" and "[SEP]" together.
    """
    _require_square(weights)
    return weights[..., list(places)].sum(dim=-1).mean(dim=-1)


def breadth(weights: Float[Tensor, "*heads T T"]) -> Float[Tensor, "*heads"]:
    """How broadly a head looks: the mean entropy of its rows over log T, from 0 to 1.

    0 is one key for each query, 1 is the same weight for every key.
    """
    _require_square(weights)
    entropy = -torch.special.xlogy(weights, weights).sum(dim=-1)  # (…, T); 0·log 0 is 0
    return entropy.mean(dim=-1) / torch.tensor(float(weights.shape[-1])).log()


# ---------------------------------------------------------------- words and their links


def join_pieces(
    weights: Float[Tensor, "*heads T T"], word_of: Sequence[int]
) -> Float[Tensor, "*heads W W"]:
    """Weights between words: to a word's pieces they add up, from its pieces they are averaged.

    Args:
        weights: (…, T, T) between word pieces.
        word_of: for each of the T pieces the number of its word, 0 … W-1 in order.

    Source: Clark et al. (2019), What Does BERT Look At?, section 4.1.
    """
    _require_square(weights)
    numbers = torch.tensor(word_of, device=weights.device)
    member = torch.nn.functional.one_hot(numbers).to(weights.dtype)  # (T, W)
    return (member / member.sum(dim=0)).T @ weights @ member


def strongest_word(weights: Float[Tensor, "*heads W W"]) -> Tensor:
    """(…, W) the word each word looks at most, leaving out itself, "[CLS]" and "[SEP]"."""
    _require_square(weights)
    open_words = weights.clone()
    open_words.diagonal(dim1=-2, dim2=-1).fill_(-1)
    open_words[..., [0, -1]] = -1
    return open_words.argmax(dim=-1)


def found(
    weights: Float[Tensor, "*heads W W"], links: Sequence[Link]
) -> Bool[Tensor, "*heads n_links"]:
    """Whether a head finds each link: of all other words the first looks most at the second.

    Args:
        weights: (…, W, W) between words, "[CLS]" first and "[SEP]" last.
        links: (from, to) word numbers.
    """
    start, end = _ends(links, weights.device)
    return strongest_word(weights)[..., start] == end


def best_offset(links: Sequence[Link]) -> tuple[int, float]:
    """What needs no head at all: the distance that explains most links, and its share of them.

    Args:
        links: (from, to) word numbers, of one sentence or of many.

    Returns:
        The offset (1: the word after), and from 0 to 1 how many links have it.

    Raises:
        ValueError: there are no links.
    """
    if not links:
        raise ValueError("links must hold at least one (from, to) pair; got none.")
    offsets = [end - start for start, end in links]
    best = max(sorted(set(offsets), key=abs), key=offsets.count)
    return best, offsets.count(best) / len(offsets)


def prefers(
    weights: Float[Tensor, "*heads W W"], query: int, this: int, other: int
) -> Bool[Tensor, "*heads"]:
    """Whether word `query` gives more weight to word `this` than to word `other`."""
    _require_square(weights)
    return weights[..., query, this] > weights[..., query, other]


def _at_offset(weights: Tensor, offset: int) -> Tensor:
    _require_square(weights)
    if weights.shape[-1] < 2:
        raise ValueError(f"weights must be over at least two tokens; got {describe(weights)}.")
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean(dim=-1)


def _ends(links: Sequence[Link], device: torch.device) -> tuple[Tensor, Tensor]:
    pairs = torch.tensor(list(links), dtype=torch.long, device=device).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _require_square(weights: Tensor) -> None:
    if (
        not isinstance(weights, Tensor)
        or weights.ndim < 2
        or weights.shape[-1] != weights.shape[-2]
    ):
        raise ValueError(f"weights must be a tensor (..., T, T); got {describe(weights)}.")
