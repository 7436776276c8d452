"""count_flops (14): right in many styles, and wrong."""

import math
import torch

from answers import slips

EXERCISE = "count_flops"


def by_formula(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


def six_products(T, d, h):
    shapes = [(T, d, d)] * 4 + [(T, d // h, T)] * h + [(T, T, d // h)] * h
    return 2 * sum(map(math.prod, shapes))


def by_counting(T, d, h):
    def matmul(a, b, c):
        return 2 * a * b * c

    total = sum(matmul(T, d, d) for _ in range(4))
    for _ in range(h):
        total += matmul(T, d // h, T) + matmul(T, T, d // h)
    return total


def flops_shift(T, d_model, n_heads):
    return (T * d_model * (2 * d_model + T)) << 2


def flops_sum_of_products(T, d_model, n_heads):
    def product(n, m, p):
        return 2 * n * m * p

    d_k = d_model // n_heads
    each = product(T, d_k, T) + product(T, T, d_k) + 3 * product(T, d_model, d_k)
    return n_heads * each + product(T, n_heads * d_k, d_model)


@slips("one_place")
def f3_t(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * n_heads * T * d_model


@slips("one_place")
def flops_with_ffn(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 16 * T * d_model**2


@slips("one_each", "one_product")
def one_each_one_product(T, d, h):
    return 4 * T * d * d + T * T * d


@slips("relation:gap")
def p32(T, d, h):
    return 3 * T * d * d + T * T * d


h, d_k = 12, 32


@slips("from_the_notebook")
def flops_notebook_h(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * h * T * T * (d_model // n_heads)


@slips("arguments_exchanged")
def flops_powers(T, d_model, n_heads):
    return 8 * T**2 * d_model + 4 * T * d_model**2


@slips("values")
def counted_in_float32(T, d_model, n_heads):
    T, d = torch.tensor(float(T)), torch.tensor(float(d_model))
    return int(8 * T * d * d + 4 * T * T * d)
