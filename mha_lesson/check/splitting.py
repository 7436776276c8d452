"""Exercises 5 and 6, notebook 03: into heads, and back."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import labelled, normal, strided

SIZES = (  # B, h, T, d_k: distinct primes, then one head, one sequence, one token, all alike
    (1, 2, 5, 3),
    (2, 3, 5, 7),
    (3, 1, 7, 5),
    (1, 5, 2, 3),
    (2, 3, 1, 2),
    (2, 3, 3, 3),
)


def tokens() -> Iterator[Case]:
    for B, h, T, d_k in SIZES:
        sizes = {"B": B, "T": T, "n_heads": h, "d_k": d_k, "d_model": h * d_k}
        x = labelled(B, T, h * d_k)
        yield Case((x, h), sizes, "where token t, column c holds 100·t + c")
    x = normal(2, 5, 21, seed=1)
    sizes = {"B": 2, "T": 5, "n_heads": 3, "d_k": 7, "d_model": 21}
    yield Case((strided(x), 3), sizes, "with x not contiguous")
    yield Case((x.transpose(0, 1).contiguous().transpose(0, 1), 3), sizes, "with x not contiguous")


def heads() -> Iterator[Case]:
    for B, h, T, d_k in SIZES:
        sizes = {"B": B, "T": T, "n_heads": h, "d_k": d_k, "d_model": h * d_k}
        split = labelled(B, T, h * d_k).view(B, T, h, d_k).transpose(1, 2)
        note = "where token t, column c of the merged tensor is 100·t + c"
        yield Case((split.contiguous(),), sizes, note)
    sizes = {"B": 2, "T": 5, "n_heads": 3, "d_k": 7, "d_model": 21}
    split = normal(2, 5, 21, seed=1).view(2, 5, 3, 7).transpose(1, 2)
    yield Case((split,), sizes, "with x a permuted view, as split_heads makes it")
    yield Case((strided(split),), sizes, "with x not contiguous")


# --- exercise 5 ----------------------------------------------------------------------------------


def columns_side_by_side(x: Tensor, h: int) -> Tensor:
    """(B, T, d_model) -> (B, T, h, d_k)."""
    return x.reshape(*x.shape[:2], h, -1)


def heads_before_tokens(x: Tensor) -> Tensor:
    """(B, T, h, d_k) -> (B, h, T, d_k)."""
    return x.transpose(1, 2)


def unchanged(x: Tensor) -> Tensor:
    return x


@exercise(5, "03", cases=tokens, gives=("heads (B, n_heads, T, d_k)",))
def split_heads(
    x: Tensor,
    n_heads: int,
    *,
    cut: Any = columns_side_by_side,
    order: Any = heads_before_tokens,
    finish: Any = unchanged,
) -> Any:
    """(B, T, d_model) -> (B, h, T, d_k)."""
    return finish(order(cut(x, n_heads)))


NEIGHBOURS = "A head owns d_k neighbouring columns. Which of the two sizes has to come last?"


@split_heads.slip(
    WHOLE,
    "This reads head 0 from the first T/h tokens: `view` (or `reshape`) to (B, h, T, d_k) cuts "
    "memory in order, and memory runs token by token.",
    "Every head should see all tokens. Along which axis has the cut to be made first, and which "
    "axes have to change places then?",
)
def view_only(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, n_heads, T, D // n_heads)


@split_heads.slip(
    "cut",
    "The columns are dealt out like cards: head 0 gets columns 0, h, 2h, … instead of the first "
    "d_k. That comes of cutting into (d_k, h) instead of (h, d_k).",
    NEIGHBOURS,
)
def interleaved(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:2], -1, h).transpose(2, 3)


@split_heads.slip(
    "cut",
    "h and d_k are exchanged: this makes d_k heads of h dimensions each.",
    NEIGHBOURS,
)
def sizes_exchanged(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:2], -1, h)


@split_heads.slip(
    "cut",
    "The heads come in reverse order: head 0 gets the last d_k columns.",
    "Which columns belong to head 0?",
)
def heads_reversed(x: Tensor, h: int) -> Tensor:
    return columns_side_by_side(x, h).flip(2)


@split_heads.slip(
    "cut",
    "Every head gets the same columns, those of head 0.",
    "Which columns belong to head 1?",
)
def same_columns(x: Tensor, h: int) -> Tensor:
    return columns_side_by_side(x, h)[:, :, :1].expand(-1, -1, h, -1)


@split_heads.slip(
    "cut",
    "Every head gets all d_model columns: the tensor is repeated instead of cut.",
    "How wide should one head be?",
)
def repeated(x: Tensor, h: int) -> Tensor:
    return x[:, :, None].expand(-1, -1, h, -1)


@split_heads.slip(
    "cut",
    "The tokens of each sequence come in another order: axes are exchanged before the cut, and "
    "the cut then goes through the tokens.",
    "What does memory look like at the moment when you cut it?",
)
def transposed_before_cut(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, h, D // h)


@split_heads.slip(
    "order",
    "The heads are cut rightly and then stay where they are: the result is (B, T, h, d_k).",
    "Attention works on the last two axes. Which two should they be?",
)
def not_permuted(x: Tensor) -> Tensor:
    return x


@split_heads.slip(
    "order",
    "The cut is right, and then a `view` or `reshape` makes the shape (B, h, T, d_k): it fills "
    "the new shape in memory's order and tears the tokens apart.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def reshaped_into_order(x: Tensor) -> Tensor:
    B, T, h, d_k = x.shape
    return x.reshape(B, h, T, d_k)


@split_heads.slip(
    "order",
    "The heads come before the batch: (h, B, T, d_k).",
    "Batch first: which axis may not move?",
)
def heads_first(x: Tensor) -> Tensor:
    return x.permute(2, 0, 1, 3)


@split_heads.slip(
    "order",
    "Tokens and dimensions are exchanged at the end: (B, h, d_k, T).",
    "Which axis of one head's matrix holds its tokens?",
)
def tokens_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


@split_heads.slip(
    "order",
    "The wrong two axes change places: the result is (B, T, d_k, h).",
    "Of (B, T, h, d_k), which two have to change places?",
)
def heads_last(x: Tensor) -> Tensor:
    return x.permute(0, 1, 3, 2)


@split_heads.slip(
    "order",
    "The result is (B, d_k, T, h): the last axis comes to the front instead of the heads.",
    "Of (B, T, h, d_k), which two have to change places?",
)
def dimensions_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


@split_heads.slip(
    "order",
    "The tokens change places with d_k: the result is (B, d_k, h, T).",
    "Of (B, T, h, d_k), which two have to change places?",
)
def tokens_with_dimensions(x: Tensor) -> Tensor:
    return x.transpose(1, 3)


@split_heads.slip(
    "order",
    "Batch and tokens change places: the result is (T, B, h, d_k).",
    "Batch first: which axis may not move?",
)
def batch_with_tokens(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


@split_heads.slip(
    "order",
    "Batch and heads change places: the result is (h, T, B, d_k).",
    "Batch first: which axis may not move?",
)
def batch_with_heads(x: Tensor) -> Tensor:
    return x.transpose(0, 2)


@split_heads.slip(
    "finish",
    "The heads are folded into the batch: (B·h, T, d_k) has three axes, and four are asked for.",
    "Which axis should h have for itself?",
)
def folded_into_batch(x: Tensor) -> Tensor:
    return x.flatten(0, 1)


@split_heads.slip(
    "finish",
    "The heads come as a list or tuple, one tensor for each, instead of as one axis.",
    "Which call makes one tensor with a new axis out of several?",
)
def list_of_heads(x: Tensor) -> Any:
    return x.unbind(1)


@split_heads.slip("finish", "Only head 0 comes back.", "How many heads should axis 1 hold?")
def one_head(x: Tensor) -> Tensor:
    return x[:, 0]


@split_heads.slip(
    "finish",
    "In the end the dimensions of a head are joined again, (B, h, T·d_k): one axis too few.",
    "Which four axes are asked for?",
)
def joined_again(x: Tensor) -> Tensor:
    return x.flatten(2)


@split_heads.slip(
    WHOLE,
    "The *tokens* are cut into h pieces, not the columns: each head gets T/h whole tokens.",
    "Which axis is shared out among the heads, T or d_model?",
)
def tokens_shared_out(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, n_heads, T // n_heads, D)


@split_heads.slip(
    WHOLE,
    "The *tokens* are chunked into h pieces, not the columns: each head gets some whole tokens.",
    "Which axis is shared out among the heads, T or d_model?",
)
def tokens_chunked(x: Tensor, n_heads: int) -> Tensor:
    return torch.stack(x.chunk(n_heads, 1), 1)


@split_heads.slip(
    WHOLE,
    "x is cut as (h, B, T, d_k) in memory's order before the axes change places: heads get whole "
    "sequences or parts of them.",
    "Which axis has to be cut into two?",
)
def cut_across_batch(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(n_heads, B, T, D // n_heads).transpose(0, 1)


@split_heads.slip(
    WHOLE,
    "Heads and batch are one axis, cut in memory's order: `view(B·h, T, d_k)` takes T/h tokens "
    "for a head.",
    "Every head should see all tokens. Along which axis has the cut to be made first?",
)
def view_into_batch(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B * n_heads, T, D // n_heads)


@split_heads.slip(
    WHOLE,
    "The axes are exchanged before the cut, and then a `view` or `reshape` to (B, h, T, d_k) runs "
    "through memory column by column.",
    "What does memory look like at the moment when you cut it?",
)
def transposed_then_viewed(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, T, D // n_heads)


@split_heads.slip(
    WHOLE,
    "The shape is (B, h, d_k, T) in memory's order: `view` alone cannot move the tokens there.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def view_tokens_last(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, n_heads, D // n_heads, T)


@split_heads.slip(
    WHOLE,
    "x is filled into (B, h, d_k, T) in memory's order, and then the last two axes change places: "
    "the tokens are torn apart before.",
    "Memory runs token by token, and each token column by column. Which cut keeps tokens whole?",
)
def view_then_last_two(x: Tensor, n_heads: int) -> Tensor:
    return view_tokens_last(x, n_heads).transpose(2, 3)


@split_heads.slip(
    WHOLE,
    "Tokens and heads are one axis, (B, T·h, d_k): three axes, and four are asked for.",
    "Which axis should h have for itself, and where does it stand?",
)
def tokens_times_heads(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B, T * n_heads, D // n_heads)


@split_heads.slip(
    WHOLE,
    "Batch and tokens are one axis, (h, B·T, d_k): the sequences run into each other.",
    "Which axes of x should remain as they are?",
)
def batch_times_tokens(x: Tensor, n_heads: int) -> Tensor:
    B, T, D = x.shape
    return x.reshape(B * T, n_heads, D // n_heads).transpose(0, 1)


@split_heads.slip(WHOLE, "x comes back as it went in.", "Which axis has to become two?")
def returned_unchanged(x: Tensor, n_heads: int) -> Tensor:
    return x


# --- exercise 6 ----------------------------------------------------------------------------------


def tokens_before_heads(x: Tensor) -> Tensor:
    """(B, h, T, d_k) -> (B, T, h, d_k)."""
    return x.transpose(1, 2)


def side_by_side(y: Tensor, x: Tensor) -> Tensor:
    """(B, T, h, d_k) -> (B, T, h·d_k), whatever order the last two have."""
    B, h, T, d_k = x.shape
    return y.reshape(B, T, h * d_k)


@exercise(6, "03", cases=heads, gives=("merged (B, T, n_heads·d_k)",))
def merge_heads(
    x: Tensor,
    *,
    arrange: Any = unchanged,
    order: Any = tokens_before_heads,
    join: Any = side_by_side,
) -> Any:
    """(B, h, T, d_k) -> (B, T, h·d_k)."""
    return join(order(arrange(x)), x)


@merge_heads.slip(
    "order",
    "The heads are joined without moving the tokens back first: `reshape` (or `view`) fills a row "
    "with h neighbouring tokens of *one* head, because memory runs head by head.",
    "A row of the result belongs to one token and holds all its heads. Which two axes have to "
    "change places before?",
)
def not_permuted_back(x: Tensor) -> Tensor:
    return x


@merge_heads.slip(
    "order",
    "The numbers of the heads are interleaved: a row runs head 0, head 1, … for dimension 0, then "
    "for dimension 1. That is the order (B, T, d_k, h).",
    "Head 0's d_k numbers should stand together. Which axis has to be the last one before joining?",
)
def dimensions_before_heads(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


@merge_heads.slip(
    "order",
    "The last two axes change places, (B, h, d_k, T), and not heads and tokens.",
    "Of (B, h, T, d_k), which two have to change places?",
)
def last_two_exchanged(x: Tensor) -> Tensor:
    return x.transpose(2, 3)


@merge_heads.slip(
    "order",
    "Heads change places with d_k: joining then goes through (B, d_k, T, h).",
    "Of (B, h, T, d_k), which two have to change places?",
)
def heads_with_dimensions(x: Tensor) -> Tensor:
    return x.transpose(1, 3)


@merge_heads.slip(
    "order",
    "Batch and heads change places: the sequences are mixed up.",
    "Batch first: which axis may not move?",
)
def heads_with_batch(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


@merge_heads.slip(
    "order",
    "The axes are brought into the order (B, d_k, h, T) before joining.",
    "Which order should the axes have just before h and d_k become one?",
)
def dimensions_to_front(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


@merge_heads.slip(
    "order",
    "The axes are brought into the order (T, B, h, d_k) before joining: sequences are mixed up.",
    "Batch first: which axis may not move?",
)
def tokens_to_front(x: Tensor) -> Tensor:
    return x.permute(2, 0, 1, 3)


@merge_heads.slip(
    "arrange",
    "The heads come in reverse order: the last head's numbers stand first.",
    "Whose numbers should fill the first d_k columns?",
)
def merged_in_reverse(x: Tensor) -> Tensor:
    return x.flip(1)


@merge_heads.slip(
    "arrange",
    "Head 0 fills every place: the other heads are lost.",
    "Which head belongs in columns d_k to 2·d_k?",
)
def first_head_everywhere(x: Tensor) -> Tensor:
    return x[:, :1].expand_as(x)


@merge_heads.slip(
    "join",
    "The axes are in order, and h and d_k are still two: (B, T, h, d_k).",
    "Which call makes one axis out of two neighbours?",
)
def not_joined(y: Tensor, x: Tensor) -> Tensor:
    return y


@merge_heads.slip(
    "join",
    "Batch and tokens are joined as well: (B·T, h·d_k).",
    "Which axes should remain as they are?",
)
def batch_joined_too(y: Tensor, x: Tensor) -> Tensor:
    B, h, T, d_k = x.shape
    return y.reshape(B * T, h * d_k)


@merge_heads.slip(
    "join",
    "The wrong neighbours are joined: tokens and heads, (B, T·h, d_k), instead of heads and "
    "dimensions.",
    "Which two axes become h·d_k?",
)
def tokens_joined(y: Tensor, x: Tensor) -> Tensor:
    return y.flatten(1, 2)


@merge_heads.slip(
    "join",
    "The last axis is as long as the tokens: (B, h·d_k, T), filled in memory's order.",
    "What should the last axis hold?",
)
def joined_tokens_last(y: Tensor, x: Tensor) -> Tensor:
    B, h, T, d_k = x.shape
    return y.reshape(B, h * d_k, T)


@merge_heads.slip(
    "join",
    "The result is (B, h, T·d_k): the tokens are joined with the dimensions.",
    "Which two axes become h·d_k?",
)
def tokens_and_dimensions_joined(y: Tensor, x: Tensor) -> Tensor:
    B, h, T, d_k = x.shape
    return y.reshape(B, h, T * d_k)


@merge_heads.slip(
    "join",
    "Everything behind the batch is joined: (B, T·h·d_k).",
    "How many axes does the result have?",
)
def all_joined(y: Tensor, x: Tensor) -> Tensor:
    return y.flatten(1)


@merge_heads.slip(
    "join",
    "Tokens come before the batch: (T, B, h·d_k).",
    "Batch first: which axis may not move?",
)
def merged_tokens_first(y: Tensor, x: Tensor) -> Tensor:
    return side_by_side(y, x).transpose(0, 1)


@merge_heads.slip(
    "join",
    "The result is (B, h·d_k, T): the right rows, transposed.",
    "Which axis should be last?",
)
def merged_transposed(y: Tensor, x: Tensor) -> Tensor:
    return side_by_side(y, x).transpose(1, 2)


@merge_heads.slip(
    WHOLE,
    "The heads are averaged, so only d_k numbers per token remain.",
    "To concatenate is to keep all of them. How wide should a token be in the end?",
)
def heads_averaged(x: Tensor) -> Tensor:
    return x.mean(1)


@merge_heads.slip(
    WHOLE,
    "The heads are added up, so only d_k numbers per token remain.",
    "To concatenate is to keep all of them. How wide should a token be in the end?",
)
def heads_added(x: Tensor) -> Tensor:
    return x.sum(1)


@merge_heads.slip(
    WHOLE,
    "The heads are laid one after the other along the *tokens*: (B, h·T, d_k).",
    "Side by side means along the last axis. Which `dim` is that?",
)
def heads_below_each_other(x: Tensor) -> Tensor:
    return x.flatten(1, 2)


@merge_heads.slip(
    WHOLE,
    "The heads are laid one after the other along the *batch*: (h·B, T, d_k).",
    "Side by side means along the last axis. Which `dim` is that?",
)
def heads_along_batch(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(1), 0)


@merge_heads.slip(
    WHOLE,
    "Not heads but sequences are laid side by side: axis 0 is taken apart.",
    "Which axis of (B, h, T, d_k) counts the heads?",
)
def sequences_side_by_side(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(0), -1)


@merge_heads.slip(
    WHOLE,
    "Not heads but tokens are laid side by side: axis 2 is taken apart.",
    "Which axis of (B, h, T, d_k) counts the heads?",
)
def tokens_side_by_side(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(2), -1)


@merge_heads.slip(WHOLE, "x comes back as it went in.", "Which two axes have to become one?")
def returned_as_it_was(x: Tensor) -> Tensor:
    return x


@merge_heads.slip(WHOLE, "Only head 0 comes back.", "How wide should a token be in the end?")
def first_head_only(x: Tensor) -> Tensor:
    return x[:, 0]
