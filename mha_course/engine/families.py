"""Slips that come in families: the same mistake in all its forms, or in several exercises.

Each is a block of slips of one step, for `Exercise.step`, or gives the ways to do the step.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.blocks import Way


def orders_of_axes(
    have: str, want: str, asks: str, but: tuple[str, ...] = (), then: str = ""
) -> Iterator[Way]:
    """Every order of the axes that a step has to bring into one order."""
    letters, right = have.split(), want.split()
    for order in permutations(range(len(letters))):
        axes = [letters[i] for i in order]
        if " ".join(axes) in but:
            continue
        does = f"The axes are in the order ({', '.join(axes)}){then}, not ({', '.join(right)})."
        if axes == letters:
            does = f"The axes stay as they are, ({', '.join(axes)}): none has moved."
        moved = letters[0] == right[0] == "B" != axes[0]
        question = "Batch first: which axis may not move?" if moved else asks

        def step(x: Tensor, *_: Any, order: Any = order) -> Tensor:
            return x.permute(order)

        yield "order_" + "_".join(axes) if axes != right else "", does, question, step


def orders_of_results(names: Sequence[str], asks: str) -> Iterator[Way]:
    """Several results in every wrong order, some of them twice, some left out, or all in one."""
    n = len(names)
    for choice in product(range(n), repeat=n):
        if choice == tuple(range(n)):
            continue
        given = ", ".join(names[i] for i in choice)
        does = f"The results are in the order {given} instead of {', '.join(names)}."
        if len(set(choice)) < n:
            lost = " and ".join(names[i] for i in range(n) if i not in choice)
            does = f"Your code returns {given}, without {lost}."
        key = "results_" + "".join(str(i) for i in choice)
        yield key, does, asks, lambda *parts, choice=choice: tuple(parts[i] for i in choice)
    for i, name in enumerate(names):
        yield f"only_{i}", f"Only {name} is returned.", asks, lambda *parts, i=i: parts[i]
        others = " and ".join(names[j] for j in range(n) if j != i)
        does = f"Only {others} are returned."
        yield f"without_{i}", does, asks, lambda *parts, i=i: (*parts[:i], *parts[i + 1 : n])


def kinds_of_count(n):
    """What type should a count have?"""
    as_float = float(n)
    """The count is a float. (`/`, a factor like 4.0, `math.pow` and `float` make one.) | Which
    division of integers stays an integer?"""
    as_tensor = torch.tensor(n)
    """The count is a tensor instead of a plain `int`. | What turns a tensor with one number into a
    Python number?"""
    as_text = str(n)
    "The count is text."
    counted_twice = 2 * n
    "The count is twice too large. | Is something counted twice?"
    in_bytes = 4 * n
    """The count is four times too large: that is what bytes of float32 would come to. | What is
    counted, and in which unit?"""
    return n


def kinds_of_mask(mask):
    """Which comparison, or which `dtype`, gives a tensor of True and False?"""
    as_floats = mask.to(torch.float32)
    """Your mask holds the floats 0 and 1, not bool: a float mask would be *added* to the scores,
    and `masked_fill` refuses it."""
    as_integers = mask.to(torch.int64)
    """Your mask holds the integers 0 and 1, not bool: `~` of 1 is −2, and `masked_fill` refuses
    it."""
    as_minus_infinity = torch.zeros(mask.shape).masked_fill(mask, -math.inf)
    """Your mask holds 0 and −∞, to be *added* to scores: here a mask says True or False."""
    as_nan = mask.float() * -math.inf
    "Your mask is 0 · −∞ where nothing is blocked, and that is NaN."
    as_large_negative = mask.float() * -1e9
    """Your mask holds 0 and −1e9, to be *added* to scores: here a mask says True or False."""
    as_list = mask.tolist()
    """Your mask is a list of lists: True and False are right in it, and the tensor is missing. |
    Which call makes a tensor of a list?"""
    return mask


BY_FIXED = "by_fixed"  # how the keys of such slips begin


def fixed_numbers() -> Iterator[Way]:
    """Scores divided by a number that does not follow d_k."""
    for n in (2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128, 512):
        for power, word in ((0.5, f"√{n} (a d_k of {n})"), (1, f"{n}")):
            if power == 1 and n in (2, 4, 8, 16, 64):
                continue  # a root of another, or so likely to be one: √64 is 8
            yield (
                f"{BY_FIXED}_{'root_' if power < 1 else ''}{n}",
                f"The scores are divided by {word} on every input: a fixed number, which does not "
                "follow d_k.",
                "Where does that number come from, and where can the function read d_k?",
                lambda scores, Q, K, by=n**power: scores / by,
            )
