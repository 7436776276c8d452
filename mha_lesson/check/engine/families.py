"""Slips that come in families: the same mistake in all its forms, told by one sentence."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.exercise import Exercise


def orders_of_axes(
    exercise: Exercise,
    site: str,
    have: str,
    want: str,
    asks: Callable[[str], str],
    but: tuple[str, ...] = (),
    then: str = "",
) -> None:
    """Every wrong order of the axes that a step has to bring into one order."""
    letters, right = have.split(), want.split()
    for order in permutations(range(len(letters))):
        found = [letters[i] for i in order]
        if found == right or " ".join(found) in but:
            continue
        does = f"The axes are in the order ({', '.join(found)}){then}, not ({', '.join(right)})."
        if found == letters:
            does = f"The axes stay as they are, ({', '.join(found)}): none has changed its place."
        key = "order_" + "_".join(found)
        question = "Batch first: which axis may not move?" if found[0] != "B" else asks(want)

        def step(x: Tensor, *_: Any, order: Any = order) -> Tensor:
            return x.permute(order)

        exercise.slip(site, does, question, key=key)(step)


def orders_of_results(exercise: Exercise, site: str, names: Sequence[str], asks: str) -> None:
    """Several results in every wrong order, some of them twice, some left out, or all in one."""
    n = len(names)
    for choice in product(range(n), repeat=n):
        if choice == tuple(range(n)):
            continue
        found = ", ".join(names[i] for i in choice)
        does = f"The results come in the order {found} instead of {', '.join(names)}."
        if len(set(choice)) < n:
            lost = " and ".join(names[i] for i in range(n) if i not in choice)
            does = f"What comes back is {found}, without {lost}."
        key = "results_" + "".join(str(i) for i in choice)
        exercise.slip(site, does, asks, key=key)(
            lambda *parts, choice=choice: tuple(parts[i] for i in choice)
        )
    for i, name in enumerate(names):
        exercise.slip(site, f"Only {name} comes back.", asks, key=f"only_{i}")(
            lambda *parts, i=i: parts[i]
        )
        if n > 2:
            others = [names[j] for j in range(n) if j != i]
            exercise.slip(
                site, f"Only {' and '.join(others)} come back.", asks, key=f"without_{i}"
            )(lambda *parts, i=i: (*parts[:i], *parts[i + 1 : n]))


def kinds_of_count(exercise: Exercise, site: str) -> None:
    """A whole number that is none."""
    for key, does, asks, step in (
        (
            "as_float",
            "The count is a float. (`/`, a factor like 4.0, `math.pow` and `float` make one.)",
            "Which division of integers stays an integer?",
            float,
        ),
        (
            "as_tensor",
            "The count is a tensor instead of a plain `int`.",
            "What turns a tensor with one number into a Python number?",
            torch.tensor,
        ),
        ("as_text", "The count is text.", "What type should a count have?", str),
        (
            "counted_twice",
            "The count is twice too large.",
            "Is something counted twice?",
            lambda n: 2 * n,
        ),
        (
            "in_bytes",
            "The count is four times too large: that is what bytes of float32 would come to.",
            "What is counted, and in which unit?",
            lambda n: 4 * n,
        ),
    ):
        exercise.slip(site, does, asks, key=key)(step)


def kinds_of_mask(exercise: Exercise, site: str = "kind") -> None:
    """The ways to give a mask that is not bool."""
    asks = "Which comparison, or which `dtype`, gives a tensor of True and False?"
    added = "to be *added* to scores: here a mask says True or False"
    for key, does, step in (
        (
            "as_floats",
            "Your mask holds the floats 0 and 1, not bool: a float mask would be *added* to the "
            "scores, and `masked_fill` refuses it.",
            lambda m: m.to(torch.float32),
        ),
        (
            "as_integers",
            "Your mask holds the integers 0 and 1, not bool: `~` of 1 is −2, and `masked_fill` "
            "refuses it.",
            lambda m: m.to(torch.int64),
        ),
        (
            "as_minus_infinity",
            f"Your mask holds 0 and −∞, {added}.",
            lambda m: torch.zeros(m.shape).masked_fill(m, -math.inf),
        ),
        (
            "as_nan",
            "Your mask is 0 · −∞ where nothing is blocked, and that is NaN.",
            lambda m: m.float() * -math.inf,
        ),
        ("as_large_negative", f"Your mask holds 0 and −1e9, {added}.", lambda m: m.float() * -1e9),
    ):
        exercise.slip(site, does, asks, key=key)(step)
    exercise.slip(
        site,
        "Your mask is a list of lists: True and False are right in it, and the tensor is missing.",
        "Which call makes a tensor of a list?",
        key="as_list",
    )(lambda m: m.tolist())


def fixed_numbers(exercise: Exercise, site: str = "scale") -> None:
    """Scores divided by a number that does not follow d_k."""
    for n in (2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128, 512):
        for power, word in ((0.5, f"√{n} (a d_k of {n})"), (1, f"{n}")):
            if power == 1 and n in (2, 4, 8, 16, 64):
                continue  # a root of another, or so likely to be one: √64 is 8
            exercise.slip(
                site,
                f"The scores are divided by {word} on every input: a fixed number, which does not "
                "follow d_k.",
                "Where does that number come from, and where can the function read d_k?",
                key=f"by_fixed_{'root_' if power < 1 else ''}{n}",
            )(lambda scores, Q, K, by=n**power: scores / by)
