"""Exercises 5 and 6, notebook 03: into heads, and back."""

from collections.abc import Iterator

import torch

from mha_course.engine.families import orders_of_axes
from mha_course.engine.inputs import labelled, normal, strided
from mha_course.exercises import WHOLE, Case, exercise

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


@exercise(
    5,
    "03",
    reread="Step 2: `permute` reorders the axes",
    make_cases=tokens,
    gives=("heads (B, n_heads, T, d_k)",),
    stages="cut",
)
def split_heads(x, n_heads, *, cut, order, finish):
    """(B, T, d_model) -> (B, h, T, d_k)."""
    return finish(order(cut(x, n_heads)))


@split_heads.step(at=WHOLE)
def in_memory_order(x, n_heads):
    """Which axis is shared out among the heads, T or d_model?"""
    B, T, D = x.shape
    view_only = x.reshape(B, n_heads, T, D // n_heads)
    """This reads head 0 from the first T/h tokens: `view` (or `reshape`) to (B, h, T, d_k) cuts
    memory in order, and memory runs token by token. | Every head should see all tokens. Which axis
    must be cut first, and which must then change places?"""
    viewed = x.view(B, n_heads, T, D // n_heads)
    "= view_only"
    tokens_chunked = torch.stack(x.chunk(n_heads, 1), 1)
    "The *tokens* are cut into h pieces, not the columns: each head gets some whole tokens."
    tokens_shared_out = x.reshape(B, n_heads, T // n_heads, D)
    "= tokens_chunked"
    transposed_then_viewed = x.transpose(1, 2).reshape(B, n_heads, T, D // n_heads)
    """The axes are exchanged before the cut, and then a `view` or `reshape` to (B, h, T, d_k) runs
    through memory column by column. | What does memory look like at the moment when you cut it?"""
    tokens_times_heads = x.reshape(B, T * n_heads, D // n_heads)
    """Tokens and heads are one axis, (B, T·h, d_k): three axes instead of four. | Where should the
    axis for h be?"""
    batch_times_tokens = x.reshape(B * T, n_heads, D // n_heads).transpose(0, 1)
    """Batch and tokens are one axis, (h, B·T, d_k): the sequences run into each other. | Which axes
    of x should remain as they are?"""


@split_heads.step
def cut(x, h):
    """A head owns d_k neighbouring columns. Which of the two sizes has to come last?"""
    interleaved = x.reshape(*x.shape[:2], -1, h).transpose(2, 3)
    """The columns are dealt out like cards: head 0 gets columns 0, h, 2h, … instead of the first
    d_k. That comes from cutting into (d_k, h) instead of (h, d_k)."""
    sizes_exchanged = x.reshape(*x.shape[:2], -1, h)
    "h and d_k are exchanged: this makes d_k heads of h dimensions each."
    heads = x.unflatten(-1, (h, -1))
    heads_reversed = heads.flip(2)
    """The heads come in reverse order: head 0 gets the last d_k columns. | Which columns belong to
    head 0?"""
    same_columns = heads[:, :, :1].expand(-1, -1, h, -1)
    "Every head gets the same columns, those of head 0. | Which columns belong to head 1?"
    first_sequence = heads[:1].expand_as(heads)
    "Every sequence is the first one. | What does `x[0]` leave out?"
    repeated = x[:, :, None].expand(-1, -1, h, -1)
    """Every head gets all d_model columns: the tensor is repeated instead of cut. | How wide should
    one head be?"""
    d_k = x.shape[-1] // h
    in_steps_of_one = torch.stack([x[..., i : i + d_k] for i in range(h)], 2)
    "Head i begins at column i, so the heads overlap. | How wide is each head that comes before?"
    in_steps_of_h = torch.stack([x[..., i * h : i * h + d_k] for i in range(h)], 2)
    "Head i begins at column i·h instead of i·d_k. | How wide is each head that comes before?"
    return x.unflatten(-1, (h, -1))


LAST_TWO = "Attention works on the last two axes. Which two should they be?"
split_heads.step(orders_of_axes("B T h d_k", "B h T d_k", LAST_TWO), at="order")


@split_heads.step
def finish(x):
    folded_into_batch = x.flatten(0, 1)
    """The heads are folded into the batch: (B·h, T, d_k) has three axes instead of four. | Where
    should the axis for h be?"""
    list_of_heads = x.unbind(1)
    """The heads are a list or tuple, one tensor for each, instead of one axis. | Which call makes
    one tensor with a new axis out of several?"""
    return x


@exercise(
    6,
    "03",
    reread="The way back, and a crash worth reading",
    make_cases=heads,
    gives=("merged (B, T, n_heads·d_k)",),
)
def merge_heads(x, *, arrange, order, join):
    """(B, h, T, d_k) -> (B, T, h·d_k)."""
    x = arrange(x)
    return join(order(x), x)


@merge_heads.step
def order(x):
    not_permuted_back = x
    """The heads are joined without moving the tokens back first: `reshape` (or `view`) fills a row
    with h neighbouring tokens of *one* head, because memory runs head by head. | A row of the
    result belongs to one token and holds all its heads. Which two axes have to change places
    first?"""
    B, h, T, d_k = x.shape
    heads_for_batch = x.reshape(h, B, T, d_k).transpose(1, 2)
    """Batch and heads are taken for each other: a `reshape` or `view` to (h, B, …) of what lies in
    memory as (B, h, …) puts heads of other sequences into each sequence. | Which of the two axes is
    first in x?"""
    dimensions_before_heads = x.permute(0, 2, 3, 1)
    """The numbers of the heads are interleaved: a row runs head 0, head 1, … for dimension 0, then
    for dimension 1. That is the order (B, T, d_k, h). | Head 0's d_k numbers should stand together.
    Which axis has to be the last one before joining?"""
    return x.transpose(1, 2)


merge_heads.step(
    orders_of_axes(
        "B h T d_k",
        "B T h d_k",
        "Of (B, h, T, d_k), which two have to change places before h and d_k become one?",
        but=("B h T d_k", "B T d_k h"),
        then=" before joining",
    ),
    at="order",
)


@merge_heads.step
def arrange(x):
    same_head = x[:, :1].expand_as(x)
    "Every head is replaced by head 0. | Whose numbers belong after those of head 0?"
    mean_for_each = x.mean(1, keepdim=True).expand_as(x)
    "Every head is replaced by the mean of the heads. | What is lost in a mean?"
    B, h, T, d_k = x.shape
    heads_before_batch = x.reshape(h, B, T, d_k).transpose(0, 1)
    "= heads_for_batch"
    merged_in_reverse = x.flip(1)
    """The heads come in reverse order: the last head's numbers stand first. | Whose numbers should
    fill the first d_k columns?"""
    return x


@merge_heads.step
def join(y, x):
    """Which call makes one axis out of two neighbours?"""
    B, h, T, d_k = x.shape
    not_joined = y
    "The axes are in order, but h and d_k are still two: (B, T, h, d_k)."
    batch_joined_too = y.reshape(B * T, h * d_k)
    "Batch and tokens are joined as well: (B·T, h·d_k). | Which axes should remain as they are?"
    merged = y.reshape(B, T, h * d_k)  # whatever order h and d_k have in y
    axes_of_one_dropped = merged.squeeze()
    """`squeeze` drops every axis of size 1, B and T too where they are 1. | Which axes may a caller
    count on?"""
    merged_tokens_first = merged.transpose(0, 1)
    "Tokens come before the batch: (T, B, h·d_k). | Batch first: which axis may not move?"
    an_axis_left = y.reshape(B, T, 1, h * d_k)
    "There is an axis of size 1 too many, (B, T, 1, h·d_k). | Which three axes are asked for?"
    heads_below_each_other = x.flatten(1, 2)
    """The heads are laid one after the other along the *tokens*: (B, h·T, d_k). | Side by side
    means along the last axis. Which `dim` is that?"""
    return merged


@merge_heads.step(at=WHOLE)
def in_another_way(x):
    """To concatenate is to keep all of them. How wide should a token be in the end?"""
    heads_averaged = x.mean(1)
    "The heads are averaged, so only d_k numbers per token remain."
    heads_added = x.sum(1)
    "The heads are added up, so only d_k numbers per token remain."
    heads_along_batch = torch.cat(x.unbind(1), 0)
    """The heads are laid one after the other along the *batch*: (h·B, T, d_k). | Side by side means
    along the last axis. Which `dim` is that?"""
    sequences_side_by_side = torch.cat(x.unbind(0), -1)
    """Sequences are laid side by side, not heads: axis 0 is taken apart. | Which axis of (B, h, T,
    d_k) counts the heads?"""
    tokens_side_by_side = torch.cat(x.unbind(2), -1)
    """Tokens are laid side by side, not heads: a row holds all tokens of one head, (B, h, T·d_k). |
    Which axis of (B, h, T, d_k) counts the heads?"""
    last_head_only = x[:, -1]
    """Only the last head is returned. (In a loop that joins nothing, each head overwrites the one
    before.) | How wide should a token be in the end?"""
    largest_head = x.amax(1)
    "Each dimension keeps only its largest number over the heads."
    first_head_only = x[:, 0]
    "Only head 0 is returned. | How wide should a token be in the end?"
