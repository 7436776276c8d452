"""Operations (14): right in many styles, and wrong."""

import math
import torch

from answers import right, wrong


# count_flops


@right("count_flops")
def by_formula(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


@right("count_flops")
def step_by_step(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * (2 * T * d_model * d_model)
    scores = n_heads * (2 * T * d_k * T)
    mix = n_heads * (2 * T * T * d_k)
    return proj + scores + mix


@right("count_flops")
def factored(T, d_model, n_heads):
    return 4 * T * d_model * (2 * d_model + T)


@right("count_flops")
def six_products(T, d, h):
    shapes = [(T, d, d)] * 4 + [(T, d // h, T)] * h + [(T, T, d // h)] * h
    return 2 * sum(map(math.prod, shapes))


@right("count_flops")
def by_formula_2(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


@right("count_flops")
def by_parts(T, d, h):
    d_k = d // h
    projections = 4 * (2 * T * d * d)
    products = h * (2 * T * T * d_k + 2 * T * T * d_k)
    return projections + products


@right("count_flops")
def by_counting(T, d, h):
    def matmul(a, b, c):
        return 2 * a * b * c

    total = sum(matmul(T, d, d) for _ in range(4))
    for _ in range(h):
        total += matmul(T, d // h, T) + matmul(T, T, d // h)
    return total


@right("count_flops")
def with_a_helper(T, d, h):
    projection, score = 2 * T * d * d, 2 * T * T * (d // h)
    return sum([projection] * 4) + sum(score + score for _ in range(h))


@right("count_flops")
def flops_by_products(T, d_model, n_heads):
    def product(n, m, k):
        return 2 * n * m * k

    d_k = d_model // n_heads
    one_head = product(T, d_k, T) + product(T, T, d_k)
    return 4 * product(T, d_model, d_model) + n_heads * one_head


@right("count_flops")
def flops_loop(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    for _ in range(n_heads):
        shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)]
    return sum(2 * n * m * p for n, m, p in shapes)


@right("count_flops")
def flops_shift(T, d_model, n_heads):
    return (T * d_model * (2 * d_model + T)) << 2


@right("count_flops")
def flops_per_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    head = 3 * (2 * T * d_model * d_k) + 2 * (2 * T * T * d_k) + 2 * T * d_k * d_model
    return n_heads * head


@right("count_flops")
def flops_counted(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)] * n_heads
    return sum(2 * n * p * m for n, p, m in shapes)


@right("count_flops")
def flops_sum_of_products(T, d_model, n_heads):
    def product(n, m, p):
        return 2 * n * m * p

    d_k = d_model // n_heads
    each = product(T, d_k, T) + product(T, T, d_k) + 3 * product(T, d_model, d_k)
    return n_heads * each + product(T, n_heads * d_k, d_model)


@wrong(
    "count_flops",
    "two mistakes: T is not squared, and n_heads remains in the products",
    slips=("one_place",),
)
def f3_t(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * n_heads * T * d_model


@wrong("count_flops", "counts the softmax as well", slips=("one_place",))
def with_softmax(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 3 * n_heads * T**2


@wrong("count_flops", "T squared in the projections", slips=("one_place",))
def t_squared_in_the_projections(T, d, h):
    return 8 * T * T * d * d + 4 * T * T * d


@wrong("count_flops", "adds the feed-forward layer's 16 T d_model²", slips=("one_place",))
def flops_with_ffn(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 16 * T * d_model**2


@wrong(
    "count_flops",
    "two mistakes: a multiply-add as 1 in the products, and three projections",
    slips=("three_projections", "one_product"),
)
def f3_two(T, d_model, n_heads):
    return 3 * 2 * T * d_model * d_model + 2 * T * T * d_model


@wrong("count_flops", "one each, one product", slips=("one_each", "one_product"))
def one_each_one_product(T, d, h):
    return 4 * T * d * d + T * T * d


@wrong(
    "count_flops",
    "projections only for q, k, v; attention once; multiply-add as 1",
    slips=("relation:gap",),
)
def p32(T, d, h):
    return 3 * T * d * d + T * T * d


@wrong(
    "count_flops",
    "6 operations per parameter, the rule for training",
    slips=("products_exchanged", "counted_twice"),
)
def flops_training_rule(T, d_model, n_heads):
    return 6 * 4 * d_model * d_model * T


@wrong(
    "count_flops",
    "multiply-add as one, and only three projections",
    slips=("one_each", "three_projections"),
)
def flops_one_and_three(T, d_model, n_heads):
    return 3 * T * d_model**2 + 2 * T * T * d_model


h, d_k = 12, 32


h, d_k = 12, 32


@wrong(
    "count_flops",
    "the notebook's h of 12 for the heads, and d_model // n_heads for d_k",
    slips=("from_the_notebook",),
)
def flops_notebook_h(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * h * T * T * (d_model // n_heads)


@wrong(
    "count_flops",
    "two slips: three projections, and a float",
    slips=("three_projections", "as_float"),
)
def flops_two_slips(T, d_model, n_heads):
    return 6 * T * d_model**2 + 4 * T**2 * n_heads * (d_model / n_heads)


@wrong(
    "count_flops",
    "two slips: T^2 in the projections, T in the products",
    slips=("arguments_exchanged",),
)
def flops_powers(T, d_model, n_heads):
    return 8 * T**2 * d_model + 4 * T * d_model**2


@wrong(
    "count_flops",
    "two slips: 1 for a multiply-add, and / gives a float",
    slips=("one_each", "as_float"),
)
def flops_two_slips_2(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 4 * T * d_model * d_model + 2 * n_heads * T * T * d_k


@wrong(
    "count_flops",
    "with a cache: only the last token's queries meet the keys",
    slips=("one_token_projected", "products_linear"),
)
def flops_last_token(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * d_model * d_model
    products = 2 * n_heads * 2 * T * d_k
    return projections + products


@wrong(
    "count_flops",
    "leaves out the output projection, and halves attention for causality",
    slips=("three_projections", "products_halved"),
)
def flops_three_projections(T, d_model, n_heads):
    linear = 3 * (2 * T * d_model * d_model)
    pairs = T * (T + 1) // 2
    return linear + 2 * 2 * pairs * d_model


@wrong("count_flops", "counts in float32", slips=("values",))
def counted_in_float32(T, d_model, n_heads):
    T, d = torch.tensor(float(T)), torch.tensor(float(d_model))
    return int(8 * T * d * d + 4 * T * T * d)
