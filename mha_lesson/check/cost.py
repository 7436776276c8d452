"""Exercise 14, notebook 09: floating-point operations of one forward pass."""

from collections.abc import Iterator
from typing import Any

import torch

from mha_lesson.check.exercise import WHOLE, Case, exercise


def sizes_of_passes() -> Iterator[Case]:
    for T, h, d_k in ((5, 3, 7), (11, 2, 3), (1024, 8, 64), (1, 5, 2), (7, 1, 13), (13, 13, 1)):
        sizes = {"T": T, "d_model": h * d_k, "n_heads": h, "d_k": d_k}
        yield Case((T, h * d_k, h), sizes)


Count = Any  # of multiply-adds


def four_projections(T: int, d: int, h: int) -> Count:
    return 4 * T * d * d


def two_products(T: int, d: int, h: int) -> Count:
    return 2 * T * T * d


def nothing_else(T: int, d: int, h: int) -> Count:
    return 0


def two_each(count: Count) -> Any:
    return 2 * count


def whole_number(flops: Any) -> Any:
    return flops


@exercise(14, "09", cases=sizes_of_passes, gradient=None, gives=("flops",))
def count_flops(
    T: int,
    d_model: int,
    n_heads: int,
    *,
    project: Any = four_projections,
    attend: Any = two_products,
    other: Any = nothing_else,
    unit: Any = two_each,
    finish: Any = whole_number,
) -> Any:
    """2 · (4 T d_model² + 2 T² d_model)."""
    sizes = (T, d_model, n_heads)
    return finish(unit(project(*sizes) + attend(*sizes)) + other(*sizes))


EACH = "A product (a, b) @ (b, c) takes a·b·c multiply-adds. What are a, b and c here?"


@count_flops.slip(
    "unit",
    "A multiply-add is counted as 1: the exercise counts the multiplication and the addition.",
    "How many operations is one multiply-add?",
)
def one_each(count: Count) -> Any:
    return count


@count_flops.slip(
    "unit", "Everything is counted twice too often.", "Where do two factors of 2 meet?"
)
def four_each(count: Count) -> Any:
    return 4 * count


def _projections() -> None:
    for n, words in ((0, "no"), (1, "one"), (2, "two"), (3, "three"), (5, "five")):

        def counted(T: int, d: int, h: int, n: int = n) -> Count:
            return n * T * d * d

        half = " (or a multiply-add counts as 1 there)" if n == 2 else ""
        left = " W_o is missing." if n == 3 else ""
        count_flops.slip(
            "project",
            f"Of the four projections {words} {'is' if n == 1 else 'are'} counted{half}.{left}",
            "Which layers does a token pass through?",
            key=f"{words}_projections",
        )(counted)


_projections()


@count_flops.slip(
    "project",
    "T is missing in the projections: every token goes through them.",
    EACH,
)
def one_token_projected(T: int, d: int, h: int) -> Count:
    return 4 * d * d


@count_flops.slip(
    "project",
    "The projections are counted for every head with the full width: h times too many.",
    "How wide is the projection of one head?",
)
def projections_per_head(T: int, d: int, h: int) -> Count:
    return 4 * T * d * d * h


@count_flops.slip(
    "project",
    "The projections are counted for one head only, d_model × d_k.",
    "How many heads are there?",
)
def projections_of_one_head(T: int, d: int, h: int) -> Count:
    return 4 * T * d * (d // h)


@count_flops.slip(
    "project",
    "The projections are counted with T² instead of T: each token goes through them once.",
    EACH,
)
def projections_squared(T: int, d: int, h: int) -> Count:
    return 4 * T * T * d * d


@count_flops.slip(
    "project",
    "W_q, W_k and W_v are counted for one head only, and W_o in full.",
    "How many heads are there?",
)
def one_head_in_all_out(T: int, d: int, h: int) -> Count:
    return 3 * T * d * (d // h) + T * d * d


@count_flops.slip(
    "project",
    "The projections are counted as T²·d_model instead of T·d_model².",
    EACH,
)
def projections_exchanged(T: int, d: int, h: int) -> Count:
    return 4 * T * T * d


@count_flops.slip(
    "attend",
    "Of the two products of attention only one is counted (or a multiply-add counts as 1 there).",
    "Q Kᵀ is one of them. What happens with the weights afterwards?",
)
def one_product(T: int, d: int, h: int) -> Count:
    return T * T * d


@count_flops.slip(
    "attend",
    "The two products of attention are missing.",
    "Where does T² come in?",
)
def no_products(T: int, d: int, h: int) -> Count:
    return 0


@count_flops.slip(
    "attend",
    "The products are counted for one head only, T²·d_k.",
    "How many heads compute such products?",
)
def products_of_one_head(T: int, d: int, h: int) -> Count:
    return 2 * T * T * (d // h)


@count_flops.slip(
    "attend",
    "The products are counted with d_model for *every* head: h times too many.",
    "How many dimensions does one head's dot product sum over?",
)
def products_with_full_width(T: int, d: int, h: int) -> Count:
    return 2 * T * T * d * h


@count_flops.slip(
    "attend",
    "The products are counted as T·d_model² instead of T²·d_model.",
    EACH,
)
def products_exchanged(T: int, d: int, h: int) -> Count:
    return 2 * T * d * d


@count_flops.slip(
    "attend",
    "The products are counted with T instead of T².",
    "How many pairs of query and key are there?",
)
def products_linear(T: int, d: int, h: int) -> Count:
    return 2 * T * d


@count_flops.slip(
    "attend",
    "Three products of attention are counted.",
    "Q Kᵀ, weights · V: which third one is there?",
)
def three_products(T: int, d: int, h: int) -> Count:
    return 3 * T * T * d


@count_flops.slip(
    "attend",
    "The width of a head is missing in the products, h·T² instead of h·T²·d_k.",
    EACH,
)
def products_without_width(T: int, d: int, h: int) -> Count:
    return 2 * T * T * h


@count_flops.slip(
    "attend",
    "The width and the heads are missing in the products: T² alone.",
    EACH,
)
def products_bare(T: int, d: int, h: int) -> Count:
    return 2 * T * T


@count_flops.slip(
    "attend",
    "The products are halved, as for a causal mask.",
    "Does the exercise say anything about a mask?",
)
def products_halved(T: int, d: int, h: int) -> Count:
    return T * (T + 1) * d


@count_flops.slip(
    "other",
    "The softmax (or another step over all scores) is counted too, h·T² or some multiple of it.",
    "What does the exercise want to be counted, and nothing else?",
)
def softmax_too(T: int, d: int, h: int) -> Count:
    return h * T * T


@count_flops.slip(
    "other",
    "Two more steps over all scores (softmax and scale, perhaps) are counted too, 2·h·T².",
    "What does the exercise want to be counted, and nothing else?",
)
def two_steps_too(T: int, d: int, h: int) -> Count:
    return 2 * h * T * T


@count_flops.slip(
    "other",
    "Three operations per score (a softmax) are counted too, 3·h·T².",
    "What does the exercise want to be counted, and nothing else?",
)
def three_steps_too(T: int, d: int, h: int) -> Count:
    return 3 * h * T * T


@count_flops.slip(
    "other",
    "Five operations per score (a softmax) are counted too, 5·h·T².",
    "What does the exercise want to be counted, and nothing else?",
)
def five_steps_too(T: int, d: int, h: int) -> Count:
    return 5 * h * T * T


@count_flops.slip(
    "other",
    "The biases are counted too, 4·T·d_model.",
    "What does the exercise want to be counted, and nothing else?",
)
def biases_too(T: int, d: int, h: int) -> Count:
    return 4 * T * d


@count_flops.slip(
    "finish",
    "The count is a float: `/` (or a factor like 2.0) makes one, even of whole numbers.",
    "Which division of integers stays an integer?",
)
def flops_as_float(flops: Any) -> Any:
    return float(flops)


@count_flops.slip(
    "finish",
    "The count is a tensor instead of a plain `int`.",
    "What turns a tensor with one number into a Python number?",
)
def flops_as_tensor(flops: Any) -> Any:
    return torch.tensor(flops)


@count_flops.slip("finish", "The count is text.", "What type should a count have?")
def flops_as_text(flops: Any) -> Any:
    return str(flops)


@count_flops.slip(
    WHOLE,
    "The whole is multiplied by h: but h heads of d_model / h dimensions are as much work as one "
    "of d_model.",
    "Where does h already stand in d_model = h · d_k?",
)
def times_heads(T: int, d_model: int, n_heads: int) -> Any:
    return n_heads * count_flops.right(T, d_model, n_heads)


@count_flops.slip(
    WHOLE,
    "A sum of n products is counted with n − 1 additions: exact, but the exercise counts every "
    "multiply-add as 2.",
    "How many operations is one multiply-add, whatever stands at the beginning of the sum?",
)
def one_addition_less(T: int, d_model: int, n_heads: int) -> Any:
    d_k = d_model // n_heads
    scores, context = T * T * (2 * d_k - 1), T * d_k * (2 * T - 1)
    return 4 * T * d_model * (2 * d_model - 1) + n_heads * (scores + context)


@count_flops.slip(
    WHOLE,
    "A forward and a backward pass are counted, three times the forward pass.",
    "Which of the two does the exercise want?",
)
def with_backward(T: int, d_model: int, n_heads: int) -> Any:
    return 3 * count_flops.right(T, d_model, n_heads)


@count_flops.slip(
    WHOLE,
    "The feed-forward network is counted too.",
    "Four projections and two products, nothing else.",
)
def with_feed_forward(T: int, d_model: int, n_heads: int) -> Any:
    return count_flops.right(T, d_model, n_heads) + 16 * T * d_model**2
