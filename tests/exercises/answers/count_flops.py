"""count_flops (14): right in many styles, and wrong."""

import math
import torch

from answers import slips

EXERCISE = "count_flops"


def by_formula(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


def step_by_step(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * (2 * T * d_model * d_model)
    scores = n_heads * (2 * T * d_k * T)
    mix = n_heads * (2 * T * T * d_k)
    return proj + scores + mix


def factored(T, d_model, n_heads):
    return 4 * T * d_model * (2 * d_model + T)


def six_products(T, d, h):
    shapes = [(T, d, d)] * 4 + [(T, d // h, T)] * h + [(T, T, d // h)] * h
    return 2 * sum(map(math.prod, shapes))


def by_parts(T, d, h):
    d_k = d // h
    projections = 4 * (2 * T * d * d)
    products = h * (2 * T * T * d_k + 2 * T * T * d_k)
    return projections + products


def by_counting(T, d, h):
    def matmul(a, b, c):
        return 2 * a * b * c

    total = sum(matmul(T, d, d) for _ in range(4))
    for _ in range(h):
        total += matmul(T, d // h, T) + matmul(T, T, d // h)
    return total


def with_a_helper(T, d, h):
    projection, score = 2 * T * d * d, 2 * T * T * (d // h)
    return sum([projection] * 4) + sum(score + score for _ in range(h))


def flops_by_products(T, d_model, n_heads):
    def product(n, m, k):
        return 2 * n * m * k

    d_k = d_model // n_heads
    one_head = product(T, d_k, T) + product(T, T, d_k)
    return 4 * product(T, d_model, d_model) + n_heads * one_head


def flops_loop(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    for _ in range(n_heads):
        shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)]
    return sum(2 * n * m * p for n, m, p in shapes)


def flops_shift(T, d_model, n_heads):
    return (T * d_model * (2 * d_model + T)) << 2


def flops_per_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    head = 3 * (2 * T * d_model * d_k) + 2 * (2 * T * T * d_k) + 2 * T * d_k * d_model
    return n_heads * head


def flops_counted(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)] * n_heads
    return sum(2 * n * p * m for n, p, m in shapes)


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
