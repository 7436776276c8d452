"""Exercise 14, notebook 09: floating-point operations of one forward pass."""

from collections.abc import Iterator

from mha_course.engine.families import kinds_of_count
from mha_course.exercises import WHOLE, Case, exercise


def sizes_of_passes() -> Iterator[Case]:
    for T, h, d_k in ((5, 3, 7), (11, 2, 3), (1001, 7, 73), (1, 5, 2), (7, 1, 13), (13, 13, 1)):
        sizes = {"T": T, "d_model": h * d_k, "n_heads": h, "d_k": d_k}
        yield Case((T, h * d_k, h), sizes)


@exercise(
    14,
    "09",
    reread="Counting an attention layer",
    make_cases=sizes_of_passes,
    gradient=False,
    gives=("flops",),
)
def count_flops(T, d_model, n_heads, *, project, attend, other, unit, finish):
    """2 · (4 T d_model² + 2 T² d_model)."""
    sizes = (T, d_model, n_heads)
    return finish(unit(project(*sizes) + attend(*sizes)) + other(*sizes))


@count_flops.step
def unit(multiply_adds):
    one_each = multiply_adds
    """A multiply-add is counted as 1: the exercise counts the multiplication and the addition. |
    How many operations is one multiply-add?"""
    return 2 * multiply_adds


@count_flops.step
def project(T, d, h):
    """A product (a, b) @ (b, c) takes a·b·c multiply-adds. What are a, b and c here?"""
    three_projections = 3 * T * d * d
    """Only three of the four projections are counted. | Which layers does a token pass, the last
    one too?"""
    two_projections = 2 * T * d * d
    """The projections are counted at half their cost: a multiply-add counts as 1 there, or only two
    of the four are counted. | How many products has each entry of X Wᵀ, and how many layers does a
    token pass through?"""
    no_projections = 0
    "The projections are missing. | Which layers does a token pass through?"
    one_token_projected = 4 * d * d
    "T is missing in the projections: every token goes through them."
    projections_per_head = 4 * T * d * d * h
    """The projections are counted for every head with the full width: h times too many. | How wide
    is the projection of one head?"""
    projections_of_one_head = 4 * T * d * (d // h)
    """The projections are h times too small, d_model × d_k each, as if there were one head. | How
    wide is what a head reads, and how many heads are there?"""
    projections_exchanged = 4 * T * T * d
    "The projections are counted as T²·d_model instead of T·d_model²."
    return 4 * T * d * d


@count_flops.step
def attend(T, d, h):
    """A product (a, b) @ (b, c) takes a·b·c multiply-adds. What are a, b and c here?"""
    one_product = T * T * d
    """The products of attention are half as large: one of the two is missing, or a multiply-add
    counts as 1 there, or each query is compared with half of the keys. | Q Kᵀ is one product. What
    happens with the weights afterwards?"""
    no_products = 0
    "The two products of attention are missing. | Where does T² come in?"
    products_of_one_head = 2 * T * T * (d // h)
    "The products are counted for one head only, T²·d_k. | How many heads compute such products?"
    products_with_full_width = 2 * T * T * d * h
    """The products are counted with d_model for *every* head: h times too many. | How many
    dimensions does one head's dot product sum over?"""
    products_exchanged = 2 * T * d * d
    "The products are counted as T·d_model² instead of T²·d_model."
    products_linear = 2 * T * d
    "The products are counted with T instead of T². | How many pairs of query and key are there?"
    products_halved = T * (T + 1) * d
    "The products are halved, as for a causal mask. | Does the exercise say anything about a mask?"
    return 2 * T * T * d


@count_flops.step
def other(T, d, h):
    """What does the exercise want to be counted, and nothing else?"""
    softmax_too = h * T * T
    "The softmax (or another step over all scores) is counted too, h·T² or some multiple of it."
    five_steps_too = 5 * h * T * T
    "Five operations per score (a softmax) are counted too, 5·h·T²."
    biases_too = 4 * T * d
    "The biases are counted too, 4·T·d_model."
    return 0


count_flops.step(kinds_of_count, at="finish")


@count_flops.step(at=WHOLE)
def all_in_all(T, d_model, n_heads):
    d_k = d_model // n_heads
    pairs = T * T * (2 * d_k - 1) + T * d_k * (2 * T - 1)
    one_addition_less = 4 * T * d_model * (2 * d_model - 1) + n_heads * pairs
    """A sum of n products is counted with n − 1 additions: exact, but the exercise counts every
    multiply-add as 2. | How many operations is one multiply-add, whatever stands at the beginning
    of the sum?"""
    with_backward = 3 * count_flops.right(T, d_model, n_heads)
    """A forward and a backward pass are counted, three times the forward pass. | Which of the two
    does the exercise want?"""
