"""Exercise 10, notebook 05: W^O as a sum over heads."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mha_course.engine.attempt import Attempt
from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, exercise
from mha_course.exercises.nb02 import factors


def heads_and_w_o() -> Iterator[Case]:
    rows = (
        (2, 3, 5, 7, 11),
        (1, 2, 3, 2, 5),
        (2, 1, 5, 3, 7),
        (3, 5, 2, 3, 15),
        (1, 2, 1, 3, 5),
        (2, 3, 3, 3, 3),
        (2, 3, 5, 7, 7),
        (2, 2, 3, 5, 10),
    )
    for seed, (B, h, T, d_k, d_model) in enumerate(rows):
        sizes = {"B": B, "n_heads": h, "T": T, "d_k": d_k, "d_model": d_model}
        heads = normal(B, h, T, d_k, seed=seed)
        W_o = normal(d_model, h * d_k, seed=seed + 20)
        yield Case((heads, W_o), sizes)
        if seed == 0:
            yield Case((strided(heads), strided(W_o)), sizes, "with inputs not contiguous")
            swapped = heads.transpose(1, 2).contiguous().transpose(1, 2)
            yield Case((swapped, W_o), sizes, "with heads a permuted view")


def side_by_side(attempt: Attempt) -> str:
    _, W_o = attempt.bound.cases[0].inputs
    widths = [x.shape[-1] for x in factors(attempt) if isinstance(x, Tensor)]
    if widths.count(W_o.shape[-1]) != 1:  # of several, each may be of one head, beside zeros
        return ""
    return (
        "All heads enter one product, side by side, and are summed within it: which columns of "
        "`W_o` multiply each head there, and what does it write by itself?"
    )


@exercise(
    10,
    "05",
    reread="The same as a sum",
    make_cases=heads_and_w_o,
    gives=("output (B, T, d_model)",),
    remark=side_by_side,
    stages="slab write",
)
def sum_of_head_writes(heads, W_o, *, each, slab, write, collect):
    """Σ_i head_i · (its columns of W_o)ᵀ."""
    h, d_k = heads.shape[1], heads.shape[-1]
    parts = each(heads)
    slabs = [slab(W_o, i, h, d_k) for i in range(len(parts))]
    return collect([write(part, piece) for part, piece in zip(parts, slabs, strict=True)])


@sum_of_head_writes.step
def slab(W_o, i, h, d_k):
    """The concatenation has head 0 in its first d_k columns. Which columns of W_o meet those?"""
    columns_dealt = W_o[:, i::h]
    "The columns of W_o are dealt out like cards: head i gets columns i, i+h, i+2h and so on."
    rows_cut = W_o[i * d_k : (i + 1) * d_k]
    """Head i's slab is cut from the *rows* of W_o: rows are outputs (`nn.Linear` layout), and the
    heads belong to its columns. | W_o is (out, in). Which of its axes is h·d_k long?"""
    rows_cut_untransposed = W_o[i * d_k : (i + 1) * d_k].mT
    """Head i's slab is cut from the *rows* of W_o and used untransposed. | W_o is (out, in). Which
    of its axes is h·d_k long?"""
    first_slab_for_all = W_o[:, :d_k]
    "Every head writes through the columns of head 0 (adding the heads first does the same)."
    steps_of_one = W_o[:, i : i + d_k]
    """The slabs start at i instead of i·d_k, so they overlap. | How wide is the slab of each head
    that comes before?"""
    w_o_reshaped = W_o.reshape(h * d_k, -1)[i * d_k : (i + 1) * d_k].mT
    """W_o is pressed into (h·d_k, d_model) by `view` or `reshape` instead of being transposed. |
    Which call exchanges two axes instead of refilling a shape?"""
    w_o_viewed = W_o.reshape(h, -1, d_k)[i]
    """W_o is pressed into (h, d_k, d_model) or (h, d_model, d_k) by `view`: that cuts its rows in
    memory's order. | Which axis of W_o has to be cut into h and d_k?"""
    transposed_then_viewed = W_o.mT.reshape(h, -1, d_k)[i]
    """W_o is transposed, and then cut by `view` or `reshape` into (h, d_model, d_k): that runs
    through memory and mixes columns of different heads. | After the transpose the heads lie along
    axis 0. Into which two sizes must it be cut?"""
    slabs_reversed = W_o[:, (h - 1 - i) * d_k : (h - i) * d_k]
    "The columns are taken from the other end: head 0 gets the last d_k."
    return W_o[:, i * d_k : (i + 1) * d_k]


@sum_of_head_writes.step
def write(head, slab):
    slab_untransposed = head @ slab
    """W_o is used untransposed: x @ W for x @ Wᵀ. Where d_k equals d_model nothing complains. |
    `nn.Linear` keeps a row for each *output*. Which axis must match the head's last?"""
    no_w_o = head
    "The heads are summed as they are: W_o is not used. | What does W_o do to a head?"
    return head @ slab.mT


@sum_of_head_writes.step
def collect(writes):
    """To concatenate and to multiply by W_o gives one (B, T, d_model). What is still to be done?"""
    averaged = torch.stack(writes).mean(0)
    """The writes are averaged, so the result is h times too small. | Concatenating and multiplying
    by W_o: does it divide by h anywhere?"""
    first_twice = sum(writes) + writes[0]
    "Head 0's write is added twice. | With which head does the loop begin, and with what the sum?"
    not_added = torch.stack(writes, 1)
    "The writes are returned one by one, along an axis for the heads: they are not added up."
    last_only = writes[-1]
    """Only the last head's write is returned: each overwrites the one before (`=` where `+=` is
    meant), or `return` comes after a loop without a sum. | What should be left of head 0 in the
    end?"""
    first_only = writes[0]
    "Only head 0's write is returned. | Which other heads write, and is `return` inside the loop?"
    multiplied = torch.stack(writes).prod(0)
    "The writes are multiplied with each other. | Σ stands for which operation?"
    none = torch.zeros_like(writes[0])
    last_left_out = sum(writes[:-1])
    "The last head is left out. | Which values does `range(h - 1)` run through?"
    last_left_out_of_zeros = sum(writes[:-1], none)
    "= last_left_out"
    first_left_out = sum(writes[1:])
    "Head 0 is left out. | Which values does `range(1, h)` run through?"
    first_left_out_of_zeros = sum(writes[1:], none)
    "= first_left_out"
    return torch.stack(writes).sum(0)


@sum_of_head_writes.step
def each(heads):
    over_the_batch = list(heads.unbind(0))
    """The loop runs over the batch (axis 0) and not over the heads. | Which axis of (B, h, T, d_k)
    counts the heads?"""
    B, h, T, d_k = heads.shape
    torn_apart = list(heads.reshape(B, T, h, d_k).unbind(2))
    """The tokens are torn apart before W_o: a `reshape` or `view` to (B, T, …) of what lies in
    memory as (B, h, T, d_k), so a row holds h tokens of one head. | Memory runs head by head here.
    Which axes have to change places first?"""
    heads_back_to_front = list(heads.flip(1).unbind(1))
    "= slabs_reversed"
    return heads.unbind(1)


@sum_of_head_writes.step(at=WHOLE)
def all_at_once(heads, W_o):
    h, d_k = heads.shape[1], heads.shape[-1]
    merged = heads.transpose(1, 2).flatten(2)
    added_both = heads.sum(1) @ W_o.unflatten(1, (h, d_k)).sum(1).mT
    """The heads are added first, and so are the columns of W_o: Σ head · Σ slab has all the cross
    terms that Σ head · slab lacks. | Which head should be multiplied by which slab?"""
    shifted_by_one = heads[:, 1:].transpose(1, 2).flatten(2) @ W_o[:, : (h - 1) * d_k].mT
    """Head 0 is left out, and each other head is multiplied by the columns of the head before it. |
    Which values should i run through, and which columns belong to head i?"""
    only_concatenated = merged
    """The heads are concatenated, but W_o is not used. | What remains to be done with the
    concatenation?"""
    concatenated_untransposed = merged @ W_o
    """The heads are concatenated correctly, but W_o is used untransposed: x @ W instead of x @ Wᵀ.
    | `nn.Linear` keeps a row for each *output*. Which axis must match the concatenation's last?"""
