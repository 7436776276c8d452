"""Exercise 10, notebook 05: W^O as a sum over heads."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import normal, strided


def heads_and_w_o() -> Iterator[Case]:
    for seed, (B, h, T, d_k, d_model) in enumerate(
        (
            (2, 3, 5, 7, 11),
            (1, 2, 3, 2, 5),
            (2, 1, 5, 3, 7),
            (3, 5, 2, 3, 15),
            (1, 2, 1, 3, 5),
            (2, 3, 3, 3, 3),
            (2, 3, 5, 7, 7),
            (2, 2, 3, 5, 10),
        )
    ):
        sizes = {"B": B, "n_heads": h, "T": T, "d_k": d_k, "d_model": d_model}
        heads = normal(B, h, T, d_k, seed=seed)
        W_o = normal(d_model, h * d_k, seed=seed + 20)
        yield Case((heads, W_o), sizes)
        if seed == 0:
            yield Case((strided(heads), strided(W_o)), sizes, "with inputs not contiguous")
            swapped = heads.transpose(1, 2).contiguous().transpose(1, 2)
            yield Case((swapped, W_o), sizes, "with heads a permuted view")


def neighbouring_columns(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[:, i * d_k : (i + 1) * d_k]


def head_times_slab(head: Tensor, slab: Tensor) -> Tensor:
    return head @ slab.mT


def head_by_head(heads: Tensor) -> list[Tensor]:
    return list(heads.unbind(1))


def added(writes: list[Tensor]) -> Any:
    return torch.stack(writes).sum(0)


@exercise(10, "05", cases=heads_and_w_o, gives=("output (B, T, d_model)",))
def sum_of_head_writes(
    heads: Tensor,
    W_o: Tensor,
    *,
    each: Any = head_by_head,
    slab: Any = neighbouring_columns,
    write: Any = head_times_slab,
    collect: Any = added,
) -> Any:
    """Σ_i head_i · (its columns of W_o)ᵀ."""
    h, d_k = heads.shape[1], heads.shape[-1]
    parts = each(heads)
    slabs = [slab(W_o, i, h, d_k) for i in range(len(parts))]
    return collect([write(part, piece) for part, piece in zip(parts, slabs, strict=True)])


OWN = "The concatenation has head 0 in its first d_k columns. Which columns of W_o meet those?"


@sum_of_head_writes.slip(
    "slab",
    "The columns of W_o are dealt out like cards: head i gets columns i, i+h, i+2h and so on.",
    OWN,
)
def columns_dealt(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[:, i::h]


@sum_of_head_writes.slip(
    "slab",
    "Head i's slab is cut from the *rows* of W_o: rows are outputs (`nn.Linear` layout), and the "
    "heads meet its columns.",
    "W_o is (out, in). Which of its axes is h·d_k long?",
)
def rows_cut(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[i * d_k : (i + 1) * d_k]


@sum_of_head_writes.slip(
    "slab",
    "Head i's slab is cut from the *rows* of W_o and used untransposed.",
    "W_o is (out, in). Which of its axes is h·d_k long?",
)
def rows_cut_untransposed(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[i * d_k : (i + 1) * d_k].mT


@sum_of_head_writes.slip(
    "slab",
    "Every head writes through the columns of head 0 (adding the heads first is the same).",
    OWN,
)
def first_slab_for_all(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[:, :d_k]


@sum_of_head_writes.slip(
    "slab",
    "The slabs start at i·h instead of i·d_k, so they overlap or leave gaps.",
    "How wide is the slab of each head that comes before?",
)
def steps_of_h(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[:, i * h : i * h + d_k]


@sum_of_head_writes.slip(
    "slab",
    "The slabs start at i instead of i·d_k, so they overlap.",
    "How wide is the slab of each head that comes before?",
)
def steps_of_one(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o[:, i : i + d_k]


@sum_of_head_writes.slip(
    "slab",
    "W_o is cut as (d_model, d_k, h): a head's columns then lie h apart.",
    OWN,
    key="columns_apart",
)
def columns_apart(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o.reshape(-1, d_k * h)[:, i::h]


@sum_of_head_writes.slip(
    "slab",
    "W_o is pressed into (h·d_k, d_model) by `view` or `reshape` instead of being transposed.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def w_o_reshaped(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o.reshape(h * d_k, -1)[i * d_k : (i + 1) * d_k].mT


@sum_of_head_writes.slip(
    "slab",
    "W_o is pressed into (h, d_k, d_model) or (h, d_model, d_k) by `view`: that cuts its rows in "
    "memory's order.",
    "Which axis of W_o has to be cut into h and d_k?",
)
def w_o_viewed(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o.reshape(h, -1, d_k)[i]


@sum_of_head_writes.slip(
    "slab",
    "W_o is transposed, and then cut by `view` or `reshape` into (h, d_model, d_k): that runs "
    "through memory and mixes columns of different heads.",
    "After the transpose the heads lie along axis 0. Into which two sizes has it to be cut?",
)
def transposed_then_viewed(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return W_o.mT.reshape(h, -1, d_k)[i]


@sum_of_head_writes.slip(
    "slab",
    "The columns are taken from the other end: head 0 gets the last d_k.",
    OWN,
)
def slabs_reversed(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return neighbouring_columns(W_o, h - 1 - i, h, d_k)


@sum_of_head_writes.slip(
    "slab",
    "The columns are shifted by one head: head 0 gets those of head 1.",
    OWN,
)
def slabs_shifted(W_o: Tensor, i: int, h: int, d_k: int) -> Tensor:
    return neighbouring_columns(W_o, (i + 1) % h, h, d_k)


@sum_of_head_writes.slip(
    "write",
    "W_o is used untransposed: x @ W for x @ Wᵀ. Where d_k equals d_model nothing complains.",
    "`nn.Linear` keeps a row for each *output*. Which axis has to meet the head's last?",
)
def slab_untransposed(head: Tensor, slab: Tensor) -> Tensor:
    return head @ slab


@sum_of_head_writes.slip(
    "write", "The heads are summed as they are: W_o takes no part.", "What does W_o do with a head?"
)
def no_w_o(head: Tensor, slab: Tensor) -> Tensor:
    return head


@sum_of_head_writes.slip(
    "collect",
    "The writes are averaged, so the result is h times too small.",
    "Concatenating and multiplying by W_o: does it divide by h anywhere?",
)
def averaged(writes: list[Tensor]) -> Any:
    return torch.stack(writes).mean(0)


@sum_of_head_writes.slip(
    "collect",
    "The writes come back one by one, along an axis for the heads: they are not added up.",
    "What does the residual stream get in the end?",
)
def not_added(writes: list[Tensor]) -> Any:
    return torch.stack(writes, 1)


@sum_of_head_writes.slip(
    "collect",
    "The writes come back as a list: they are not added up.",
    "What does the residual stream get in the end?",
)
def listed(writes: list[Tensor]) -> Any:
    return writes


@sum_of_head_writes.slip(
    "collect",
    "Only the last head's write comes back: each overwrites the one before (`=` where `+=` is "
    "meant), or `return` stands after the loop without a sum.",
    "What should be left of head 0 in the end?",
)
def last_only(writes: list[Tensor]) -> Any:
    return writes[-1]


@sum_of_head_writes.slip(
    "collect",
    "Only head 0's write comes back.",
    "Which other heads write, and does `return` stand inside the loop?",
)
def first_only(writes: list[Tensor]) -> Any:
    return writes[0]


def _left_out() -> None:
    """One head missing; an empty sum is 0, or a tensor of zeros where the sum began with one."""
    for key, which, through, part in (
        ("last_left_out", "The last head", "range(h - 1)", slice(None, -1)),
        ("first_left_out", "Head 0", "range(1, h)", slice(1, None)),
    ):
        ways: tuple[tuple[str, Any], ...] = (
            (key, lambda writes, part=part: sum(writes[part])),
            (key, lambda w, part=part: sum(w[part], torch.zeros_like(w[0]))),
        )
        for name, step in ways:
            asks = f"Which values does `{through}` run through?"
            sum_of_head_writes.slip("collect", f"{which} is left out.", asks, key=name)(step)


_left_out()


@sum_of_head_writes.slip(
    "collect",
    "The writes are laid side by side, (B, T, h·d_model), instead of being added.",
    "How wide is a token in the end?",
)
def writes_side_by_side(writes: list[Tensor]) -> Any:
    return torch.cat(writes, -1)


@sum_of_head_writes.slip(
    "collect",
    "The writes are multiplied with each other.",
    "Σ stands for which operation?",
)
def multiplied(writes: list[Tensor]) -> Any:
    return torch.stack(writes).prod(0)


@sum_of_head_writes.slip(
    "collect", "The largest of the writes is kept.", "Σ stands for which operation?"
)
def largest(writes: list[Tensor]) -> Any:
    return torch.stack(writes).amax(0)


@sum_of_head_writes.slip(
    "collect",
    "The sum starts with the first write counted twice.",
    "With what does an empty sum begin?",
)
def first_twice(writes: list[Tensor]) -> Any:
    return added(writes) + writes[0]


@sum_of_head_writes.slip(
    "collect",
    "The sum runs over the batch as well: one result for all sequences.",
    "Which axis counts the heads?",
)
def batch_added_too(writes: list[Tensor]) -> Any:
    return added(writes).sum(0)


@sum_of_head_writes.slip(
    "each",
    "The loop runs over the batch (axis 0) and not over the heads.",
    "Which axis of (B, h, T, d_k) counts the heads?",
)
def over_the_batch(heads: Tensor) -> list[Tensor]:
    return list(heads.unbind(0))


@sum_of_head_writes.slip(
    "each",
    "Every write is made by head 0.",
    "Which head belongs to the i-th slab?",
)
def always_head_0(heads: Tensor) -> list[Tensor]:
    return [heads[:, 0]] * heads.shape[1]


@sum_of_head_writes.slip(
    "each",
    "The tokens are torn apart before W_o: a `reshape` or `view` to (B, T, …) of what lies in "
    "memory as (B, h, T, d_k), so a row holds h tokens of one head.",
    "Memory runs head by head here. Which axes have to change places before?",
)
def torn_apart(heads: Tensor) -> list[Tensor]:
    B, h, T, d_k = heads.shape
    return list(heads.reshape(B, T, h, d_k).unbind(2))


@sum_of_head_writes.slip(
    WHOLE,
    "The heads are added first, and so are the columns of W_o: Σ head · Σ slab has all the cross "
    "terms that Σ head · slab has not.",
    "Which head should meet which slab?",
)
def added_both(heads: Tensor, W_o: Tensor) -> Any:
    h, d_k = heads.shape[1], heads.shape[-1]
    return heads.sum(1) @ W_o.unflatten(1, (h, d_k)).sum(1).mT


@sum_of_head_writes.slip(
    WHOLE,
    "The heads are concatenated, and W_o takes no part.",
    "What remains to be done with the concatenation?",
)
def only_concatenated(heads: Tensor, W_o: Tensor) -> Any:
    return heads.transpose(1, 2).flatten(2)


@sum_of_head_writes.slip(
    WHOLE,
    "The heads are concatenated rightly, and W_o is used untransposed: x @ W instead of x @ Wᵀ.",
    "`nn.Linear` keeps a row for each *output*. Which axis has to meet the concatenation?",
)
def concatenated_untransposed(heads: Tensor, W_o: Tensor) -> Any:
    return heads.transpose(1, 2).flatten(2) @ W_o
